"""Tasks of a user's own, for example at applications on this machine (`config.guard.hosts`, `.private`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collection.evaluation.benchmarks.base import Benchmark
from collection.tasks.benchmarks import BenchmarkFile, refuse
from collection.tasks.contamination import Question
from collection.tasks.files import read_tasks

NAME = "apps"


def load(settings: dict[str, Any]) -> Benchmark:
    """Reads `tasks_file`, JSON lines with `website` and `objective`; a bad line is an error here.

    Raises:
      UserError: it cannot be read, or any of its lines is no task or one that was there before.
    """
    path = Path(settings["tasks_file"])
    file = BenchmarkFile(path, "config.tasks_file", NAME)
    data = file.read()
    lines = read_tasks(path)
    # An average over what is left would pass for one over all.
    told = (f"line {one.number} ({one.reason})" for one in lines.bad)
    refuse(told, f"{file.setting}={path}: not tasks", "mend these lines")
    tasks = tuple(task for _, task in lines.good)
    return Benchmark(
        name=NAME,
        tasks=tasks,
        files=(file.source(data, len(tasks)),),
        questions=tuple(
            Question(NAME, task.task_id, " ".join((task.objective, *task.constraints)), task.website)
            for task in tasks
        ),
    )
