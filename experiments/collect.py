"""Stage 1 and 4: tasks played in real browsers by a teacher or by our own policy.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect

The workdir becomes a data set folder of trajectories with their screenshots; guidance is kept apart
in `reflections.jsonl`, and `report.json` says who acted and what came out.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection import fleet
from collection.environments.miniwob import make_task
from collection.fleet_config import SAFE_ACTOR_KEYS, SAFE_FLEET_KEYS, fleet_config
from collection.llm.ledger import LEDGER, Ledger
from collection.policy_server import acting
from collection.rounds import Job, reflection_report, yield_report
from collection.tasks.files import read_tasks
from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task, Trajectory
from rmsweb_jax.records.shards import read_dataset

SAFE_KEYS = (*SAFE_FLEET_KEYS, *SAFE_ACTOR_KEYS)


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
        "model": next(played.trajectories()).model,
        "reflection": reflective,
        **yield_report(played.trajectories(), rounds),
        **reflection_report(played.reflections),
        "model_calls": _model_calls(workdir / LEDGER),
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def _model_calls(path: Path) -> dict[str, Any]:
    """Calls and their cost by purpose; none of a teacher that is no model."""
    if not path.exists():
        return {}
    with contextlib.closing(Ledger(path)) as ledger:
        return ledger.totals()


def _tasks(settings: dict[str, Any]) -> list[Task]:
    if settings["tasks_file"]:
        path = Path(settings["tasks_file"])
        lines = read_tasks(path)
        if lines.bad:
            print(lines.warning(path), file=sys.stderr)
        return [task for _, task in lines.good]
    if settings["tasks_from"]:
        source = read_dataset(Path(settings["tasks_from"]), Trajectory)
        return list({trajectory.task.task_id: trajectory.task for trajectory in source}.values())
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    # Seed by seed, so that an early look at a run shows every page.
    tasks = [make_task(page, seed) for seed in seeds for page in settings["pages"]]
    if not tasks:
        raise UserError(
            "no tasks: set config.pages and config.seeds, config.tasks_from=DIR or config.tasks_file=FILE"
        )
    return tasks


if __name__ == "__main__":
    cli.run(main, "configs/collect.py:demo", SAFE_KEYS)
