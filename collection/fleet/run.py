"""Parent process of a fleet: schedules rounds, counts results, replaces dead workers, shuts down."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from collection.agent.loop import crashed_trajectory
from collection.fleet.activity import WORKERS, Activity, WorkerReports
from collection.fleet.build import FleetConfig
from collection.fleet.journals import (
    FOLDER,
    JournalEntry,
    JournalIndex,
    append_record,
    new_journal,
    read_entry,
)
from collection.fleet.judging import JudgeDied, JudgeMessage, JudgeProcess
from collection.fleet.publishing import Publisher
from collection.fleet.rounds import Job, Reflected
from collection.fleet.scheduler import REFUSED, Scheduler
from collection.fleet.set_aside import SET_ASIDE, Refusals, SetAside, read_set_aside, write_set_aside
from collection.fleet.status import ProgressDisplay, RunClock, Status
from collection.fleet.worker import FILES, RoundRequest, RunFailure, check_models
from collection.fleet.worker_pool import LocalWorkerPool, Message, NotPlaced, WorkerDied, WorkerPool
from collection.llm.calls import CALLS, Calls, own_address, serve
from collection.tasks.websites import site_of
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.progress import Rate
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.journal import Journal
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
      seconds: wall-clock time of this run and of the runs that it resumed, up to their last save.
    """

    folder: Path
    reflections: list[Reflected]
    seconds: float

    def trajectories(self) -> Iterator[Trajectory]:
        """Sorted by id; read shard by shard, since a large run does not fit into memory."""
        return read_dataset(self.folder, Trajectory)


def run_tasks(jobs: Sequence[Job], workdir: Path, config: FleetConfig, stage: str) -> RunResult:
    """Plays all rounds of all jobs and writes the data set `workdir` (kind `trajectories`).

    Episodes on live pages are judged while others are played. Rounds that site, network or machine ended are
    played again when the run is resumed, if their job has `replays`.

    While it runs, the data set grows: readers see new episodes every `publish_s` seconds. In the end
    trajectories are sorted by id, so their order does not depend on the number of workers. Reflections, if
    any, are written to `reflections.jsonl`, and tasks that are left because their site refuses the run to
    `set_aside.jsonl`. Calling it again resumes.

    Args:
      stage: name shown with the progress.

    Raises:
      UserError: an error that the user can fix: a model that does not answer, before any worker starts; or
        from any worker (no browser, ...).
      StoppedError: a signal came; running episodes have ended or had their `drain_seconds`.
    """
    if config.settings.actor.kind == "scripted" and any(job.task.environment == "app" for job in jobs):
        raise UserError(
            "config.actor.kind is 'scripted', also where 'auto' finds no key: the scripted teacher knows "
            "MiniWoB++ alone; name a model, or a policy, for applications"
        )
    workdir.mkdir(parents=True, exist_ok=True)
    clock = RunClock(workdir / "elapsed.json")
    index = JournalIndex(workdir, judged=config.judge is not None)
    replayed = sum(index.reopen(job.task.task_id, job.replays) for job in jobs)
    # Ray's workers may be on other machines.
    host = own_address() if config.settings.fleet.engine == "ray" else "127.0.0.1"
    reports = WorkerReports()
    with Calls(workdir / CALLS) as calls, serve(calls, host, reports=reports) as address:
        config = dataclasses.replace(config, calls=address)
        if not all(job.is_over(index.successes(job.task.task_id)) for job in jobs):
            check_models(config, calls)
        if config.settings.fleet.retry_set_aside:
            (workdir / SET_ASIDE).unlink(missing_ok=True)
        publisher = Publisher(jobs, workdir, config.settings.actor, index, anew=replayed > 0)
        return _play(jobs, workdir, config, stage, index, publisher, clock, calls, reports)


def _play(
    jobs: Sequence[Job],
    workdir: Path,
    config: FleetConfig,
    stage: str,
    index: JournalIndex,
    publisher: Publisher,
    clock: RunClock,
    calls: Calls,
    reports: WorkerReports,
) -> RunResult:
    """Plays what `index` lacks, and publishes; see `run_tasks`."""
    pool = make_pool(workdir, config)
    with StopRequest() as stop:
        fleet = Fleet(jobs, workdir, config, index, pool, stop, calls)
        display = ProgressDisplay(workdir, stage, fleet.status())

        def show(status: Status) -> None:
            display.show(status)
            clock.tick()
            reports.write(workdir, fleet.activities(reports), calls)

        try:
            with publisher.publishing(config.settings.fleet.publish_s):
                try:
                    fleet.run(show)
                    display.finish(fleet.status())
                finally:
                    display.close()
                    fleet.close()
                    shutil.rmtree(workdir / FILES, ignore_errors=True)
                    (workdir / WORKERS).unlink(missing_ok=True)
                    clock.save()
        except (StoppedError, UserError, KeyboardInterrupt):
            # Later stages can use what there is; the same command goes on.
            publisher.try_to_publish()
            raise
        reflections = publisher.finish()
    return RunResult(workdir, reflections, clock.seconds)


def make_pool(workdir: Path, config: FleetConfig) -> WorkerPool:
    """Makes the pool that `fleet.engine` names.

    Raises:
      UserError: it is not installed.
    """
    if config.settings.fleet.engine == "local":
        return LocalWorkerPool(workdir, config)
    # Ray is an extra, and takes seconds to import.
    from collection.fleet.ray_pool import RayWorkerPool

    return RayWorkerPool(workdir, config)


class Fleet:
    """Plays jobs on a pool of workers until all are over.

    Args:
      index: of the records on disk; kept up to date.
      stop: when it is requested, nothing more starts.
      calls: those of the workers.
      now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        workdir: Path,
        config: FleetConfig,
        index: JournalIndex,
        pool: WorkerPool,
        stop: StopRequest,
        calls: Calls,
        now: Callable[[], float] = time.monotonic,
    ):
        self._workdir, self._config, self._pool, self._index = workdir, config, pool, index
        self._stop, self._calls, self._now = stop, calls, now
        self._jobs = {job.task.task_id: job for job in jobs}
        self._scheduler: Scheduler[str] = Scheduler(config.settings.fleet)
        self._journals: dict[int, str] = {}  # Worker -> its journal.
        self._unused: list[str] = []  # Journals of workers that have never run.
        self._playing: dict[int, str] = {}  # Busy worker -> task id.
        self._deaths: Counter[str] = Counter()  # Task id -> workers that died playing it.
        self._lost: Counter[str] = Counter()  # The same, in its current round.
        self._refusals = Refusals(now())
        self._set_aside = read_set_aside(workdir)
        self._given_up: set[str] = set()  # Tasks, since the last round that was played.
        self._error: UserError | None = None
        self._drain_until: float | None = None
        self._counts = Status(tasks=len(self._jobs), workers=config.settings.fleet.workers)
        self._steps, self._rate = 0, Rate(0, now())
        self._judge = JudgeProcess(workdir, config, config.settings.fleet.judgements, pool.wake)
        self._held: set[str] = set()  # Tasks whose next round waits for a verdict.
        for task_id, job in self._jobs.items():
            for entry in index.of(task_id):
                self._count(entry)
                if self._is_unjudged(entry):
                    self._judge.submit(entry)
            if job.needs_verdicts and any(map(index.awaits_verdict, index.rounds(task_id))):
                self._held.add(task_id)
            elif job.is_over(index.successes(task_id)):
                self._counts.tasks_done += 1
            elif task_id in self._set_aside:
                self._counts.set_aside[self._set_aside[task_id].site] += 1
            else:
                self._scheduler.add(task_id, _site(job))
        # Steps of earlier runs must not count for the speed of this one.
        self._steps, self._rate = 0, Rate(0, now())

    def run(self, show: Callable[[Status], None] = lambda status: None) -> None:
        """Plays until every job is over.

        Raises:
          UserError, StoppedError: as `run_tasks`.
        """
        while self._scheduler.waiting or self._scheduler.running or self._judge.waiting:
            if not self._is_stopping():
                self._start_rounds()
            for worker, message in self._pool.wait(self._wait_seconds()):
                self._handle(worker, message)
            for judged in self._judge.receive():
                self._handle_verdict(judged)
            show(self.status())

    def close(self) -> None:
        """Ends the workers, idle ones in order and busy ones by force; their browsers end with them."""
        self._judge.close()
        self._pool.close(frozenset(self._journals.keys() - self._playing.keys()))

    def status(self) -> Status:
        now = self._now()
        self._rate.update(self._steps, now)
        self._counts.steps_per_second = self._rate.per_second()
        self._counts.busy, self._counts.judging = len(self._playing), self._judge.waiting
        self._counts.closed_sites = self._scheduler.closed(now)
        self._counts.outages = self._calls.outages()
        return self._counts

    def activities(self, reports: WorkerReports) -> Iterator[Activity]:
        """Yields what each worker does now."""
        outages = self._calls.outages()
        for worker, journal in self._journals.items():
            name, task_id = Path(journal).stem, self._playing.get(worker)
            if task_id is None:
                yield Activity(name)
                continue
            # It starts, until a report says more.
            attempt = len(self._index.successes(task_id)) + 1
            assigned = Activity(name, task_id, self._jobs[task_id].task.site, attempt, waiting_for="browser")
            yield reports.activity(assigned, outages)

    def _is_stopping(self) -> bool:
        """True if nothing more must start; raises the reason once nothing runs or draining is over."""
        if not self._stop.requested and self._error is None:
            return False
        now = self._now()
        if self._drain_until is None:
            seconds = self._config.settings.fleet.drain_seconds
            self._drain_until = now + seconds
            print(f"stopping: {len(self._playing)} episodes may end in {seconds:.0f} s", file=sys.stderr)
        if not (self._playing or self._judge.waiting) or now >= self._drain_until:
            raise self._error or StoppedError("every finished episode is kept", self._stop.cause)
        return True

    def _wait_seconds(self) -> float:
        """Returns the seconds until there is something to do even if no worker reports."""
        now, times = self._now(), [self._now() + _STATUS_INTERVAL_S]
        if self._drain_until is not None:
            times.append(self._drain_until)
        elif (
            len(self._playing) < self._config.settings.fleet.workers
            and (wake := self._scheduler.wake_at()) is not None
        ):
            times.append(wake)
        return max(0.0, min(times) - now)

    def _start_rounds(self) -> None:
        """Assigns rounds until all workers are busy or no job may start; starts workers only when needed."""
        while len(self._playing) < self._config.settings.fleet.workers:
            task_id = self._scheduler.next(self._now())
            if task_id is None:
                return
            idle = self._journals.keys() - self._playing.keys()
            worker = min(idle) if idle else self._start_worker()
            self._playing[worker] = task_id
            request = RoundRequest(self._jobs[task_id], self._index.of(task_id), self._lost[task_id])
            self._pool.submit(worker, request)

    def _start_worker(self) -> int:
        journal = self._unused.pop() if self._unused else new_journal(self._workdir)
        worker = self._pool.start(journal)
        self._journals[worker] = journal
        return worker

    def _handle(self, worker: int, message: Message) -> None:
        if isinstance(message, WorkerDied):
            self._handle_death(worker, message.reason)
            return
        task_id = self._playing.pop(worker)
        if isinstance(message, NotPlaced):
            self._pool.kill(worker)
            self._unused.append(self._journals.pop(worker))
            self._scheduler.ended(task_id, self._now())
            self._scheduler.add(task_id, _site(self._jobs[task_id]), first=True)
            return
        if isinstance(message, RunFailure):
            self._scheduler.ended(task_id, self._now())
            self._scheduler.add(task_id, _site(self._jobs[task_id]))
            self._fail(message)
            return
        self._add(message.entries)
        self._continue_job(task_id, message.entries)
        if message.error:
            self._count_given_up(task_id, message.error)
        else:
            self._given_up.clear()

    def _fail(self, message: RunFailure) -> None:
        error = UserError(message.reason)
        error.exit_code = message.exit_code
        # Every other episode would meet the same error, so do not wait for running ones.
        if message.exit_code == UserError.exit_code:
            raise error
        # The budget is spent, but nothing is broken: running episodes may finish if they need no more of it.
        self._error = self._error or error

    def _handle_verdict(self, message: JudgeMessage) -> None:
        if isinstance(message, RunFailure):
            self._fail(message)
        elif isinstance(message, JudgeDied):
            judged = self._index.scan(self._judge.journal)
            for entry in judged:
                self._add_verdict(entry)
            self._judge.restart(judged=bool(judged))
        else:
            self._index.add(message)
            self._add_verdict(message)

    def _add_verdict(self, judged: JournalEntry) -> None:
        """Counts a verdict, and lets a task go on that has waited for it."""
        self._count(self._judge.done(judged), -1)
        self._count(judged)
        if judged.task_id in self._held:
            self._held.remove(judged.task_id)
            self._plan(judged.task_id)

    def _plan(self, task_id: str, first: bool = True) -> None:
        """Schedules the next round of a task, or counts the task as done."""
        job = self._jobs[task_id]
        if job.is_over(self._index.successes(task_id)):
            self._counts.tasks_done += 1
        elif task_id not in self._set_aside:
            self._scheduler.add(task_id, _site(job), first)

    def _is_unjudged(self, entry: JournalEntry) -> bool:
        """True for an episode that a judge is to see: for the first time, or again where no verdict came."""
        if entry.round is None or self._config.judge is None:
            return False
        again = entry.round.fate == "unjudged" and self._jobs[entry.task_id].replays > 0
        return entry.round.awaits_verdict or again

    def _add(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            if self._index.add(entry):
                self._count(entry)
                if self._is_unjudged(entry):
                    self._judge.submit(entry)

    def _count(self, entry: JournalEntry, times: int = 1) -> None:
        counts = self._counts
        counts.tokens += times * entry.tokens
        counts.cost += times * entry.cost
        if entry.round is not None:
            counts.rounds += times
            counts.successes += times * entry.round.success
            counts.outcomes[entry.round.outcome] += times
            self._steps += times * entry.round.steps

    def _continue_job(self, task_id: str, entries: Sequence[JournalEntry]) -> None:
        """Schedules the next round of a task, counts the task as done, or sets it aside."""
        self._lost.pop(task_id, None)
        job = self._jobs[task_id]
        site = _site(job)
        played = next((entry for entry in entries if entry.round is not None), None)
        outcome = played.round.outcome if played is not None and played.round is not None else None
        refused = bool(site) and outcome in REFUSED  # Local pages do not refuse episodes.
        disallowed = self._robots_refusal(played) if refused and played is not None else ""
        if disallowed:
            refused, outcome = False, None  # The site was not asked for its page, so it needs no pause.
        self._scheduler.ended(task_id, self._now(), outcome)
        if site and outcome is not None:
            self._refusals.count(task_id, site, outcome, self._now())
        if disallowed and not job.is_over(self._index.successes(task_id)):
            self._set_aside_tasks([task_id], site, disallowed)
        elif job.needs_verdicts and played is not None and self._index.awaits_verdict(played):
            self._held.add(task_id)
        else:
            # First in its queue, so that tasks finish early instead of all at the end; but a site that
            # refuses one is tried with others.
            self._plan(task_id, first=not refused)
        if refused and played is not None:
            self._set_refused_aside(task_id, site, played)

    def _set_refused_aside(self, task_id: str, site: str, last: JournalEntry) -> None:
        """Sets a task or all tasks of its site aside if they are refused too often; `last` is an episode."""
        limit = self._config.settings.fleet.max_refusals or math.inf
        if self._refusals.of_site(site) >= limit:
            what, tasks = site, self._scheduler.remove(site)
        elif self._refusals.of_task(task_id) >= limit:
            what, tasks = task_id, self._scheduler.remove(site, task_id)
        else:
            return
        record = self._read_round(last)
        last_refusal = ": ".join(filter(None, (record.outcome, record.detail)))
        reason = f"{what} was refused {limit} times in a row, the last was {last_refusal}"
        self._set_aside_tasks(tasks, site, reason)

    def _robots_refusal(self, played: JournalEntry) -> str:
        """Returns the reason if robots.txt disallows the start page of this episode's task; else empty."""
        record = self._read_round(played)
        disallowed = any(one.kind == "robots_refused" for one in record.incidents)
        return f"{record.task.task_id}: {record.detail}" if disallowed else ""

    def _read_round(self, entry: JournalEntry) -> Trajectory:
        record = read_entry(self._workdir, entry)
        assert isinstance(record, Trajectory)
        return record

    def _set_aside_tasks(self, tasks: Sequence[str], site: str, reason: str) -> None:
        for task_id in tasks:
            rounds = len(self._index.rounds(task_id))
            self._set_aside[task_id] = SetAside(task_id=task_id, site=site, rounds=rounds, reason=reason)
        self._counts.set_aside[site] += len(tasks)
        write_set_aside(self._workdir, self._set_aside.values())
        if tasks:
            print(f"set aside, {len(tasks)} of {site}: {reason}", file=sys.stderr)

    def _handle_death(self, worker: int, reason: str) -> None:
        """Forgets a dead worker; schedules its round again, or gives the task up."""
        self._pool.kill(worker)
        task_id = self._playing.pop(worker, None)
        # It may have finished the round and died before reporting it.
        entries = self._index.scan(self._journals.pop(worker))
        for entry in entries:
            self._count(entry)
            if self._is_unjudged(entry):
                self._judge.submit(entry)
        self._counts.deaths += 1
        if task_id is None:
            return
        job = self._jobs[task_id]
        if any(entry.round is not None for entry in entries):
            self._continue_job(task_id, entries)
            return
        # Without an outcome: a worker's death says nothing about the site.
        self._scheduler.ended(task_id, self._now())
        self._deaths[task_id] += 1
        self._lost[task_id] += 1
        if self._deaths[task_id] <= self._config.settings.fleet.retries:
            self._scheduler.add(task_id, _site(job))
        else:
            self._give_up(job, f"its worker died {self._deaths[task_id]} times, last with {reason}")

    def _give_up(self, job: Job, reason: str) -> None:
        """Records the rounds that are left as crashed, so that every task ends with all its rounds."""
        task_id, actor, name = job.task.task_id, self._config.settings.actor, new_journal(self._workdir)
        with Journal(self._workdir / FOLDER / name) as journal:
            while not job.is_over(successes := self._index.successes(task_id)):
                trajectory = crashed_trajectory(
                    job.task, actor.label, actor.model or actor.kind, len(successes) + 1, reason
                )
                # The first try is no retry, and later rounds had no try at all.
                retries = max(0, self._lost.pop(task_id, 0) - 1)
                trajectory = trajectory.model_copy(update={"retries": retries})
                self._add([append_record(trajectory, journal, name)])
        self._counts.tasks_done += 1
        self._count_given_up(task_id, reason)

    def _count_given_up(self, task_id: str, reason: str) -> None:
        """Ends the run if successive tasks have met an error of this program or of the machine."""
        self._given_up.add(task_id)
        if len(self._given_up) >= _MAX_GIVEN_UP:
            raise UserError(f"{task_id}: {reason}, as for the tasks before it; see the log, then run again")


def _site(job: Job) -> str:
    """Site whose limits a job counts against; local pages have none."""
    return site_of(job.task.website) if job.task.environment == "web" else ""
