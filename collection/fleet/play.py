"""Plays the episodes of an online run's iteration, in a process apart from the one that trains.

    python -m collection.fleet.play REQUEST.json

The training process holds the accelerators, and must not be forked for workers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from collection.fleet.build import fleet_config
from collection.fleet.config import EpisodeSettings
from collection.fleet.rounds import Job
from collection.fleet.run import run_tasks
from collection.judges.fates import KEPT_OUT, fate
from rmsweb_jax.errors import user_errors
from rmsweb_jax.records.schema import Record, Task
from rmsweb_jax.records.sealing import finish_stage
from rmsweb_jax.settings import from_config


class PlayRequest(Record):
    """What is played.

    Attributes:
      workdir: becomes the data set.
      settings: those of `EpisodeSettings`, as plain values.
      policy: name of the adapters that act.
      samples: episodes of each task.
      replays: number of times that an episode is played again that site, network or machine ended.
    """

    workdir: str
    settings: dict[str, Any]
    policy: str
    tasks: tuple[Task, ...]
    samples: int
    replays: int


def play(request: PlayRequest) -> None:
    """Plays all episodes, and those that were lost again; called again, it goes on.

    Raises:
      UserError, StoppedError: as `run_tasks`.
    """
    workdir = Path(request.workdir)
    config = fleet_config(from_config(EpisodeSettings, request.settings))
    config = config.with_actor(config.settings.actor.model_copy(update={"adapters": request.policy}))
    jobs = [Job(task, request.samples, replays=request.replays) for task in request.tasks]
    lost = 0
    for _ in range(request.replays + 1):
        played = run_tasks(jobs, workdir, config, "play")
        lost = sum(fate(one) in KEPT_OUT for one in played.trajectories())
        if not lost:
            break
    report = {"stage": "play", "policy": request.policy, "seconds": round(played.seconds, 1), "lost": lost}
    finish_stage(workdir, json.dumps(report, indent=1).encode())


if __name__ == "__main__":
    with user_errors():
        play(PlayRequest.model_validate_json(Path(sys.argv[1]).read_bytes()))
