"""The parent's side: hands out rounds, counts what comes back, replaces dead workers, ends in good order."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from collection.agent.loop import crashed_trajectory
from collection.fleet.clock import Clock
from collection.fleet.config import FleetConfig
from collection.fleet.engine import Died, Engine, Message
from collection.fleet.local import LocalEngine
from collection.fleet.publish import Played, publish
from collection.fleet.scheduler import Scheduler
from collection.fleet.status import Board, Status
from collection.fleet.stop import StoppedError, StopRequest
from collection.journals import FOLDER, Index, Kept, keep, new_journal
from collection.rounds import Job
from collection.sites import site_of
from collection.worker import FILES, Failed, Order
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Rate
from rmsweb_jax.records.journal import Journal

_HOPELESS = 3  # So many tasks given up in a row: something is wrong with all of them.
_LOOK_S = 1.0  # The status has seconds to count down.


def run_tasks(jobs: Sequence[Job], workdir: Path, config: FleetConfig, stage: str) -> Played:
    """Plays all rounds of all jobs and writes the data set `workdir` (kind `trajectories`).

    `reflections.jsonl` is written beside it when there are reflections. Trajectories are sorted by
    id, so the order does not depend on the number of workers. Calling it again resumes.

    Args:
      stage: name shown with the progress.

    Raises:
      UserError: what a user can mend (no browser, no endpoint, ...), told by whichever worker met it.
      StoppedError: SIGTERM has come; running episodes have ended or had their `drain_seconds`.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    clock = Clock(workdir / "elapsed.json")
    index = Index(workdir)
    engine = make_engine(workdir, config)
    with StopRequest(engine.wake) as stop:
        fleet = Fleet(jobs, workdir, config, index, engine, lambda: stop.asked)
        board = Board(workdir, stage, fleet.status())

        def show(status: Status) -> None:
            board.show(status)
            clock.tick()

        try:
            fleet.run(show)
            board.finish(fleet.status())
        finally:
            board.close()
            fleet.close()
            shutil.rmtree(workdir / FILES, ignore_errors=True)
            clock.save()
        reflections = publish(jobs, workdir, config.worker.actor, index)
    return Played(workdir, reflections, clock.seconds)


def make_engine(workdir: Path, config: FleetConfig) -> Engine:
    """The engine that the config names.

    Raises:
      UserError: there is none of that name, or it is not installed.
    """
    if config.engine == "local":
        return LocalEngine(workdir, config.worker)
    if config.engine == "ray":
        # Not part of every installation, and seconds to import.
        from collection.fleet.ray_engine import RayEngine

        return RayEngine(workdir, config)
    raise UserError(f"config.fleet.engine={config.engine!r}: unknown; take local or ray")


class Fleet:
    """Plays jobs on an engine until all are over.

    Args:
      index: what is on disk; kept up to date.
      asked: whether the run has been asked to stop.
      now: seconds of a clock that only grows.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        workdir: Path,
        config: FleetConfig,
        index: Index,
        engine: Engine,
        asked: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ):
        self._workdir, self._config, self._engine, self._index = workdir, config, engine, index
        self._asked, self._now = asked, now
        self._jobs = {job.task.task_id: job for job in jobs}
        self._scheduler: Scheduler[str] = Scheduler(config.sites)
        self._journals: dict[int, str] = {}
        self._playing: dict[int, str] = {}
        self._deaths: dict[str, int] = {}  # Of workers over a task.
        self._lost: Counter[str] = Counter()  # Of those, over its present round.
        self._given_up = 0
        self._error: UserError | None = None
        self._cut_at: float | None = None
        self._counts = Status(tasks=len(self._jobs), workers=config.workers)
        self._steps, self._rate = 0, Rate(0, now())
        for task_id, job in self._jobs.items():
            for kept in index.of(task_id):
                self._count(kept)
            if job.is_over(index.successes(task_id)):
                self._counts.tasks_done += 1
            else:
                self._scheduler.add(task_id, _site(job))
        self._steps, self._rate = 0, Rate(0, now())

    def run(self, show: Callable[[Status], None] = lambda status: None) -> None:
        """Returns when every job is over.

        Raises:
          UserError, StoppedError: as `run_tasks`.
        """
        while self._scheduler.waiting or self._scheduler.running:
            if not self._stopping():
                self._hand_out()
            for worker, message in self._engine.wait(self._patience()):
                self._hear(worker, message)
            show(self.status())

    def close(self) -> None:
        """Ends the workers: idle ones by themselves, others by force; their browsers end with them."""
        self._engine.close(frozenset(self._journals.keys() - self._playing.keys()))

    def status(self) -> Status:
        now = self._now()
        self._rate.update(self._steps, now)
        self._counts.steps_per_second = self._rate.per_second()
        self._counts.busy = len(self._playing)
        self._counts.closed_sites = self._scheduler.closed(now)
        return self._counts

    def _stopping(self) -> bool:
        """Whether no more is begun; raises why once nothing runs, or what runs has had its time."""
        if not self._asked() and self._error is None:
            return False
        now = self._now()
        if self._cut_at is None:
            self._cut_at = now + self._config.drain_seconds
            seconds = self._config.drain_seconds
            print(f"stopping: {len(self._playing)} episodes may end in {seconds:.0f} s", file=sys.stderr)
        if not self._playing or now >= self._cut_at:
            raise self._error or StoppedError()
        return True

    def _patience(self) -> float:
        """Seconds to wait for news before there is something else to do."""
        now, times = self._now(), [self._now() + _LOOK_S]
        if self._cut_at is not None:
            times.append(self._cut_at)
        elif len(self._playing) < self._config.workers and (wake := self._scheduler.wake_at()) is not None:
            times.append(wake)
        return max(0.0, min(times) - now)

    def _hand_out(self) -> None:
        while len(self._playing) < self._config.workers:
            task_id = self._scheduler.next(self._now())
            if task_id is None:
                return
            idle = self._journals.keys() - self._playing.keys()
            worker = min(idle) if idle else self._start()
            self._playing[worker] = task_id
            self._engine.give(
                worker, Order(self._jobs[task_id], self._index.of(task_id), self._lost[task_id])
            )

    def _start(self) -> int:
        journal = new_journal(self._workdir)
        worker = self._engine.start(journal)
        self._journals[worker] = journal
        return worker

    def _hear(self, worker: int, message: Message) -> None:
        if isinstance(message, Died):
            self._bury(worker, message.reason)
            return
        task_id = self._playing.pop(worker)
        if isinstance(message, Failed):
            self._scheduler.ended(task_id, self._now())
            self._scheduler.add(task_id, _site(self._jobs[task_id]))
            self._fail(message)
            return
        self._take(message.kept)
        self._given_up = 0
        self._go_on(task_id, message.kept)

    def _fail(self, message: Failed) -> None:
        error = UserError(message.reason)
        error.exit_code = message.exit_code
        if message.exit_code == UserError.exit_code:
            raise error
        # Money has run out, and nothing is broken: episodes that need no more of it may end.
        self._error = self._error or error

    def _take(self, kept: Sequence[Kept]) -> None:
        for one in kept:
            if self._index.add(one):
                self._count(one)

    def _count(self, kept: Kept) -> None:
        counts = self._counts
        counts.cost += kept.cost
        if kept.round is not None:
            counts.rounds += 1
            counts.successes += kept.round.success
            counts.outcomes[kept.round.outcome] += 1
            self._steps += kept.round.steps

    def _go_on(self, task_id: str, kept: Sequence[Kept]) -> None:
        """What comes after a round that was played."""
        self._lost.pop(task_id, None)
        job = self._jobs[task_id]
        played = next((one.round for one in kept if one.round is not None), None)
        self._scheduler.ended(task_id, self._now(), None if played is None else played.outcome)
        if job.is_over(self._index.successes(task_id)):
            self._counts.tasks_done += 1
        else:
            self._scheduler.add(task_id, _site(job), first=True)

    def _bury(self, worker: int, reason: str) -> None:
        """Forgets a dead worker and puts its job back, or gives the job up."""
        self._engine.kill(worker)
        task_id = self._playing.pop(worker, None)
        kept = self._index.scan(self._journals.pop(worker))
        for one in kept:
            self._count(one)
        self._counts.deaths += 1
        if task_id is None:
            return
        job = self._jobs[task_id]
        if any(one.round is not None for one in kept):
            self._go_on(task_id, kept)
            return
        self._scheduler.ended(task_id, self._now())
        deaths = self._deaths[task_id] = self._deaths.get(task_id, 0) + 1
        self._lost[task_id] += 1
        if deaths <= self._config.retries:
            self._scheduler.add(task_id, _site(job))
        else:
            self._give_up(job, f"its worker died {deaths} times, last with {reason}")

    def _give_up(self, job: Job, reason: str) -> None:
        """Records the rounds that cannot be played as crashed, so that every job ends."""
        task_id, actor, name = job.task.task_id, self._config.worker.actor, new_journal(self._workdir)
        with Journal(self._workdir / FOLDER / name) as journal:
            while not job.is_over(successes := self._index.successes(task_id)):
                trajectory = crashed_trajectory(
                    job.task, actor.label, actor.model or actor.kind, len(successes) + 1, reason
                )
                # The last loss was not followed by another try; later rounds had none at all.
                retries = max(0, self._lost.pop(task_id, 0) - 1)
                trajectory = trajectory.model_copy(update={"retries": retries})
                self._take([keep(trajectory, journal, name)])
        self._counts.tasks_done += 1
        self._given_up += 1
        if self._given_up >= _HOPELESS:
            raise UserError(f"{task_id}: {reason}, as for the tasks before it; see the log, then run again")


def _site(job: Job) -> str:
    """Whom to be kind to: pages of our own are no one's."""
    return site_of(job.task.website) if job.task.environment == "web" else ""
