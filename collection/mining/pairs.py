"""Which runs of a task are compared with which."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from collection.mining.branch import Branch, branch
from rmsweb_jax.records.schema import Trajectory


@dataclasses.dataclass(frozen=True)
class RunPair:
    """A success and the run it is held against.

    Attributes:
      kind: `primary` for a failed run, `secondary` for a longer success.
    """

    kind: Literal["primary", "secondary"]
    success: Branch
    localization: Branch


def by_task(trajectories: Iterable[Trajectory]) -> dict[str, list[Branch]]:
    """All runs of each task, in a fixed order; a run that occurs in several pools counts once."""
    runs: dict[str, dict[str, Trajectory]] = defaultdict(dict)
    for run in trajectories:
        runs[run.task.task_id].setdefault(run.trajectory_id, run)
    return {
        task_id: [branch(found[name]) for name in sorted(found)] for task_id, found in sorted(runs.items())
    }


def run_pairs(runs: list[Branch]) -> Iterator[RunPair]:
    """Every success with every failure; the shortest success with every longer one."""
    successes = sorted((run for run in runs if run.run.success and len(run)), key=len)
    failures = [run for run in runs if not run.run.success and len(run)]
    for success in successes:
        for failure in failures:
            yield RunPair("primary", success, failure)
    for longer in successes[1:]:
        if len(longer) > len(successes[0]):
            yield RunPair("secondary", successes[0], longer)
