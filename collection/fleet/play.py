"""Plays the episodes of an online run, in a process apart from the one that trains.

    python -m collection.fleet.play SETTINGS

SETTINGS are `PlayerSettings` as JSON. Each line of standard input is a folder with a `PlayRequest`, in
`request.json`; it becomes a data set, and `report.json` there says that it has been played. Browsers that
have nothing to do for one request begin the next. The training process holds the accelerators, and must not
be forked for workers.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from collection.fleet.config import EpisodeSettings, TeacherConfig, resolved
from collection.fleet.fleet import Fleet, check_models
from collection.fleet.forks import parting
from collection.fleet.pool import Threads
from collection.fleet.rounds import Job
from collection.fleet.run import Run, go_on
from collection.judges.base import KEPT_OUT, fate
from collection.judges.build import judge_config
from collection.llm.calls import CALLS, Calls
from collection.llm.config import ActorConfig
from rmsweb_jax.errors import UserError, user_errors
from rmsweb_jax.records.episodes import FORK_LIST, FORKS, LEAST_EPISODES, TEACHER, Fork
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Record, Task, Trajectory
from rmsweb_jax.settings import Settings, from_config

REQUEST = "request.json"


_FORK_LIST = TypeAdapter(list[Fork])


class PlayerSettings(Settings):
    """How all requests are played.

    Attributes:
      episodes: with the policy as actor.
      replays: number of times that an episode is played again that site, network or machine ended.
      teacher: resolved; plays each task once that no episode has solved. Its episodes are the data set
        `TEACHER` in that of the request.
      forks: number of episodes that go on from where those of a task have parted, if some of them have
        solved it and others not; they are the data set `FORKS` there, and the places `FORK_LIST`.
    """

    episodes: EpisodeSettings = EpisodeSettings()
    replays: int = 0
    teacher: TeacherConfig = TeacherConfig()
    forks: int = 0


class PlayRequest(Record):
    """What is played.

    Attributes:
      policy: name of the adapters that act.
      samples: number of episodes of each task.
    """

    policy: str
    tasks: tuple[Task, ...]
    samples: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> PlayRequest:
        """Raises `UserError` if another version has written it."""
        try:
            return cls.model_validate_json((folder / REQUEST).read_bytes())
        except ValidationError as error:
            raise UserError(
                f"{folder / REQUEST}: written by another version ({error.error_count()} errors); use another "
                "--workdir"
            ) from error


class Player:
    """Plays requests by a fleet.

    Args:
      settings: with the actor resolved.
      folder: of all requests; keeps the teacher's calls, so that its cap is that of the run.
      stack: ends what is not over when it is left.

    Raises:
      UserError: the teacher does not answer.
    """

    def __init__(self, settings: PlayerSettings, fleet: Fleet, folder: Path, stack: contextlib.ExitStack):
        self.settings, self.fleet, self.stack = settings, fleet, stack
        self.judge = judge_config(settings.episodes.judge, settings.episodes.actor, {})
        self.teacher, self.calls = settings.teacher, None
        if self.teacher.kind != "none":
            self.calls = stack.enter_context(Calls(folder / CALLS))
            asked = settings.episodes.model_copy(update={"actor": self.teacher})
            self.teacher = check_models(asked, None, self.calls)[0].actor


class Playing:
    """A request that is played: all episodes, those that were lost again, forks, and the teacher's.

    It goes on after a kill.

    Raises:
      UserError: as `Fleet.begin`.
    """

    def __init__(self, folder: Path, player: Player):
        self._folder, self._player = folder, player
        self._request = PlayRequest.read(folder)
        self._stack = player.stack.enter_context(contextlib.ExitStack())
        self._runs = self._all_runs()
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
        request, settings = self._request, self._player.settings
        policy = settings.episodes.actor.model_copy(update={"adapters": request.policy})
        each = zip(request.tasks, request.samples, strict=True)
        jobs = [Job(task, samples, replays=settings.replays) for task, samples in each]
        for _ in range(settings.replays + 1):
            run = self._begin(jobs, self._folder, policy)
            yield run
            self._stack.close()
            lost = sum(fate(one) in KEPT_OUT for one in run.result.trajectories())
            if not lost:
                break
        forks, unsolved = self._next_jobs(run.result.trajectories())
        if forks:
            yield self._begin(forks, self._folder / FORKS, policy)
            self._stack.close()
        if unsolved:
            yield self._begin(unsolved, self._folder / TEACHER, self._player.teacher, self._player.calls)
            self._stack.close()
        report = {"stage": "play", "policy": request.policy, "lost": lost}
        write_atomic(self._folder / "report.json", json.dumps(report, indent=1).encode())

    def _next_jobs(self, played: Iterable[Trajectory]) -> tuple[list[Job], list[Job]]:
        """Returns forks of tasks that some episodes have solved, and unsolved tasks for the teacher."""
        settings, kept = self._player.settings, defaultdict[str, list[Trajectory]](list)
        for one in played:
            if fate(one) not in KEPT_OUT:
                kept[one.task.task_id].append(one)
        tasks = {task.task_id: task for task in self._request.tasks}
        won = {name: [run.success for run in runs] for name, runs in kept.items()}
        unsolved = [
            Job(tasks[name], 1)
            for name, solved in won.items()
            if self._player.calls and len(solved) >= LEAST_EPISODES and not any(solved)
        ]
        forks, path = list[Fork](), self._folder / FORK_LIST
        if path.exists():  # Of a killed run.
            forks = _FORK_LIST.validate_json(path.read_bytes())
        elif settings.forks:
            mixed = [name for name, solved in won.items() if any(solved) and not all(solved)]
            forks = [fork for name in mixed if (fork := parting(kept[name])) is not None]
            write_atomic(path, _FORK_LIST.dump_json(forks))
        return [Job(tasks[fork.task_id], settings.forks, fork=fork) for fork in forks], unsolved

    def _begin(
        self, jobs: Sequence[Job], folder: Path, actor: ActorConfig, calls: Calls | None = None
    ) -> Run:
        begun = self._player.fleet.begin(jobs, folder, "play", self._player.judge, actor, calls)
        return self._stack.enter_context(begun)


def main() -> None:
    with user_errors():
        settings = from_config(PlayerSettings, json.loads(sys.argv[1]))
        settings = settings.model_copy(update={"episodes": resolved(settings.episodes)})
        # Left before the fleet, whose workers it stops.
        with Fleet(settings.episodes) as fleet, contextlib.ExitStack() as stack:
            reader, playing, player = Threads(1), list[Playing](), None
            line = reader.submit(sys.stdin.readline)
            while playing or not line.done() or line.result():
                go_on([one.run for one in playing], () if line.done() else (line,))
                if line.done() and line.result():
                    folder = Path(line.result().removesuffix("\n"))
                    player = player or Player(settings, fleet, folder.parent, stack)
                    playing.append(Playing(folder, player))
                    line = reader.submit(sys.stdin.readline)
                # After a signal all end together.
                playing = [one for one in playing if one.run.is_stopping or not one.is_over()]


if __name__ == "__main__":
    main()
