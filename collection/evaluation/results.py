"""One policy's outcomes on every task and run, and the figures drawn from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from collection.evaluation import statistics
from collection.evaluation.statistics import Interval
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Trajectory


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskResult(_Result):
    """A task's runs in order of attempt.

    Attributes:
      steps: decisions taken in each run.
      outcomes: how each run ended (`rmsweb_jax.records.schema.Outcome`).
      trajectory_ids: where to look the runs up in the trajectories beside `results.json`.
    """

    task_id: str
    site: str
    successes: tuple[bool, ...]
    steps: tuple[int, ...]
    outcomes: tuple[str, ...]
    trajectory_ids: tuple[str, ...]


class Results(_Result):
    """All tasks of one evaluation; every task has the same number of runs."""

    label: str
    model: str
    runs: int
    tasks: tuple[TaskResult, ...]

    @property
    def successes(self) -> np.ndarray:
        """[T, runs] booleans."""
        return np.array([task.successes for task in self.tasks], bool).reshape(-1, self.runs)

    @property
    def steps(self) -> np.ndarray:
        """[T, runs] ints."""
        return np.array([task.steps for task in self.tasks], int).reshape(-1, self.runs)

    def select(self, task_ids: Sequence[str]) -> Results:
        """The same results on `task_ids` alone, in that order."""
        by_id = {task.task_id: task for task in self.tasks}
        return self.model_copy(update={"tasks": tuple(by_id[task_id] for task_id in task_ids)})


def gather_results(label: str, model: str, runs: int, trajectories: Iterable[Trajectory]) -> Results:
    """Collects trajectories of attempts 1..`runs` of each task, in the order tasks first appear.

    Raises:
      UserError: a task lacks a run or has one twice: rates over such a set would be biased.
    """
    by_task: dict[str, dict[int, Trajectory]] = {}
    for trajectory in trajectories:
        attempts = by_task.setdefault(trajectory.task.task_id, {})
        if trajectory.attempt in attempts:
            raise UserError(
                f"{trajectory.trajectory_id}: evaluated twice; evaluate again in an empty --workdir"
            )
        attempts[trajectory.attempt] = trajectory
    tasks = []
    for task_id, attempts in by_task.items():
        if sorted(attempts) != list(range(1, runs + 1)):
            raise UserError(
                f"{task_id}: has runs {sorted(attempts)} instead of 1..{runs}; "
                "run the same command again to finish the evaluation"
            )
        ordered = [attempts[attempt] for attempt in range(1, runs + 1)]
        tasks.append(
            TaskResult(
                task_id=task_id,
                site=ordered[0].task.site,
                successes=tuple(run.success for run in ordered),
                steps=tuple(len(run.steps) for run in ordered),
                outcomes=tuple(run.outcome for run in ordered),
                trajectory_ids=tuple(run.trajectory_id for run in ordered),
            )
        )
    return Results(label=label, model=model, runs=runs, tasks=tuple(tasks))


def load_results(path: Path) -> Results:
    """Reads a `results.json`.

    Raises:
      UserError: the file is damaged.
    """
    try:
        return Results.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path}: not evaluation results ({error.error_count()} errors); evaluate again"
        ) from error


def score(results: Results, seed: int = 0) -> dict[str, Any]:
    """Every figure of one policy: pass@k with intervals, steps on solved tasks, by site, outcomes."""
    successes, steps = results.successes, results.steps
    sites = sorted({task.site for task in results.tasks})
    rows = {site: np.array([task.site == site for task in results.tasks]) for site in sites}
    return {
        "label": results.label,
        "model": results.model,
        "tasks": len(results.tasks),
        "runs": results.runs,
        **_pass_rates(successes, seed),
        "mean_steps_solved": _as_dict(statistics.steps_on_solved(successes, steps, seed)),
        "by_site": {
            site: {
                "tasks": int(mask.sum()),
                **_pass_rates(successes[mask], seed),
                "mean_steps_solved": _as_dict(statistics.steps_on_solved(successes[mask], steps[mask], seed)),
            }
            for site, mask in rows.items()
        },
        "outcomes": dict(
            Counter(outcome for task in results.tasks for outcome in task.outcomes).most_common()
        ),
    }


def compare(first: Results, second: Results, seed: int = 0) -> dict[str, Any]:
    """`first - second` on the tasks both were evaluated on, paired by task."""
    known = {task.task_id for task in second.tasks}
    shared = [task.task_id for task in first.tasks if task.task_id in known]
    first, second = first.select(shared), second.select(shared)
    difference: dict[str, Any] = {"tasks": len(shared)}
    for k in range(1, min(first.runs, second.runs) + 1):
        mine, theirs = (statistics.pass_at_k(results.successes, k) for results in (first, second))
        difference[f"pass_at_{k}"] = _as_dict(statistics.paired_difference(mine, theirs, seed))
    reduction = statistics.step_reduction(first.successes, first.steps, second.successes, second.steps, seed)
    difference["step_reduction"] = _as_dict(reduction)
    # On "solved at least once": the runs of one task are no independent trials.
    difference["mcnemar_p"] = statistics.mcnemar(*(np.any(one.successes, axis=1) for one in (first, second)))
    return difference


def to_json(content: dict[str, Any]) -> bytes:
    """JSON for people: indented, floats as they are, NaN refused."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _pass_rates(successes: np.ndarray, seed: int) -> dict[str, Any]:
    return {
        f"pass_at_{k}": _as_dict(statistics.bootstrap_mean(statistics.pass_at_k(successes, k), seed))
        for k in range(1, successes.shape[1] + 1)
    }


def _as_dict(interval: Interval | None) -> dict[str, float | int] | None:
    return None if interval is None else interval.as_dict()
