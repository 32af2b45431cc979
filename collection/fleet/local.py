"""The local engine: a pool of spawned processes on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from collection.browser.processes import reap_orphans
from collection.fleet.engine import Died, Message
from collection.worker import Order, WorkerConfig, work

_STOP_S = 10.0


@dataclasses.dataclass(frozen=True)
class _Process:
    process: Any
    link: Connection


class LocalEngine:
    """`collection.fleet.engine.Engine` with a process and a pipe for each worker."""

    def __init__(self, workdir: Path, config: WorkerConfig):
        self._workdir, self._config = workdir, config
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, _Process] = {}
        self._started = 0
        self._bell, self._button = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._button, False)

    def start(self, journal: str) -> int:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work, args=(theirs, self._workdir, journal, self._config), name="browser-worker"
        )
        process.start()
        theirs.close()
        self._started += 1
        self._workers[self._started] = _Process(process, ours)
        return self._started

    def give(self, worker: int, order: Order) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._workers[worker].link.send(order)

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        numbers: dict[Any, int] = {}
        for number, worker in self._workers.items():
            numbers[worker.link] = numbers[worker.process.sentinel] = number
        ready = wait([*numbers, self._bell], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 1024)
        told = {numbers[handle]: None for handle in ready if handle in numbers}
        return [(number, message) for number in told if (message := self._message(number)) is not None]

    def wake(self) -> None:
        # A full pipe wakes as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._button, b"!")

    def kill(self, worker: int) -> None:
        self._end(self._workers.pop(worker))
        reap_orphans()

    def close(self, idle: frozenset[int]) -> None:
        for number in idle & self._workers.keys():
            self._workers[number].link.close()
        for number in idle & self._workers.keys():
            self._workers[number].process.join(_STOP_S)
        for worker in self._workers.values():
            self._end(worker)
        self._workers.clear()
        reap_orphans()
        for descriptor in (self._bell, self._button):
            os.close(descriptor)

    def _message(self, number: int) -> Message | None:
        worker = self._workers[number]
        try:
            return worker.link.recv() if worker.link.poll() else None
        except (EOFError, ConnectionResetError):
            worker.process.join(_STOP_S)
            return Died(f"exit code {worker.process.exitcode}")

    def _end(self, worker: _Process) -> None:
        """Ends a worker and, through its process group, whatever it had started."""
        worker.link.close()
        if worker.process.is_alive():
            try:
                os.killpg(worker.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                worker.process.kill()  # It has not come to make its group yet.
        worker.process.join()
        worker.process.close()
