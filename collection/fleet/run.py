"""The parent of a fleet: it schedules rounds, lets them be judged and reflected on, and writes the run."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from collection.agent.loop import crashed_trajectory
from collection.browser.guard.redaction import Redactor
from collection.fleet.browser_pool import read_secrets
from collection.fleet.config import EpisodeSettings
from collection.fleet.journal import RunJournal
from collection.fleet.pool import NotPlacedError, Pool, Threads, WorkerDiedError
from collection.fleet.rounds import Job, Reflected, Round, SetAside, guidance_of, reflect
from collection.fleet.scheduler import REFUSED, Scheduler, SiteState
from collection.fleet.status import LIVE, LiveView, Status
from collection.fleet.worker import Episode, PlayedEpisode, RunFailure, run_failure
from collection.judges.base import Judge, with_verdict
from collection.judges.build import JudgeConfig, make_judge
from collection.llm.actor import ActorModel
from collection.llm.build import make_actor
from collection.llm.calls import Calls, CallsAddress
from collection.tasks.websites import site_of
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.progress import Rate
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.signals import StopRequest

# Number of successive tasks given up, or with an error of this program, that stops the run: the cause is then
# not a single task.
_MAX_GIVEN_UP = 3
# The status shows seconds left, of sites in backoff for example.
_STATUS_INTERVAL_S = 1.0


@dataclasses.dataclass(frozen=True)
class RunResult:
    """Result of a fleet's run, on disk.

    Attributes:
      folder: the data set.
      reflections: sorted by task and attempt.
      set_aside: number of tasks by site that are left because their site refuses the run.
      seconds: wall-clock time of this run and of the runs that it resumed, up to their last save.
    """

    folder: Path
    reflections: list[Reflected]
    set_aside: Counter[str]
    seconds: float

    def trajectories(self) -> Iterator[Trajectory]:
        """Sorted by id; read shard by shard, since a large run does not fit into memory."""
        return read_dataset(self.folder, Trajectory)


class _Due(NamedTuple):
    """A round that is to be played."""

    task_id: str
    attempt: int


Wait = Callable[[Collection[Future[Any]], float], Collection[Future[Any]]]


def _wait(futures: Collection[Future[Any]], seconds: float) -> Collection[Future[Any]]:
    if not futures:
        time.sleep(seconds)
    return wait(futures, seconds, FIRST_COMPLETED).done


def go_on(runs: Sequence[Run], others: Collection[Future[Any]] = (), wait: Wait = _wait) -> None:
    """Lets runs of one fleet go on until something has ended: an episode, or another future.

    Workers play for the first run that has something to play.

    Raises:
      UserError: a run has failed.
      StoppedError: a signal came, and what was running has ended or had its time.
    """
    failed = next((run for run in runs if run.error is not None), None)
    if failed is not None or any(run.is_stopping for run in runs):
        for run in runs:
            run.drain()
        if all(run.is_drained for run in runs):
            raise failed.error if failed and failed.error else runs[0].stopped
    for run in runs:
        run.start()
    pending = {future: run for run in runs for future in run.pending}
    seconds = min((run.wait_seconds() for run in runs), default=_STATUS_INTERVAL_S)
    for done in wait([*pending, *others], seconds):
        if done in pending:
            pending[done].handle(done)
    for run in runs:
        run.show(run.status())


class Run:
    """Plays jobs on a pool of workers until all are over.

    Args:
      journal: what was played before; kept up to date.
      idle: slots of the pool that play nothing; kept up to date.
      stop: when it is requested, nothing more starts.
      calls, address: of the run's models.
      now: a monotonic clock, in seconds.
      wait: returns the futures that are done, after at most so many seconds.
      sites: of the fleet.

    Attributes:
      show: is called with the status as it changes.
      result: once the run has been left.
      error: that the user can fix, for which nothing more is played.
    """

    result: RunResult

    def __init__(
        self,
        jobs: Sequence[Job],
        workdir: Path,
        settings: EpisodeSettings,
        judge: JudgeConfig | None,
        journal: RunJournal,
        pool: Pool[Any],
        idle: set[int],
        stop: StopRequest,
        calls: Calls,
        address: CallsAddress,
        now: Callable[[], float] = time.monotonic,
        wait: Wait = _wait,
        sites: defaultdict[str, SiteState] | None = None,
    ):
        self.show: Callable[[Status], Any] = lambda status: None
        self._workdir, self._settings, self._judge_config = workdir, settings, judge
        self._journal, self._pool, self._idle, self._stop = journal, pool, idle, stop
        self._calls, self._address, self._now, self._wait = calls, address, now, wait
        self._jobs = {job.task.task_id: job for job in jobs}
        self._scheduler: Scheduler[_Due] = Scheduler(settings.fleet, now(), sites)
        self._threads = Threads(settings.fleet.judgements)
        # What is being played, judged or reflected on, with what is done with the result.
        self._pending: dict[Future[Any], Callable[[Future[Any]], None]] = {}
        self._playing: dict[int, _Due] = {}  # By busy slot.
        self._judged: set[tuple[str, int]] = set()  # Task and attempt of the episodes that are being judged.
        self._held: set[str] = set()  # Tasks whose next round waits for a verdict or a reflection.
        self._lost = Counter[_Due]()  # Workers that died playing it.
        self._over: set[str] = set()  # Tasks with all their rounds, set aside or given up.
        self._crashes: dict[str, str] = {}  # Tasks that are given up, with the reason.
        self._last_refusal: dict[str, str] = {}  # By site and by task.
        self._disallowed: dict[str, str] = {}  # Tasks whose start page robots.txt disallows, and its words.
        # Tasks that are not played to their end, with the reason.
        self._aside = {} if settings.fleet.retry_set_aside else dict(journal.set_aside)
        self._given_up: set[str] = set()  # Tasks, since the last round that was played.
        self.error: UserError | None = None
        self._drain_until: float | None = None
        self._counts = Status(tasks=len(self._jobs), workers=settings.fleet.workers)
        self._steps, self._closed = 0, False
        for task_id in self._jobs:
            for reflected in journal.reflections[task_id].values():
                self._count(reflected)
            for played in journal.rounds[task_id].values():
                self._count(played)
                self._let_judge(played)
            self._go_on(task_id, first=False)
            if task_id not in self._over and not self._jobs[task_id].needs_verdicts:
                for due in self._missing(task_id):
                    self._scheduler.add(due, self._site(task_id))
        # Steps of earlier runs must not count for the speed of this one.
        self._steps, self._rate = 0, Rate(0, now())

    def play(self) -> None:
        """Plays until every job is over.

        Raises:
          UserError, StoppedError: as `go_on`.
        """
        while not self.is_over:
            go_on([self], wait=self._wait)

    @property
    def is_over(self) -> bool:
        """True if all jobs are over; not of a run that has failed."""
        return not self._scheduler.waiting and not self._pending and self.error is None

    @property
    def pending(self) -> Collection[Future[Any]]:
        """What is being played, judged or reflected on."""
        return self._pending

    def start(self) -> None:
        """Assigns rounds until all workers are busy or no job may start."""
        if self._drain_until is None:
            self._start_rounds()

    def handle(self, done: Future[Any]) -> None:
        """Takes what has ended of `pending`."""
        self._pending.pop(done)(done)

    def close(self) -> None:
        """Ends the workers that still play; episodes that wait for a verdict are judged in the next run.

        What has ended and was paid for is kept, though the run has ended before it was looked at.
        """
        self._closed = True
        for future in self._pending:
            future.cancel()
        for slot, due in self._playing.items():
            self._pool.replace(slot)
            self._scheduler.ended(due, self._now())
        self._idle.update(self._playing)
        self._threads.close()
        for future in self._pending:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._keep(future.result())

    def _keep(self, result: PlayedEpisode | Trajectory | Reflected | RunFailure) -> None:
        if isinstance(result, PlayedEpisode):
            self._journal.append_played(result.record, result.summary)
        elif isinstance(result, Trajectory):
            self._journal.append_round(result)
        elif isinstance(result, Reflected):
            self._journal.append(result)

    def status(self) -> Status:
        now = self._now()
        self._rate.update(self._steps, now)
        self._counts.steps_per_second = self._rate.per_second()
        self._counts.busy, self._counts.judging = len(self._playing), len(self._judged)
        self._counts.closed_sites = self._scheduler.closed(now)
        self._counts.outages = self._calls.outages()
        return self._counts

    # --- What a task needs next ---

    def _go_on(self, task_id: str, first: bool = True) -> None:
        """Schedules the next round of a task once its verdicts and reflections are there, or ends the task.

        Args:
          first: before the other tasks of its site.
        """
        job, rounds = self._jobs[task_id], self._journal.rounds[task_id]
        self._held.discard(task_id)
        if task_id in self._over:
            return
        if job.needs_verdicts and any((task_id, attempt) in self._judged for attempt in rounds):
            self._held.add(task_id)
        elif job.is_over(self._journal.successes(task_id)):
            self._over.add(task_id)
            self._counts.tasks_done += 1
        elif reason := self._refusal(task_id):
            self._set_aside([task_id], reason)
        elif self._drain_until is None and isinstance(
            played := guidance_of(job, rounds, self._journal.reflections[task_id]), Round
        ):
            self._held.add(task_id)
            self._submit(self._reflected, self._reflect, played)
        elif job.needs_verdicts:
            self._scheduler.add(next(self._missing(task_id)), self._site(task_id), first)
        elif not first:
            for due in self._take_out(task_id):
                self._scheduler.add(due, self._site(task_id))

    def _missing(self, task_id: str) -> Iterator[_Due]:
        """The rounds of a task that were not played."""
        attempts = range(1, self._jobs[task_id].attempts + 1)
        return (_Due(task_id, one) for one in attempts if one not in self._journal.rounds[task_id])

    def _take_out(self, task_id: str) -> list[_Due]:
        """Takes the rounds of a task out of the queue."""
        return self._scheduler.remove(self._site(task_id), lambda due: due.task_id == task_id)

    def _site(self, task_id: str) -> str:
        """Site whose limits a task counts against; local pages have none."""
        task = self._jobs[task_id].task
        return site_of(task.website) if task.environment == "web" else ""

    def _refusal(self, task_id: str) -> str:
        """Returns why a task is not played to its end; "" if it is."""
        if task_id in self._aside:
            return self._aside[task_id]
        site, limit = self._site(task_id), self._settings.fleet.max_refusals
        what = self._scheduler.refuses(task_id, site)
        if task_id in self._disallowed or not what:
            return self._disallowed.get(task_id, "")
        name = site if what == "site" else task_id
        return f"{name} was refused {limit} times in a row, the last was {self._last_refusal[name]}"

    def _set_aside(self, tasks: Sequence[str], reason: str) -> None:
        site = self._site(tasks[0])
        self._counts.set_aside[site] += len(tasks)
        self._over.update(tasks)
        for task_id in tasks:
            self._take_out(task_id)
        if new := [task_id for task_id in tasks if task_id not in self._aside]:
            # On disk, so that a run that is resumed does not try them again.
            for task_id in new:
                self._journal.append(SetAside(set_aside=task_id, reason=reason))
                self._aside[task_id] = reason
            print(f"set aside, {len(new)} of {site}: {reason}", file=sys.stderr)

    def _count_refusals(self, played: Round) -> None:
        task_id, site = played.task_id, self._site(played.task_id)
        if played.disallowed:  # The site was not asked for its page.
            self._disallowed[task_id] = f"{task_id}: {played.detail}"
            return
        self._scheduler.count(task_id, site, played.outcome, self._now())
        if played.outcome in REFUSED:
            words = ": ".join(filter(None, (played.outcome, played.detail)))
            self._last_refusal[site] = self._last_refusal[task_id] = words

    # --- Playing ---

    def _start_rounds(self) -> None:
        while self._idle:
            due = self._scheduler.next(self._now())
            if due is None:
                return
            job, rounds = self._jobs[due.task_id], self._journal.rounds[due.task_id]
            guidance = guidance_of(job, rounds, self._journal.reflections[due.task_id])
            assert isinstance(guidance, str)
            episode = Episode(
                task=job.task,
                attempt=due.attempt,
                guidance=guidance,
                lost=self._lost[due],
                workdir=self._workdir,
                actor=self._settings.actor,
                calls=self._address,
                fork=job.fork,
            )
            # A worker that is there, since there may be no room for another.
            slot = min(self._idle, key=lambda slot: (not self._pool.has_worker(slot), slot))
            future = self._pool.submit(slot, episode)
            self._idle.remove(slot)
            self._playing[slot] = due
            self._pending[future] = functools.partial(self._played, slot)
            if not self._pool.shares_disk:
                live = LiveView(self._workdir, slot, episode.task, episode.attempt)
                live.show(waiting_for="browser")

    def _played(self, slot: int, future: Future[PlayedEpisode | RunFailure]) -> None:
        due = self._playing.pop(slot)
        self._idle.add(slot)
        (self._workdir / LIVE / f"{slot}.json").unlink(missing_ok=True)
        task_id, site = due.task_id, self._site(due.task_id)
        try:
            played = future.result()
        except WorkerDiedError as error:
            self._pool.replace(slot)
            self._handle_death(due, str(error))
            return
        except NotPlacedError:
            self._pool.replace(slot)
            self._play_again(due, first=True)
            return
        if isinstance(played, RunFailure):
            self._play_again(due)
            self._fail(played)
            return
        self._lost.pop(due, None)
        added = self._journal.append_played(played.record, played.summary)
        self._count(added)
        # A site that was not asked for its page needs no pause.
        self._scheduler.ended(due, self._now(), None if added.disallowed else added.outcome)
        self._count_refusals(added)
        self._let_judge(added)
        # First in its queue, so that tasks finish early instead of all at the end; but a site that refuses
        # one is tried with others.
        self._go_on(task_id, first=added.outcome not in REFUSED or not site)
        if self._scheduler.refuses(task_id, site) == "site" and (others := self._scheduler.remove(site)):
            tasks = list(dict.fromkeys(other.task_id for other in others))
            self._set_aside(tasks, self._refusal(tasks[0]))
        if played.error:
            self._count_given_up(task_id, played.error)
        else:
            self._given_up.clear()

    def _play_again(self, due: _Due, first: bool = False) -> None:
        """Schedules a round again that was not played."""
        # Without an outcome: what has happened says nothing about the site.
        self._scheduler.ended(due, self._now())
        if due.task_id not in self._over:
            self._scheduler.add(due, self._site(due.task_id), first)
        elif due.task_id in self._crashes:
            self._crash(due)

    def _handle_death(self, due: _Due, reason: str) -> None:
        """Schedules the round of a worker that is gone again, or gives the task up."""
        self._counts.deaths += 1
        self._lost[due] += 1
        gives_up = self._lost[due] > self._settings.fleet.retries and due.task_id not in self._over
        if gives_up:
            self._crashes[due.task_id] = f"its worker died {self._lost[due]} times, last with {reason}"
            self._over.add(due.task_id)
            self._counts.tasks_done += 1
        self._play_again(due)
        if gives_up:
            self._give_up(due.task_id)

    def _give_up(self, task_id: str) -> None:
        """Records the rounds that are left as crashed, so that every task ends with all its rounds."""
        self._take_out(task_id)
        playing = set(self._playing.values())
        for due in list(self._missing(task_id)):
            if due not in playing:
                self._crash(due)
        self._count_given_up(task_id, self._crashes[task_id])

    def _crash(self, due: _Due) -> None:
        """Records a round of a task that is given up."""
        actor, task = self._settings.actor, self._jobs[due.task_id].task
        reason, name = self._crashes[due.task_id], actor.model or actor.kind
        crashed = crashed_trajectory(task, actor.label, name, due.attempt, reason)
        # The first try is no retry, and others had no try at all.
        retries = max(0, self._lost.pop(due, 0) - 1)
        self._count(self._journal.append_round(crashed.model_copy(update={"retries": retries})))

    def _count_given_up(self, task_id: str, reason: str) -> None:
        """Ends the run if successive tasks have met an error of this program or of the machine."""
        self._given_up.add(task_id)
        if len(self._given_up) >= _MAX_GIVEN_UP:
            raise UserError(f"{task_id}: {reason}, as for the tasks before it; see the log, then run again")

    # --- Judging and reflecting, in threads ---

    def _let_judge(self, played: Round) -> None:
        """Lets an episode be judged: for the first time, or again if no verdict came."""
        again = played.fate == "unjudged" and self._jobs[played.task_id].replays > 0
        if self._judge_config is not None and (played.awaits_verdict or again):
            assert self._judge  # Made here: threads would make one each.
            self._judged.add((played.task_id, played.attempt))
            self._submit(self._verdict, self._ask_judge, played)

    def _submit(
        self, handle: Callable[[Round, Future[Any]], None], ask: Callable[[Round], Any], played: Round
    ) -> None:
        """Asks a model about a round in a thread; what it answers is then handled."""
        self._pending[self._threads.submit(self._asked, ask, played)] = functools.partial(handle, played)

    def _asked(self, ask: Callable[[Round], Any], played: Round) -> Any:
        try:
            return ask(played)
        except Exception as error:
            try:
                return run_failure(error, self._workdir)
            except Exception:
                # Without an answer the run must not go on, nor take this for one. It may have ended already.
                if not self._closed:
                    traceback.print_exc()
                reason = f"{played.trajectory_id}: unexpected {type(error).__name__}; see the log"
                return RunFailure(reason, UserError.exit_code)

    def _ask_judge(self, played: Round) -> Trajectory:
        return with_verdict(self._journal.read(played), self._judge, self._images, self._redactor.text)

    def _verdict(self, played: Round, future: Future[Trajectory | RunFailure]) -> None:
        """Counts a verdict, and lets a task go on that has waited for it."""
        judged = future.result()
        self._judged.remove((played.task_id, played.attempt))
        if isinstance(judged, RunFailure):
            self._fail(judged)
            return
        self._count(played, -1)
        self._count(self._journal.append_round(judged))
        if played.task_id in self._held:
            self._go_on(played.task_id)

    def _reflect(self, played: Round) -> Reflected:
        reflections = self._journal.reflections[played.task_id]
        before = [one for attempt, one in sorted(reflections.items()) if attempt < played.attempt]
        guidance = before[-1].reflection.guidance if before else ""
        return reflect(self._journal.read(played), guidance, self._actor)

    def _reflected(self, played: Round, future: Future[Reflected | RunFailure]) -> None:
        reflected = future.result()
        if isinstance(reflected, RunFailure):
            self._fail(reflected)
            return
        self._journal.append(reflected)
        self._count(reflected)
        self._go_on(played.task_id)

    @functools.cached_property
    def _judge(self) -> Judge:
        assert self._judge_config is not None
        # A run whose verdict cannot be read is judged again when the run is resumed.
        return make_judge(self._judge_config, self._calls, keep_rejected=False)

    @functools.cached_property
    def _actor(self) -> ActorModel:
        return make_actor(self._settings.actor, self._calls)

    @functools.cached_property
    def _images(self) -> ImageStore:
        return ImageStore(self._workdir)

    @functools.cached_property
    def _redactor(self) -> Redactor:
        return Redactor(read_secrets(self._settings.secrets)[0], cards=True)

    # --- Counting and stopping ---

    def _count(self, record: Round | Reflected, times: int = 1) -> None:
        counts = self._counts
        usage = record.usage if isinstance(record, Reflected) else record
        counts.tokens += times * usage.tokens
        counts.cost += times * usage.cost
        if isinstance(record, Round):
            counts.rounds += times
            counts.successes += times * record.success
            counts.outcomes[record.outcome] += times
            self._steps += times * record.steps

    def _fail(self, failure: RunFailure) -> None:
        error = UserError(failure.reason)
        error.exit_code = failure.exit_code
        # Every other episode would meet the same error, so do not wait for running ones.
        if failure.exit_code == UserError.exit_code:
            raise error
        # The budget is spent, but nothing is broken: running episodes may finish if they need no more of it.
        self.error = self.error or error

    @property
    def is_stopping(self) -> bool:
        return self._stop.requested

    def drain(self) -> None:
        """Starts nothing more, and gives what runs some time."""
        if self._drain_until is None:
            seconds = self._settings.fleet.drain_seconds
            self._drain_until = self._now() + seconds
            print(f"stopping: {len(self._playing)} episodes may end in {seconds:.0f} s", file=sys.stderr)

    @property
    def is_drained(self) -> bool:
        """True if nothing runs any more, or its time is over."""
        over = self._drain_until is not None and self._now() >= self._drain_until
        return over or not self._pending

    @property
    def stopped(self) -> StoppedError:
        return StoppedError("every finished episode is kept", self._stop.cause)

    def wait_seconds(self) -> float:
        """Returns the seconds until there is something to do even if nothing ends."""
        now, times = self._now(), [self._now() + _STATUS_INTERVAL_S]
        if self._drain_until is not None:
            times.append(self._drain_until)
        elif self._idle and (wake := self._scheduler.wake_at()) is not None:
            times.append(wake)
        return max(0.0, min(times) - now)
