"""Which runs of a task are compared with which."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
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


@dataclasses.dataclass(frozen=True)
class PairConfig:
    """How many pairs of a task are compared at most; a judge is asked about each of them."""

    max_primary: int = 12
    max_secondary: int = 4


def by_task(trajectories: Iterable[Trajectory]) -> dict[str, list[Branch]]:
    """All runs of each task, in a fixed order; a run that occurs several times counts once."""
    runs: dict[str, dict[str, Trajectory]] = defaultdict(dict)
    for trajectory in trajectories:
        runs[trajectory.task.task_id].setdefault(trajectory.trajectory_id, trajectory)
    return {
        task_id: [branch(found[name]) for name in sorted(found)] for task_id, found in sorted(runs.items())
    }


def run_pairs(runs: Sequence[Branch], config: PairConfig | None = None) -> list[RunPair]:
    """Every success with every failure; the shortest success with every longer one.

    Where that is too much, successes and failures of all kinds stay: the shortest success meets all
    failures before the next one does, and failures of different actors take turns.
    """
    config = config or PairConfig()
    successes = sorted((run for run in runs if run.run.success and len(run)), key=_by_length)
    failures = _in_turns([run for run in runs if not run.run.success and len(run)])
    primary = [RunPair("primary", success, failure) for success in successes for failure in failures]
    secondary = [
        RunPair("secondary", successes[0], longer)
        for longer in successes[1:]
        if len(longer) > len(successes[0])
    ]
    return primary[: config.max_primary] + secondary[: config.max_secondary]


def _by_length(run: Branch) -> tuple[int, str]:
    return len(run), run.run.trajectory_id


def _in_turns(runs: Sequence[Branch]) -> list[Branch]:
    """One run of each actor, then the second of each."""
    place: dict[str, int] = defaultdict(int)
    turns = []
    for run in sorted(runs, key=lambda run: run.run.trajectory_id):
        turns.append((place[run.run.actor], run.run.actor, run.run.trajectory_id, run))
        place[run.run.actor] += 1
    return [run for *_, run in sorted(turns, key=lambda turn: turn[:3])]
