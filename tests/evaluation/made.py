"""Results with given successes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from collection.evaluation.judged_by import Judges
from collection.evaluation.results import Results, TaskRun
from rmsweb_jax.records.schema import JudgeFingerprint

REWARD = JudgeFingerprint(method="reward")


def results(
    label: str,
    successes: Sequence[Sequence[bool | int]],
    field: Callable[[int, int], dict[str, Any]] = lambda task, run: {},
    benchmark: str = "miniwob",
    judges: Judges = ((REWARD, 1),),
) -> Results:
    """Makes results of [T, runs] successes.

    Args:
      field: other fields of run `run` of task `task`, both from 0.
    """
    rows = []
    for task, wins in enumerate(successes):
        for run, won in enumerate(wins):
            fields = {
                "task_id": f"{benchmark}/{task}",
                "site": "ab"[task % 2],
                "outcome": "done" if won else "failures",
                "steps": 5,
                "trajectory_id": f"{benchmark}/{task}#{label}-{run + 1}",
            }
            rows.append(TaskRun(attempt=run + 1, success=bool(won), **{**fields, **field(task, run)}))
    return Results.of(label, "m", benchmark, len(successes[0]), judges, rows)
