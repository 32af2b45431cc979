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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from collection.fleet.config import EpisodeSettings, resolved
from collection.fleet.forks import parting
from collection.fleet.pool import Threads
from collection.fleet.rounds import Job
from collection.fleet.run import Fleet, Run, go_on
from collection.judges.base import KEPT_OUT, fate
from collection.judges.build import judge_config
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import user_errors
from rmsweb_jax.records.episodes import FORKS, TEACHER
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Record, Task, Trajectory
from rmsweb_jax.settings import from_config


class PlayRequest(Record):
    """What is played.

    Attributes:
      workdir: becomes the data set.
      policy: name of the adapters that act.
      samples: number of episodes of each task.
      replays: number of times that an episode is played again that site, network or machine ended.
      teacher: plays each task once that no episode has solved; its episodes are the data set `TEACHER` there.
      forks: number of episodes that go on from where those of a task have parted, if some of them have
        solved it and others not; they are the data set `FORKS` there.
    """

    workdir: str
    policy: str
    tasks: tuple[Task, ...]
    samples: tuple[int, ...]
    replays: int
    teacher: ActorConfig | None = None
    forks: int = 0


class Played:
    """A request that is played: all episodes, those that were lost again, and the teacher's.

    It goes on after a kill.

    Args:
      settings: those of the fleet.
      stack: ends what is not over when it is left.

    Raises:
      UserError: as `Fleet.begin`.
    """

    def __init__(
        self, request: PlayRequest, fleet: Fleet, settings: EpisodeSettings, stack: contextlib.ExitStack
    ):
        self._request, self._fleet, self._settings = request, fleet, settings
        self._run, self._runs = stack.enter_context(contextlib.ExitStack()), self._all_runs()
        self.run = next(self._runs)

    def is_over(self) -> bool:
        """Begins the next run once one is over."""
        while self.run.is_over:
            if (run := next(self._runs, None)) is None:
                return True
            self.run = run
        return False

    def _all_runs(self) -> Iterator[Run]:
        """Yields runs, each of which is over before the next one; writes the report in the end."""
        request, workdir = self._request, Path(self._request.workdir)
        policy = self._settings.actor.model_copy(update={"adapters": request.policy})
        each = zip(request.tasks, request.samples, strict=True)
        jobs = [Job(task, samples, replays=request.replays) for task, samples in each]
        for _ in range(request.replays + 1):
            run = self._begin(jobs, workdir, policy)
            yield run
            self._run.close()
            kept = defaultdict[str, list[Trajectory]](list)
            for one in run.result.trajectories():
                if fate(one) not in KEPT_OUT:
                    kept[one.task.task_id].append(one)
            lost = sum(request.samples) - sum(map(len, kept.values()))
            if not lost:
                break
        report = {"stage": "play", "policy": request.policy, "seconds": round(run.result.seconds, 1)}
        forks = []
        for task in request.tasks if request.forks else ():
            both = {one.success for one in kept[task.task_id]} == {True, False}
            if both and (replies := parting(kept[task.task_id])) is not None:
                forks.append(Job(task, request.forks, fork=replies))
        if forks:
            yield self._begin(forks, workdir / FORKS, policy)
            self._run.close()
        solved = {task_id for task_id, played in kept.items() if any(one.success for one in played)}
        unsolved = [Job(task, 1) for task in request.tasks if task.task_id not in solved]
        if request.teacher and unsolved:
            yield self._begin(unsolved, workdir / TEACHER, request.teacher)
            self._run.close()
        write_atomic(workdir / "report.json", json.dumps(report | {"lost": lost}, indent=1).encode())

    def _begin(self, jobs: Sequence[Job], workdir: Path, actor: ActorConfig) -> Run:
        judge = judge_config(self._settings.judge, self._settings.actor, {})
        return self._run.enter_context(self._fleet.begin(jobs, workdir, "play", judge, actor))


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
