"""Plays every held-out task several times with one policy (RMSWeb, section 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from collection import fleet
from collection.environments.miniwob import make_task
from collection.evaluation.results import Results, gather_results
from collection.fleet import FleetConfig
from collection.policy_server import acting
from collection.rounds import Job
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task

FIRST_HELD_OUT_SEED = 1_000_000


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Outcomes, and wall-clock seconds over this run and those it resumed."""

    results: Results
    seconds: float


def held_out_tasks(pages: Sequence[str], first_seed: int, seeds: int) -> list[Task]:
    """Tasks on seeds that nothing is trained on: seed by seed, so that an early look shows every page.

    Raises:
      UserError: a seed below `FIRST_HELD_OUT_SEED`, or no tasks.
    """
    if first_seed < FIRST_HELD_OUT_SEED:
        raise UserError(
            f"config.first_seed is {first_seed}: seeds below {FIRST_HELD_OUT_SEED} are trained on; "
            f"evaluate from {FIRST_HELD_OUT_SEED}"
        )
    tasks = [make_task(page, seed) for seed in range(first_seed, first_seed + seeds) for page in pages]
    if not tasks:
        raise UserError("no tasks: set config.pages and config.seeds")
    return tasks


def evaluate(tasks: Sequence[Task], runs: int, config: FleetConfig, workdir: Path) -> Evaluated:
    """Plays `tasks` exactly `runs` times each; what an earlier run finished is not played again.

    Attempts of a task differ in their sampling seeds alone, which depend on the task, the attempt and
    the step. The trajectories become the data set `workdir`.

    Raises:
      UserError: no browser, no server, a model folder that cannot be served, ...
    """
    jobs = [Job(task, attempts=runs) for task in tasks]
    with acting(config.worker.actor, workdir / "server") as actor:
        played = fleet.run_tasks(jobs, workdir, config.with_actor(actor), "evaluate")
    label, model = actor.label, next(played.trajectories()).model
    return Evaluated(gather_results(label, model, runs, played.trajectories()), played.seconds)
