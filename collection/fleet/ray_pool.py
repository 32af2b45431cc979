"""The pool of workers on Ray: actors on a cluster whose machines share nothing with this one.

Ray places them and carries what they play back to this process, which alone writes the workdir: each actor
works in a temporary folder of its own machine. Ray's retries stay off: what had not arrived when an actor was
lost is played again. Keys and secrets come from this process's environment, and never from a node's.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collection.browser.processes import reap_orphans
from collection.fleet.build import FleetConfig
from collection.fleet.journals import FOLDER, parse_record, read_bytes
from collection.fleet.rounds import TaskHistory
from collection.fleet.worker import RoundDone, RoundRequest, RunFailure, Worker, run_failure
from collection.fleet.worker_pool import Message, NotPlaced, WorkerDied
from collection.llm.config import GEMINI_KEY
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal, scan_journal
from rmsweb_jax.storage.paths import IMAGES

if TYPE_CHECKING:
    from collection.fleet.build import FleetConfig

_POLL_S = 0.5  # Ray's `wait` cannot be interrupted by a signal handler.
_STOP_S = 10.0  # As in `worker_pool`.
_PLACE_S = 60.0  # Time for the cluster to make room for an actor, before another plays its round.
_WRITERS = 8  # Threads that write screenshots, each of which is synced to disk.
# Variables that clients of models read by themselves.
_CLIENTS = ("GEMINI_", "GOOGLE_API_", "GOOGLE_GENAI_", "OPENAI_", "ANTHROPIC_")


@dataclasses.dataclass(frozen=True)
class Delivery:
    """What an actor sends back.

    Attributes:
      records: those of the entries of `message`, in order.
      images: the screenshots that they name, by SHA-256.
    """

    message: RoundDone | RunFailure
    records: tuple[bytes, ...] = ()
    images: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


def credentials(config: FleetConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with keys and secrets of a run, and those that clients of models read."""
    names = {
        GEMINI_KEY,
        config.settings.actor.api_key_env,
        *(entry.partition("=")[0] for entry in config.settings.secrets),
    }
    return {name: value for name, value in environment.items() if name in names or name.startswith(_CLIENTS)}


class RayWorkerPool:
    """`WorkerPool` with an actor for each worker.

    Raises:
      UserError: Ray is not installed, there is no cluster at the address, or it refuses the actors' options.
    """

    def __init__(self, workdir: Path, config: FleetConfig):
        self._ray = _import_ray()
        self._workdir, self._config, self._images = workdir, config, ImageStore(workdir)
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(config)
        # As plain values: Ray knows no frozen mappings.
        options = {"num_cpus": 1, **json.loads(json.dumps(dict(config.settings.fleet.ray_actor)))}
        try:
            make = self._ray.remote(**options, max_restarts=0, max_task_retries=0)
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"config.fleet.ray_actor={options}: Ray refuses it ({reason})") from error
        self._actor = make(_Actor)
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="images")
        self._actors: dict[int, Any] = {}
        self._journals: dict[int, Journal] = {}
        self._calls: dict[Any, int] = {}
        # Actors that no node runs yet, with the time at which that has lasted too long, and their requests.
        self._starting: dict[Any, int] = {}
        self._late: dict[int, float] = {}
        self._requests: dict[int, RoundRequest] = {}
        self._started = 0
        self._woken = threading.Event()

    def start(self, journal: str) -> int:
        self._started += 1
        self._journals[self._started] = Journal(self._workdir / FOLDER / journal)
        secrets = credentials(self._config, os.environ)
        actor = self._actors[self._started] = self._actor.remote(journal, self._config, secrets)
        self._starting[actor.ready.remote()] = self._started
        self._late[self._started] = time.monotonic() + _PLACE_S
        return self._started

    def submit(self, worker: int, request: RoundRequest) -> None:
        if worker in self._late:
            self._requests[worker] = request
        else:
            self._call(worker, request)

    def _call(self, worker: int, request: RoundRequest) -> None:
        records = [read_bytes(self._workdir, entry) for entry in request.entries]
        self._calls[self._actors[worker].play.remote(request, records)] = worker

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """Waits as the protocol says; notices `wake` within `_POLL_S`."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, min(end - time.monotonic(), _POLL_S))
            calls, ready = [*self._calls, *self._starting], []
            if calls:
                ready, _ = self._ray.wait(calls, num_returns=1, timeout=left)
            else:
                self._woken.wait(left)
            messages = [*self._received(ready), *self._not_placed()]
            if messages or self._woken.is_set() or time.monotonic() >= end:
                self._woken.clear()
                return messages

    def _received(self, ready: Sequence[Any]) -> Iterator[tuple[int, Message]]:
        for call in ready:
            if call in self._calls:
                worker = self._calls.pop(call)
                yield worker, self._message(worker, call)
                continue
            worker = self._starting.pop(call)
            del self._late[worker]
            request = self._requests.pop(worker, None)
            try:
                self._ray.get(call)
            except self._ray.exceptions.RayError as error:
                yield worker, _died(error)
            else:
                if request is not None:
                    self._call(worker, request)

    def _not_placed(self) -> Iterator[tuple[int, Message]]:
        now = time.monotonic()
        yield from ((worker, NotPlaced()) for worker, late in self._late.items() if late < now)

    def wake(self) -> None:
        self._woken.set()

    def kill(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker), no_restart=True)
        self._journals.pop(worker).close()
        self._calls = {call: owner for call, owner in self._calls.items() if owner != worker}
        self._starting = {call: owner for call, owner in self._starting.items() if owner != worker}
        self._late.pop(worker, None)
        self._requests.pop(worker, None)
        reap_orphans()

    def close(self, idle: frozenset[int]) -> None:
        ends = [self._actors[worker].close.remote() for worker in idle & self._actors.keys()]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_STOP_S)
        for actor in self._actors.values():
            self._ray.kill(actor, no_restart=True)
        self._actors.clear()
        self._writers.shutdown()
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()
        if self._own:
            self._ray.shutdown()
        reap_orphans()

    def _connect(self, config: FleetConfig) -> None:
        options: dict[str, Any] = {"log_to_driver": True, "logging_level": "warning"}
        address, workers = os.environ.get("RAY_ADDRESS"), config.settings.fleet.workers
        if not address:
            # Our own Ray, on this machine only.
            options |= {"num_cpus": workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            self._ray.init(**options)
        except Exception as error:  # Ray has no error type for a node that does not start.
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"RAY_ADDRESS={address or ''}: no Ray there ({reason}); start one with `ray start --head`, "
                "or unset it"
            ) from error

    def _message(self, worker: int, call: Any) -> Message:
        try:
            delivery: Delivery = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return _died(error)
        try:
            # Screenshots first, since records name them.
            list(self._writers.map(self._images.put, delivery.images.values()))
            journal = self._journals[worker]
            offsets = [journal.append(record) for record in delivery.records]
        except OSError as error:
            return run_failure(error, self._workdir)
        if isinstance(delivery.message, RunFailure):
            return delivery.message
        entries = zip(delivery.message.entries, offsets, strict=True)
        return dataclasses.replace(
            delivery.message,
            entries=tuple(dataclasses.replace(entry, offset=offset) for entry, offset in entries),
        )


def _died(error: Exception) -> WorkerDied:
    return WorkerDied(" ".join(str(error).split())[:200])


class _NodeWorker(Worker):
    """A worker that is sent the history of its tasks, and whose records are sent back."""

    def __init__(self, workdir: Path, journal: str, config: FleetConfig):
        super().__init__(workdir, journal, config)
        self._sent: Sequence[bytes] = ()

    def deliver(self, request: RoundRequest, records: Sequence[bytes]) -> Delivery:
        """Plays a round; `records` are those of the request's entries."""
        self._sent = records
        message = self.play(request)
        path = self._workdir / FOLDER / self._name
        # Also of a failure: a reflection that was paid for is kept.
        played = [line.record for line in scan_journal(path) if line.record is not None]
        names = dict.fromkeys(name for record in played for name in record_images(parse_record(path, record)))
        delivery = Delivery(message, tuple(played), {name: self._images.get(name) for name in names})
        # They are in memory, and need no room here.
        os.truncate(path, 0)
        shutil.rmtree(self._workdir / IMAGES, ignore_errors=True)
        return delivery

    def _read_history(self, request: RoundRequest) -> TaskHistory:
        return TaskHistory.of(parse_record(self._workdir, record) for record in self._sent)


class _Actor:
    """A worker in an actor's process; it is made, used and closed in the actor's only thread."""

    def __init__(self, journal: str, config: FleetConfig, secrets: Mapping[str, str]):
        for name in credentials(config, os.environ):
            del os.environ[name]
        os.environ.update(secrets)
        self._folder = Path(tempfile.mkdtemp(prefix="rmsweb-"))
        self._worker = _NodeWorker(self._folder, journal, config)

    def ready(self) -> None:
        """Returns when a node runs this actor."""

    def play(self, request: RoundRequest, records: Sequence[bytes]) -> Delivery:
        return self._worker.deliver(request, records)

    def close(self) -> None:
        self._worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _import_ray() -> Any:
    try:
        # By name, so that type checkers also work without Ray.
        importlib.import_module("ray.exceptions")
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            "config.fleet.engine=ray: Ray is not installed; pip install 'rmsweb-jax[fleet]', or take local"
        ) from error
