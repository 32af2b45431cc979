"""Processes that are really killed; `python -m tests.records.kills` kills a hundred times."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json
from tests.records.kills import measure
print(json.dumps(measure(kills=12, tasks=8, seed=6)))
"""


def test_kills_lose_double_and_corrupt_nothing(memory_path):
    # A process of its own: runs are forked, and this one has threads.
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(memory_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])
    kills = {row["phase"]: row["before"] + row["middle"] + row["after"] for row in figures["phases"]}
    assert set(kills) == {"journal", "image", "shard", "manifest"}
    assert all(kills.values()) and sum(kills.values()) == figures["kills"] == 12
    faults = ("lost", "doubled", "unreadable", "different_runs")
    assert [figures[name] for name in faults] == [0] * 4, result.stdout
