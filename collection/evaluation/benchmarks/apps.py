"""Applications on this machine, whose tasks are checked by what they hold.

Their seeds are not held out, although they are not trained on: most tasks repeat those of other seeds.
"""

from __future__ import annotations

from collection.environments.apps.suite import prepared, tasks_of
from collection.evaluation.benchmarks.base import Benchmark, evaluated_seeds
from collection.evaluation.config import AppsSettings
from rmsweb_jax.errors import UserError

NAME = "apps"


def load(settings: AppsSettings) -> Benchmark:
    """Installs `applications`, and makes a task of each of their templates for each seed.

    Raises:
      UserError: a seed is trained on, or an application is not there or cannot be installed.
    """
    seeds = evaluated_seeds(settings.first_seed, settings.seeds)
    if not settings.applications:
        raise UserError("no tasks: set config.applications, see docs/apps.md")
    applications = prepared(settings.applications, settings.apps_folder)
    # Seed by seed, so that partial results cover every template.
    tasks = [one for seed in seeds for application in applications for one in tasks_of(application, seed)]
    return Benchmark(name=NAME, tasks=tuple(one.task for one in tasks))
