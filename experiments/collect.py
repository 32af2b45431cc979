"""Stage 1 and 4: tasks played in real browsers by a teacher or by our own policy.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect

The workdir becomes a data set folder of trajectories with their screenshots; guidance is kept apart
in `reflections.jsonl`, and `report.json` says who acted and what came out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection import fleet
from collection.environments.miniwob import make_task
from collection.fleet_config import fleet_config
from collection.policy_server import acting
from collection.rounds import Job, reflection_report, yield_report
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.records.shards import read_dataset

SAFE_KEYS = ("fleet.workers", "fleet.retries", "fleet.crashes", "actor.timeout_s", "actor.calls")


def main(config: ConfigDict, workdir: Path) -> None:
    """Plays all rounds; the report is written last and says that the stage is done."""
    if (workdir / "report.json").exists():
        return
    settings = config.to_dict()
    setup = fleet_config(settings)
    rounds, reflective = settings["rounds"], settings["reflection"]
    jobs = [Job(task, rounds, settings["stop_after"], reflective) for task in _tasks(settings)]
    with acting(setup.worker.actor, workdir / "server") as actor:
        played = fleet.run_tasks(jobs, workdir, setup.with_actor(actor), "collect")
    report = {
        "stage": "collect",
        "seconds": round(played.seconds, 1),
        "teacher": actor.kind,
        "actor": actor.label,
        "model": played.trajectories[0].model,
        "reflection": reflective,
        **yield_report(played.trajectories, rounds),
        **reflection_report(played.reflections),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def _tasks(settings: dict[str, Any]) -> list[Task]:
    if settings["tasks_from"]:
        source = read_dataset(Path(settings["tasks_from"]), Trajectory)
        return list({trajectory.task.task_id: trajectory.task for trajectory in source}.values())
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    # Seed by seed, so that an early look at a run shows every page.
    tasks = [make_task(page, seed) for seed in seeds for page in settings["pages"]]
    if not tasks:
        raise UserError("no tasks: set config.pages and config.seeds, or config.tasks_from=DIR")
    return tasks


if __name__ == "__main__":
    cli.run(main, "configs/collect.py:demo", SAFE_KEYS)
