"""SkyPilot's schema and its reading of a task; the file comes as JSON on standard input."""

import json
import sys

from sky import Task

task = Task.from_yaml_config(json.load(sys.stdin))
for resources in task.resources:
    # Where a task may go to several kinds of machines, each of them restarts it.
    assert not resources.accelerators or resources.job_recovery["recover_on_exit_codes"] == [75], resources
