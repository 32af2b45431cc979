"""Many tasks at once: a pool of worker processes with a browser each.

A round is in a worker's journal, on disk, before anything builds on it, so the same call after any
interruption goes on where it stopped; journals become one data set at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from collection.agent.loop import crashed_trajectory
from collection.llm.config import ActorConfig
from collection.rounds import History, Job, Reflected
from collection.worker import Failed, Finished, Kept, WorkerConfig, work
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import write_dataset

_STOP_S = 10.0
_SAVE_S = 5.0
_HOPELESS = 3  # So many tasks given up in a row: something is wrong with all of them.


@dataclasses.dataclass(frozen=True)
class FleetConfig:
    """How many work at once.

    Attributes:
      workers: processes, each with a browser.
      retries: how often a task is begun again after its worker died.
    """

    workers: int
    retries: int
    worker: WorkerConfig

    def with_actor(self, actor: ActorConfig) -> FleetConfig:
        """The same with another actor, for example one that has been started by now."""
        return dataclasses.replace(self, worker=dataclasses.replace(self.worker, actor=actor))


@dataclasses.dataclass(frozen=True)
class Played:
    """What a run of the fleet has left on disk.

    Attributes:
      trajectories: sorted by id.
      reflections: sorted by task and attempt.
      seconds: wall-clock, of this run and those it resumed as far as they could tell.
    """

    trajectories: list[Trajectory]
    reflections: list[Reflected]
    seconds: float


@dataclasses.dataclass
class _Worker:
    process: Any
    link: Connection
    job: Job | None = None


def run_tasks(jobs: Sequence[Job], workdir: Path, config: FleetConfig, stage: str) -> Played:
    """Plays all rounds of all jobs and writes the data set `workdir` (kind `trajectories`).

    `reflections.jsonl` is written beside it when there are reflections. Trajectories are sorted by
    id, so the order does not depend on the number of workers. Calling it again resumes.

    Args:
      stage: name shown with the progress.

    Raises:
      UserError: what a user can mend (no browser, no endpoint, ...), told by whichever worker met it.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    clock = _Clock(workdir / "elapsed.json")
    fleet = _Fleet(jobs, workdir, config, stage, clock)
    try:
        fleet.run()
    finally:
        fleet.stop()
        clock.save()
    trajectories, reflections = _publish(jobs, workdir, config)
    return Played(trajectories, reflections, clock.seconds)


def load_histories(workdir: Path) -> dict[str, History]:
    """What the journals hold, by task. A record that was written twice counts once.

    Raises:
      UserError: a damaged journal, or one of another version.
    """
    histories: dict[str, History] = {}
    for path in sorted((workdir / "journal").glob("*.jsonl")):
        for line in read_journal(path):
            record = _parse(path, line)
            if isinstance(record, Trajectory):
                history = histories.setdefault(record.task.task_id, History())
                history.trajectories.setdefault(record.attempt, record)
            else:
                reflection = record.reflection
                history = histories.setdefault(reflection.task_id, History())
                history.reflections.setdefault(reflection.attempt, record)
    return histories


def _parse(path: Path, line: bytes) -> Trajectory | Reflected:
    try:
        is_reflection = line.startswith(b'{"reflection":')
        return (Reflected if is_reflection else Trajectory).model_validate_json(line)
    except ValidationError as error:
        raise UserError(
            f"{path}: written by another version ({error.error_count()} errors); use another --workdir"
        ) from error


class _Clock:
    """Wall-clock seconds over resumed runs; what passes between two saves is lost by a kill."""

    def __init__(self, path: Path):
        self._path = path
        self._before = json.loads(path.read_text())["seconds"] if path.exists() else 0.0
        self._start = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._start

    def tick(self) -> None:
        if time.monotonic() - self._saved >= _SAVE_S:
            self.save()

    def save(self) -> None:
        self._saved = time.monotonic()
        write_atomic(self._path, json.dumps({"seconds": self.seconds}).encode())


class _Fleet:
    """The parent's side: hands out jobs, counts rounds, replaces dead workers."""

    def __init__(
        self,
        jobs: Sequence[Job],
        workdir: Path,
        config: FleetConfig,
        stage: str,
        clock: _Clock,
    ):
        self._workdir, self._config, self._histories = workdir, config, load_histories(workdir)
        done = [job for job in jobs if job.is_over(self._history(job).successes)]
        self._pending = deque(job for job in jobs if not job.is_over(self._history(job).successes))
        self._finished, self._rounds = len(done), 0
        self._deaths: dict[str, int] = {}
        self._given_up = 0
        self._workers: list[_Worker] = []
        self._context = multiprocessing.get_context("spawn")
        self._progress = Progress(workdir, stage, total=len(jobs), done=len(done))
        self._clock = clock

    def run(self) -> None:
        for _ in range(min(self._config.workers, len(self._pending))):
            self._workers.append(self._start())
        while self._pending or any(worker.job for worker in self._workers):
            self._hand_out()
            by_handle: dict[Any, _Worker] = {}
            for worker in self._workers:
                by_handle[worker.link] = by_handle[worker.process.sentinel] = worker
            for worker in {
                id(by_handle[handle]): by_handle[handle] for handle in wait(list(by_handle))
            }.values():
                self._attend(worker)
        self._progress.close(f"{self._rounds} episodes")

    def stop(self) -> None:
        """Ends the workers: idle ones by themselves, others by force; their browsers end with them."""
        for worker in self._workers:
            if worker.job is None:
                worker.link.close()
        for worker in self._workers:
            if worker.job is None:
                worker.process.join(_STOP_S)
            _kill(worker)
        self._workers.clear()

    def _history(self, job: Job) -> History:
        return self._histories.setdefault(job.task.task_id, History())

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        journal = _new_journal(self._workdir)
        process = self._context.Process(
            target=work, args=(theirs, self._workdir, journal, self._config.worker), name="browser-worker"
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.job is None and self._pending:
                worker.job = self._pending.popleft()
                # If it has died meanwhile, that is noticed, and the job put back, in the next round.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    worker.link.send((worker.job, self._history(worker.job)))

    def _attend(self, worker: _Worker) -> None:
        """Reads what a worker tells until it has nothing more to say."""
        try:
            while worker.link.poll():
                self._hear(worker, worker.link.recv())
        except (EOFError, ConnectionResetError):
            self._bury(worker)

    def _hear(self, worker: _Worker, message: Kept | Finished | Failed) -> None:
        if isinstance(message, Failed):
            raise UserError(message.reason)
        if isinstance(message, Kept):
            self._rounds += 1
        else:
            worker.job = None
            self._finished += 1
            self._given_up = 0
        self._progress.update(self._finished, f"{self._rounds} episodes")
        self._clock.tick()

    def _bury(self, worker: _Worker) -> None:
        """Replaces a dead worker and puts its job back, or gives the job up."""
        _kill(worker)
        self._workers.remove(worker)
        job = worker.job
        if job is not None:
            # What it had finished is in its journal, whether or not it could still tell.
            self._histories[job.task.task_id] = load_histories(self._workdir).get(job.task.task_id, History())
            deaths = self._deaths[job.task.task_id] = self._deaths.get(job.task.task_id, 0) + 1
            if job.is_over(self._history(job).successes):
                self._finished += 1
            elif deaths <= self._config.retries:
                self._pending.append(job)
            else:
                self._give_up(
                    job, f"its worker died {deaths} times, last with exit code {worker.process.exitcode}"
                )
        if self._pending:
            self._workers.append(self._start())

    def _give_up(self, job: Job, reason: str) -> None:
        """Records the rounds that cannot be played as crashed, so that every job ends."""
        history = self._history(job)
        actor = self._config.worker.actor
        with Journal(self._workdir / "journal" / _new_journal(self._workdir)) as journal:
            while not job.is_over(history.successes):
                attempt = len(history.successes) + 1
                trajectory = crashed_trajectory(
                    job.task, actor.label, actor.model or actor.kind, attempt, reason
                )
                journal.append(trajectory.model_dump_json().encode())
                history.trajectories[attempt] = trajectory
        self._finished += 1
        self._given_up += 1
        if self._given_up >= _HOPELESS:
            raise UserError(
                f"{job.task.task_id}: {reason}, as for the tasks before it; see the log, then run again"
            )


def _new_journal(workdir: Path) -> str:
    """A name of its own for each writer: no two ever share a journal, so none has to be repaired."""
    folder = workdir / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(path.stem) for path in folder.glob("*.jsonl")), default=0) + 1
    name = f"{number:06d}.jsonl"
    (folder / name).touch(exist_ok=False)
    return name


def _kill(worker: _Worker) -> None:
    """Ends a worker and, through its process group, whatever it had started."""
    worker.link.close()
    if worker.process.is_alive():
        try:
            os.killpg(worker.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            worker.process.kill()  # It has not come to make its group yet.
    worker.process.join()


def _publish(
    jobs: Iterable[Job], workdir: Path, config: FleetConfig
) -> tuple[list[Trajectory], list[Reflected]]:
    wanted = {job.task.task_id: job for job in jobs}
    histories = {task: history for task, history in load_histories(workdir).items() if task in wanted}
    trajectories = sorted(
        (one for history in histories.values() for one in history.trajectories.values()),
        key=lambda one: one.trajectory_id,
    )
    reflected = [
        one for _, history in sorted(histories.items()) for _, one in sorted(history.reflections.items())
    ]
    if reflected:
        lines = [one.reflection.model_dump_json() + "\n" for one in reflected]
        write_atomic(workdir / "reflections.jsonl", "".join(lines).encode())
    actor = config.worker.actor
    provenance = {
        "actor": actor.label,
        "kind": actor.kind,
        "tasks": len(wanted),
        "reflections": len(reflected),
    }
    write_dataset(workdir, trajectories, "trajectories", provenance)
    return trajectories, reflected
