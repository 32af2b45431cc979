"""Collects trajectories: a teacher or a policy plays tasks in real browsers, in reflective rounds."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.environments.miniwob import make_task
from collection.fleet.config import CollectSettings, fleet_config
from collection.fleet.policy_server import serve_actor
from collection.fleet.rounds import Job, reflection_report, yield_report
from collection.fleet.run import run_tasks
from collection.llm.ledger import LEDGER, CallLedger
from collection.tasks.files import read_tasks
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.records.sealing import finish_stage
from rmsweb_jax.settings import from_config
from rmsweb_jax.storage import local_path, parse_path
from rmsweb_jax.workdir import run_stage


def collect(
    settings: CollectSettings | ConfigDict | Mapping[str, Any], workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Plays all rounds of all tasks; calling it again resumes.

    The workdir becomes a data set folder of trajectories with their screenshots. Guidance is stored
    separately in `reflections.jsonl`. `report.json` is written last; its existence marks the stage as done.

    Args:
      settings: such as `configs.collect.get_config("demo")`.

    Returns:
      The report: the actor, and the yield.

    Raises:
      UserError: no tasks, no browser, an actor or a policy that cannot be used, or a workdir that was begun
        with other settings.
    """
    return run_stage(_collect, from_config(CollectSettings, settings), workdir)


def _collect(settings: CollectSettings, workdir: Path) -> dict[str, Any]:
    setup = fleet_config(settings)
    rounds, reflective = settings.rounds, settings.reflection
    jobs = [Job(task, rounds, settings.stop_after, reflective) for task in _tasks(settings)]
    with serve_actor(setup.worker.actor, workdir / "server") as actor:
        played = run_tasks(jobs, workdir, setup.with_actor(actor), "collect")
    report = {
        "stage": "collect",
        "seconds": round(played.seconds, 1),
        "teacher": actor.kind,
        "actor": actor.label,
        "model": next(played.trajectories()).model,
        "reflection": reflective,
        **yield_report(played.trajectories(), rounds),
        **reflection_report(played.reflections),
        "model_calls": _model_calls(workdir / LEDGER),
    }
    finish_stage(workdir, json.dumps(report, indent=1).encode())
    return report


def _model_calls(path: Path) -> dict[str, Any]:
    """Returns calls and their cost by purpose; empty for a teacher that is not a model."""
    if not path.exists():
        return {}
    with contextlib.closing(CallLedger(path)) as ledger:
        return ledger.totals()


def _tasks(settings: CollectSettings) -> list[Task]:
    if settings.tasks_file:
        path = local_path(settings.tasks_file, "config.tasks_file")
        lines = read_tasks(path)
        if lines.bad:
            print(lines.warning(path), file=sys.stderr)
        return [task for _, task in lines.good]
    if settings.tasks_from:
        source = read_dataset(parse_path(settings.tasks_from, "config.tasks_from"), Trajectory)
        return list({trajectory.task.task_id: trajectory.task for trajectory in source}.values())
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    # Seed by seed, so that partial results cover every page.
    tasks = [make_task(page, seed) for seed in seeds for page in settings.pages]
    if not tasks:
        raise UserError(
            "no tasks: set config.pages and config.seeds, config.tasks_from=DIR or config.tasks_file=FILE"
        )
    return tasks
