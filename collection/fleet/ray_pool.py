"""The pool of workers on Ray: actors on a cluster whose machines share the workdir.

Ray only places them. Its own retries stay off: a lost worker's journal records what it had finished, and the
fleet schedules the rest again.
"""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collection.browser.processes import reap_orphans
from collection.fleet.worker import RoundDone, RoundRequest, RunFailure, Worker, WorkerConfig
from collection.fleet.worker_pool import Message, WorkerDied
from rmsweb_jax.errors import UserError

if TYPE_CHECKING:
    from collection.fleet.config import FleetConfig

_POLL_S = 0.5  # Ray's `wait` cannot be interrupted by a signal handler.
_STOP_S = 10.0  # As in `worker_pool`.


class RayWorkerPool:
    """`WorkerPool` with an actor for each worker.

    Raises:
      UserError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(self, workdir: Path, config: FleetConfig):
        self._ray = _import_ray()
        # Absolute, because actors on other machines have other working folders.
        self._workdir, self._config = workdir.resolve(), config.worker
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(config)
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Actor)
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        self._started = 0
        self._woken = threading.Event()

    def start(self, journal: str) -> int:
        self._started += 1
        self._actors[self._started] = self._actor.remote(self._workdir, journal, self._config)
        return self._started

    def submit(self, worker: int, request: RoundRequest) -> None:
        self._calls[self._actors[worker].play.remote(request)] = worker

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """Waits as the protocol says; notices `wake` within `_POLL_S`."""
        left = seconds
        while True:
            ready: list[Any] = []
            if self._calls:
                ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=min(left, _POLL_S))
            elif self._woken.wait(min(left, _POLL_S)):
                ready = []
            left -= _POLL_S
            if ready or left <= 0 or self._woken.is_set():
                self._woken.clear()
                return [(self._calls.pop(call), self._message(call)) for call in ready]

    def wake(self) -> None:
        self._woken.set()

    def kill(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker), no_restart=True)
        self._calls = {call: owner for call, owner in self._calls.items() if owner != worker}
        reap_orphans()

    def close(self, idle: frozenset[int]) -> None:
        ends = [self._actors[worker].close.remote() for worker in idle & self._actors.keys()]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_STOP_S)
        for actor in self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
        if self._own:
            self._ray.shutdown()
        reap_orphans()

    def _connect(self, config: FleetConfig) -> None:
        settings: dict[str, Any] = {"log_to_driver": True, "logging_level": "warning"}
        if config.ray_address:
            settings["address"] = config.ray_address
        else:
            # Our own Ray, on this machine only.
            settings |= {"num_cpus": config.workers, "include_dashboard": False}
            settings["_node_ip_address"] = "127.0.0.1"
        try:
            self._ray.init(**settings)
        except Exception as error:  # Ray has no error type for a node that does not start.
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"config.fleet.ray_address={config.ray_address!r}: no Ray there ({reason}); start one with "
                "`ray start --head`, or leave it empty"
            ) from error

    def _message(self, call: Any) -> Message:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return WorkerDied(" ".join(str(error).split())[:200])


class _Actor:
    """A worker in an actor's process; it is made, used and closed in the actor's only thread."""

    def __init__(self, workdir: Path, journal: str, config: WorkerConfig):
        self._worker = Worker(workdir, journal, config)

    def play(self, request: RoundRequest) -> RoundDone | RunFailure:
        return self._worker.play(request)

    def close(self) -> None:
        self._worker.close()


def _import_ray() -> Any:
    try:
        # By name, so that type checkers also work without Ray.
        importlib.import_module("ray.exceptions")
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            "config.fleet.engine=ray: Ray is not installed; pip install 'rmsweb-jax[fleet]', or take local"
        ) from error
