"""Plays the episodes of an online run, in a process apart from the one that trains.

    python -m collection.fleet.play SETTINGS

SETTINGS are those of `EpisodeSettings`, as JSON. Each line of standard input is a `PlayRequest`, whose
`report.json` says that it has been played. The browsers stay from one to the next. The training process holds
the accelerators, and must not be forked for workers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from collection.fleet.config import EpisodeSettings, resolved
from collection.fleet.rounds import Job
from collection.fleet.run import Fleet
from collection.judges.base import KEPT_OUT, fate
from collection.judges.build import judge_config
from rmsweb_jax.errors import user_errors
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Record, Task
from rmsweb_jax.settings import from_config


class PlayRequest(Record):
    """What is played.

    Attributes:
      workdir: becomes the data set.
      policy: name of the adapters that act.
      samples: number of episodes of each task.
      replays: number of times that an episode is played again that site, network or machine ended.
    """

    workdir: str
    policy: str
    tasks: tuple[Task, ...]
    samples: tuple[int, ...]
    replays: int


def play(request: PlayRequest, fleet: Fleet, settings: EpisodeSettings) -> None:
    """Plays all episodes, and those that were lost again; called again, it goes on.

    Args:
      settings: those of the fleet.

    Raises:
      UserError, StoppedError: as `Fleet.run`.
    """
    workdir = Path(request.workdir)
    actor = settings.actor.model_copy(update={"adapters": request.policy})
    judge = judge_config(settings.judge, actor, {})
    each = zip(request.tasks, request.samples, strict=True)
    jobs = [Job(task, samples, replays=request.replays) for task, samples in each]
    lost, seconds = 0, 0.0
    for _ in range(request.replays + 1):
        played = fleet.run(jobs, workdir, "play", judge, actor)
        lost, seconds = sum(fate(one) in KEPT_OUT for one in played.trajectories()), played.seconds
        if not lost:
            break
    report = {"stage": "play", "policy": request.policy, "seconds": round(seconds, 1), "lost": lost}
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())


def main() -> None:
    with user_errors():
        settings = resolved(from_config(EpisodeSettings, json.loads(sys.argv[1])))
        with Fleet(settings) as fleet:
            for line in sys.stdin:
                play(PlayRequest.model_validate_json(line), fleet, settings)


if __name__ == "__main__":
    main()
