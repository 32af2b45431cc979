"""Where workers run: a process for each on this machine, or an actor for each on Ray.

Both give a future for each episode. A worker that is lost is an exception of its future, and the next episode
of its slot starts another one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from collection.browser.chromium import find_programs, reap_orphans
from collection.fleet.config import EpisodeSettings
from collection.fleet.worker import Episode, PlayedEpisode, RunFailure, Worker, credentials, run_failure
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.images import ImageStore

W = TypeVar("W")

_STOP_S = 10.0  # Time for an idle worker to close its browser, whose processes get up to 5 s to end.
_PLACE_S = 60.0  # Time for a cluster to make room for an actor, before another plays its episode.
_WRITERS = 8  # Threads that write screenshots, each of which is synced to disk.


class WorkerDiedError(Exception):
    """A worker is gone, and with it the episode that it played."""


class NotPlacedError(Exception):
    """A cluster has had no room for a worker for a while; it has not seen its episode."""


class Threads:
    """Calls functions in at most `limit` threads.

    Unlike those of an executor they do not keep the process from its end: some wait for a model for hours.
    """

    def __init__(self, limit: int):
        self._limit, self._started, self._idle = limit, 0, threading.Semaphore(0)
        # None ends a thread.
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._waiting = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.put((future, function, arguments))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._run, daemon=True).start()
        return future

    def close(self) -> None:
        """Ends the threads, each after the call that it is in."""
        for _ in range(self._started):
            self._waiting.put(None)

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, function, arguments = waiting
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*arguments))
                except BaseException as error:
                    future.set_exception(error)
            # Neither is kept until the next call.
            del waiting, future, arguments
            self._idle.release()


class Pool(Generic[W]):
    """A worker for each slot, which starts with the slot's first episode.

    Attributes:
      shares_disk: workers write to the workdir of a run themselves.
    """

    shares_disk = True

    def __init__(self, settings: EpisodeSettings):
        self._settings, self._workers = settings, dict[int, W]()
        self._threads = Threads(settings.fleet.workers)

    def submit(self, slot: int, episode: Episode) -> Future[PlayedEpisode | RunFailure]:
        """Lets the worker of a slot, which must be idle, play an episode.

        Returns:
          A future, which may raise `WorkerDiedError` or `NotPlacedError`.

        Raises:
          UserError: no worker can be started.
        """
        if slot not in self._workers:
            self._workers[slot] = self._start(slot)
        return self._threads.submit(self._play, slot, self._workers[slot], episode)

    def has_worker(self, slot: int) -> bool:
        return slot in self._workers

    def replace(self, slot: int) -> None:
        """Ends the worker of a slot with all that it has started; also cleans up after a dead one."""
        if slot in self._workers:
            self._kill(self._workers.pop(slot))
        reap_orphans()

    def close(self, idle: Collection[int]) -> None:
        """Ends all workers: those in `idle` in order, others at once."""
        self._end([self._workers.pop(slot) for slot in idle if slot in self._workers])
        while self._workers:
            self._kill(self._workers.popitem()[1])
        self._threads.close()
        reap_orphans()

    def _start(self, slot: int) -> W:
        raise NotImplementedError

    def _play(self, slot: int, worker: W, episode: Episode) -> PlayedEpisode | RunFailure:
        raise NotImplementedError

    def _kill(self, worker: W) -> None:
        raise NotImplementedError

    def _end(self, workers: Collection[W]) -> None:
        raise NotImplementedError


def make_pool(settings: EpisodeSettings) -> Pool[Any]:
    """Makes the pool that `fleet.engine` names.

    Raises:
      UserError: Ray is not installed, or there is no cluster.
    """
    return LocalPool(settings) if settings.fleet.engine == "local" else RayPool(settings)


# --- This machine ---


class _Process:
    def __init__(self, slot: int, settings: EpisodeSettings):
        context = multiprocessing.get_context("spawn")
        self.link, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, slot, settings), name="browser-worker")
        self.process.start()
        # Then its end is the end of the link. An executor keeps both ends, and waits for ever for the rest
        # of what a worker was sending when it was killed.
        theirs.close()


def _work(link: Connection, slot: int, settings: EpisodeSettings) -> None:
    """Plays the episodes that come from `link` until it closes; the target of a worker's process."""
    # Own process group: Ctrl-C reaches only the parent, and the parent can kill a worker with its children.
    os.setpgrp()
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        return  # The parent ended before `die_with_parent`; its episode may still be in the pipe.
    with (
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
        contextlib.closing(Worker(slot, settings)) as worker,
    ):
        while True:
            link.send(worker.play(link.recv()))


class LocalPool(Pool[_Process]):
    """A spawned process and a pipe for each worker."""

    def _start(self, slot: int) -> _Process:
        # Checked here, because every worker would retry several times and report the same error.
        find_programs(self._settings.browser)
        return _Process(slot, self._settings)

    def _play(self, slot: int, worker: _Process, episode: Episode) -> PlayedEpisode | RunFailure:
        try:
            worker.link.send(episode)
            return worker.link.recv()
        except (EOFError, OSError):
            worker.process.join(_STOP_S)
            raise WorkerDiedError(f"exit code {worker.process.exitcode}") from None

    def _kill(self, worker: _Process) -> None:
        if worker.process.is_alive():
            try:
                os.killpg(worker.process.pid or 0, signal.SIGKILL)
            except ProcessLookupError:
                worker.process.kill()  # It has not created its process group yet.
        # The link stays open: a thread may still be reading from it.
        worker.process.join()

    def _end(self, workers: Collection[_Process]) -> None:
        # Closing its link ends an idle worker; closing all before the first join ends them in parallel.
        for worker in workers:
            worker.link.close()
        for worker in workers:
            worker.process.join(_STOP_S)
            self._kill(worker)


# --- Ray ---


class RayPool(Pool[Any]):
    """An actor for each worker, on machines that share nothing with this one.

    Ray places them and carries what they play back to this process, which alone writes the workdir. Ray's
    retries stay off: what had not arrived when an actor was lost is played again.

    Raises:
      UserError: Ray is not installed, there is no cluster at the address, or it refuses the actors' options.
    """

    shares_disk = False

    def __init__(self, settings: EpisodeSettings):
        super().__init__(settings)
        try:
            # By name, so that type checkers also work without Ray, which is an extra and takes seconds.
            self._errors, self._ray = map(importlib.import_module, ("ray.exceptions", "ray"))
        except ImportError as error:
            raise UserError(
                "config.fleet.engine=ray: Ray is not installed; pip install '.[fleet]', or take local"
            ) from error
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect()
        # As plain values: Ray knows no frozen mappings.
        options = {"num_cpus": 1, **json.loads(json.dumps(dict(settings.fleet.ray_actor)))}
        try:
            make = self._ray.remote(**options, max_restarts=0, max_task_retries=0)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"config.fleet.ray_actor={options}: Ray refuses it ({_one_line(error)})"
            ) from error
        self._actor = make(Worker)
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="images")

    def close(self, idle: Collection[int]) -> None:
        super().close(idle)
        self._writers.shutdown()
        if self._own:
            self._ray.shutdown()

    def _connect(self) -> None:
        options: dict[str, Any] = {"log_to_driver": True, "logging_level": "warning"}
        address, workers = os.environ.get("RAY_ADDRESS"), self._settings.fleet.workers
        if not address:
            # Our own Ray, on this machine only.
            options |= {"num_cpus": workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            self._ray.init(**options)
        except Exception as error:  # Ray has no error type for a node that does not start.
            raise UserError(
                f"RAY_ADDRESS={address or ''}: no Ray there ({_one_line(error)}); start one with "
                "`ray start --head`, or unset it"
            ) from error

    def _start(self, slot: int) -> Any:
        # Not in `runtime_env`, which Ray's agent writes to a log of the node.
        keys = credentials(self._settings, os.environ)
        return self._actor.remote(slot, self._settings, keys)

    def _play(self, slot: int, worker: Any, episode: Episode) -> PlayedEpisode | RunFailure:
        try:
            self._ray.get(worker.ready.remote(), timeout=_PLACE_S)
            played = self._ray.get(worker.play.remote(episode))
        except self._errors.GetTimeoutError:
            raise NotPlacedError from None
        except self._errors.RayError as error:
            raise WorkerDiedError(_one_line(error)) from error
        if isinstance(played, RunFailure):
            return played
        try:
            # Before the record that names them.
            list(self._writers.map(ImageStore(episode.workdir).put, played.images.values()))
        except OSError as error:
            return run_failure(error, episode.workdir)
        return played

    def _kill(self, worker: Any) -> None:
        self._ray.kill(worker, no_restart=True)

    def _end(self, workers: Collection[Any]) -> None:
        ends = [worker.close.remote() for worker in workers]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_STOP_S)
        for worker in workers:
            self._kill(worker)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
