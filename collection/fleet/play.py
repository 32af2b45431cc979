"""Plays the episodes of an online run, in a process apart from the one that trains.

    python -m collection.fleet.play SETTINGS

SETTINGS are those of `EpisodeSettings`, as JSON. Each line of standard input is a `PlayRequest`, whose
`report.json` says that it has been played. Browsers that have nothing to do for one begin the next. The
training process holds the accelerators, and must not be forked for workers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from collection.fleet.config import EpisodeSettings, resolved
from collection.fleet.pool import Threads
from collection.fleet.rounds import Job
from collection.fleet.run import Fleet, go_on
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


class Played:
    """A request that is played: all episodes, and those that were lost again. It goes on after a kill.

    Args:
      settings: those of the fleet.
      stack: ends what is not over when it is left.

    Raises:
      UserError: as `Fleet.begin`.
    """

    def __init__(
        self, request: PlayRequest, fleet: Fleet, settings: EpisodeSettings, stack: contextlib.ExitStack
    ):
        self._request, self._fleet, self._workdir = request, fleet, Path(request.workdir)
        self._actor = settings.actor.model_copy(update={"adapters": request.policy})
        self._judge = judge_config(settings.judge, self._actor, {})
        self._times, self._run = 0, stack.enter_context(contextlib.ExitStack())
        self._begin()

    def _begin(self) -> None:
        request, self._times = self._request, self._times + 1
        each = zip(request.tasks, request.samples, strict=True)
        jobs = [Job(task, samples, replays=request.replays) for task, samples in each]
        begun = self._fleet.begin(jobs, self._workdir, "play", self._judge, self._actor)
        self.run = self._run.enter_context(begun)

    def is_over(self) -> bool:
        """Begins again what was lost; writes the report in the end."""
        while self.run.is_over:
            self._run.close()
            lost = sum(fate(one) in KEPT_OUT for one in self.run.result.trajectories())
            if not lost or self._times > self._request.replays:
                seconds = round(self.run.result.seconds, 1)
                report = {"stage": "play", "policy": self._request.policy, "seconds": seconds, "lost": lost}
                write_atomic(self._workdir / "report.json", json.dumps(report, indent=1).encode())
                return True
            self._begin()
        return False


def main() -> None:
    with user_errors():
        settings = resolved(from_config(EpisodeSettings, json.loads(sys.argv[1])))
        # Left before the fleet, whose workers it stops.
        with Fleet(settings) as fleet, contextlib.ExitStack() as stack:
            reader, playing = Threads(1), list[Played]()
            line = reader.submit(sys.stdin.readline)
            while playing or not line.done() or line.result():
                go_on([one.run for one in playing], () if line.done() else (line,))
                if line.done() and line.result():
                    request = PlayRequest.model_validate_json(line.result())
                    playing.append(Played(request, fleet, settings, stack))
                    line = reader.submit(sys.stdin.readline)
                playing = [one for one in playing if not one.is_over()]


if __name__ == "__main__":
    main()
