"""Pools of workers: their interface, and the pool of processes on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from collection.browser.driver import find_programs
from collection.browser.processes import reap_orphans
from collection.fleet.worker import FleetConfig, RoundDone, RoundRequest, RunFailure, work

_STOP_S = 10.0  # Time for an idle worker to close its browser, whose processes get up to 5 s to end.


@dataclasses.dataclass(frozen=True)
class WorkerDied:
    """A worker is gone. Its journal contains what it had finished, reported or not."""

    reason: str


@dataclasses.dataclass(frozen=True)
class NotPlaced:
    """A cluster has had no room for a worker for a while; it has not seen the round that it was given."""


Message = RoundDone | RunFailure | WorkerDied | NotPlaced


class WorkerPool(Protocol):
    """Starts workers; worker numbers are never reused."""

    def start(self, journal: str) -> int:
        """Starts a worker that writes that journal."""
        ...

    def submit(self, worker: int, request: RoundRequest) -> None:
        """Gives an idle worker one round to play; if it has died meanwhile, `wait` reports that."""
        ...

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """Returns messages of workers as soon as there is one, or none after that time or on `wake`."""
        ...

    def wake(self) -> None:
        """Makes `wait` return; safe in a signal handler."""
        ...

    def kill(self, worker: int) -> None:
        """Kills a worker with all processes that it has started; also cleans up after a dead one."""
        ...

    def close(self, idle: frozenset[int]) -> None:
        """Ends all workers: those in `idle` in order, others at once."""
        ...


@dataclasses.dataclass(frozen=True)
class _WorkerProcess:
    process: Any
    link: Connection


class LocalWorkerPool:
    """`WorkerPool` with a spawned process and a pipe for each worker.

    Raises:
      UserError: from `start`, if Chromium or its driver is not installed.
    """

    def __init__(self, workdir: Path, config: FleetConfig):
        self._workdir, self._config = workdir, config
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, _WorkerProcess] = {}
        self._started = 0
        # A signal handler may only write a byte; `wait` watches the other end with the workers' pipes.
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def start(self, journal: str) -> int:
        # Checked here, because every worker would retry several times and report the same error.
        find_programs(self._config.settings.browser)
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work, args=(theirs, self._workdir, journal, self._config), name="browser-worker"
        )
        process.start()
        theirs.close()
        self._started += 1
        self._workers[self._started] = _WorkerProcess(process, ours)
        return self._started

    def submit(self, worker: int, request: RoundRequest) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._workers[worker].link.send(request)

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        numbers: dict[Any, int] = {}
        for number, worker in self._workers.items():
            numbers[worker.link] = numbers[worker.process.sentinel] = number
        ready = wait([*numbers, self._wake_reader], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 1024)
        # A worker that ends makes both its pipe and its sentinel ready, but has one message.
        reporting = {numbers[handle]: None for handle in ready if handle in numbers}
        return [(number, message) for number in reporting if (message := self._message(number)) is not None]

    def wake(self) -> None:
        # A full pipe also wakes.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b"!")

    def kill(self, worker: int) -> None:
        self._end(self._workers.pop(worker))
        reap_orphans()

    def close(self, idle: frozenset[int]) -> None:
        # Closing its pipe ends an idle worker; closing all before the first join ends them in parallel.
        for number in idle & self._workers.keys():
            self._workers[number].link.close()
        for number in idle & self._workers.keys():
            self._workers[number].process.join(_STOP_S)
        for worker in self._workers.values():
            self._end(worker)
        self._workers.clear()
        reap_orphans()
        for descriptor in (self._wake_reader, self._wake_writer):
            os.close(descriptor)

    def _message(self, number: int) -> Message | None:
        worker = self._workers[number]
        try:
            return worker.link.recv() if worker.link.poll() else None
        except (EOFError, ConnectionResetError):
            worker.process.join(_STOP_S)
            return WorkerDied(f"exit code {worker.process.exitcode}")

    def _end(self, worker: _WorkerProcess) -> None:
        """Ends a worker and, through its process group, all processes that it has started."""
        worker.link.close()
        if worker.process.is_alive():
            try:
                os.killpg(worker.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                worker.process.kill()  # It has not created its process group yet.
        worker.process.join()
        worker.process.close()
