"""MiniWoB++ pages with held-out seeds."""

from __future__ import annotations

from collections.abc import Sequence

from collection.environments.miniwob import make_task
from collection.evaluation.benchmarks.base import Benchmark, evaluated_seeds
from collection.evaluation.config import MiniwobSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task

NAME = "miniwob"


def load(settings: MiniwobSettings) -> Benchmark:
    """Makes the tasks of `pages`, each with `seeds` seeds starting at `first_seed`.

    Raises:
      UserError: as `held_out_tasks`.
    """
    tasks = held_out_tasks(settings.pages, settings.first_seed, settings.seeds)
    return Benchmark(name=NAME, tasks=tuple(tasks))


def held_out_tasks(pages: Sequence[str], first_seed: int, seeds: int) -> list[Task]:
    """Makes tasks seed by seed, so that partial results cover every page.

    Raises:
      UserError: as `evaluated_seeds`, or no tasks.
    """
    tasks = [make_task(page, seed) for seed in evaluated_seeds(first_seed, seeds) for page in pages]
    if not tasks:
        raise UserError("no tasks: set config.pages")
    return tasks
