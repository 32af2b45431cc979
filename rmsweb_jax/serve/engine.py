"""The thread that owns the decoding engine: takes requests of any thread, and hands out what is drawn."""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from flax import nnx

from rmsweb_jax.decoding import programs
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Drawn, PromptScores, Request
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import load_adapters
from rmsweb_jax.serve.metrics import ServerMetrics
from rmsweb_jax.serve.protocol import BadRequestError

STOPPED = "the engine has stopped; see the server's log"
_T = TypeVar("_T")


class EngineStoppedError(Exception):
    """The engine has stopped and accepts no requests."""


class OverloadedError(Exception):
    """The queue is full."""


class UnknownModelError(Exception):
    """No model or adapter of this name is loaded."""


Report = Drawn | PromptScores | EngineStoppedError


@dataclasses.dataclass(eq=False)
class PendingRequest:
    """A request that was accepted.

    Attributes:
      tell: called in the engine's thread with each report, and once with an error if the engine stops.
      submitted: time of arrival, in seconds of `time.perf_counter`.
      begun: a token was drawn.
      open: samples that have not ended.
    """

    request: Request
    tell: Callable[[Report], None]
    submitted: float = dataclasses.field(default_factory=time.perf_counter)
    begun: bool = False
    open: int = 0


class ServingEngine:
    """Runs an engine in a thread.

    A reply depends only on prompt, seed, sampling settings and its index among the `n`.

    Args:
      model: without adapters; not modified.
      max_waiting: requests that may be under way beyond the lanes.

    Attributes:
      metrics: counters of this engine.
    """

    def __init__(self, engine: Engine, model: Qwen3VL, max_waiting: int):
        self.engine, self.metrics = engine, ServerMetrics()
        self._model, self._most = model, max_waiting + engine.sizes.lanes
        self._changed = threading.Condition()
        self._work: collections.deque[Callable[[], None]] = collections.deque()
        self._pending: dict[Request, PendingRequest] = {}
        self._adapters: dict[str, int] = {}
        self._closing = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; requests under way get an error."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return not (self._stopped or self._closing)

    def submit(self, request: Request, tell: Callable[[Report], None]) -> PendingRequest:
        """Queues a request whose size was checked.

        Raises:
          OverloadedError: too many requests wait.
          EngineStoppedError: the engine has stopped.
        """
        pending = PendingRequest(request, tell, open=request.sampling.num_samples)
        with self._changed:
            if not self.alive:
                raise EngineStoppedError(STOPPED)
            if len(self._pending) >= self._most:
                raise OverloadedError(f"{len(self._pending)} requests wait already; try again later")
            self._pending[request] = pending
            self._do(lambda: self.engine.add(request))
        return pending

    def cancel(self, pending: PendingRequest, sample: int | None = None) -> None:
        """Ends one sample of a request, or all of it, without another report."""
        with self._changed:
            if pending.request not in self._pending:
                return
            pending.open -= 1
            if sample is None or not pending.open:
                del self._pending[pending.request]
            self._do(lambda: self.engine.cancel(pending.request, sample))

    # --- adapters

    def names(self) -> list[str]:
        """Names of the loaded adapters."""
        return list(self._adapters)

    def slot(self, name: str) -> int:
        """Returns the slot of a loaded adapter.

        Raises:
          UnknownModelError: there is none of this name.
        """
        try:
            return self._adapters[name]
        except KeyError:
            raise UnknownModelError(name) from None

    def load(self, name: str, folder: Path) -> None:
        """Loads a PEFT folder into a free slot.

        Raises:
          BadRequestError: the name is taken, no slot is free, or the adapters cannot be used.
        """
        # On a copy that shares the model's arrays.
        model = nnx.clone(self._model)
        try:
            load_adapters(model, folder)
            new = programs.prepare_adapters(*nnx.split(model))
            if not new:
                raise UserError(f"{folder}: has no adapters on attention's projections")
        except UserError as error:
            raise BadRequestError(f"lora_path: {error}", "lora_path") from None

        def put() -> None:
            if name in self._adapters:
                raise BadRequestError(f"lora_name: {name!r} has already been loaded", "lora_name")
            used = {
                *self._adapters.values(),
                *(pending.request.adapter for pending in self._pending.values()),
            }
            slot = next((slot for slot in range(1, len(self.engine.versions)) if slot not in used), None)
            if slot is None:
                count = len(self.engine.versions) - 1
                raise BadRequestError(f"lora_name: all {count} slots are used; unload one", "lora_name")
            try:
                self.engine.set_adapters(slot, new)
            except UserError as error:
                raise BadRequestError(f"lora_path: {error}", "lora_path") from None
            self._adapters[name] = slot

        self._ask(put)

    def unload(self, name: str) -> None:
        """Unloads an adapter; requests submitted before are still answered.

        Raises:
          BadRequestError: no adapter has this name.
        """
        if self._adapters.pop(name, None) is None:
            raise BadRequestError(f"lora_name: {name!r} is not loaded", "lora_name")

    # --- the thread

    def _do(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._work.append(work)
            self._changed.notify_all()

    def _ask(self, work: Callable[[], _T]) -> _T:
        """Runs a function in the engine's thread and returns its value."""
        answer: Future[_T] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except Exception as error:
                answer.set_exception(error)

        if not self.alive:
            raise EngineStoppedError(STOPPED)
        self._do(run)
        return answer.result()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._work or self.engine.busy)
                    if self._closing:
                        return
                    work, self._work = self._work, collections.deque()
                for one in work:
                    one()
                self._hand_out(self.engine.advance())
        except Exception:
            # The clients get an error, and the log the cause.
            logging.exception("the engine stopped")
        finally:
            with self._changed:
                self._stopped = True
                all_pending, self._pending = list(self._pending.values()), {}
            for pending in all_pending:
                pending.tell(EngineStoppedError(STOPPED))

    def _hand_out(self, reports: list[Drawn | PromptScores]) -> None:
        for report in reports:
            with self._changed:
                pending = self._pending.get(report.request)
                if pending is None:  # Cancelled meanwhile.
                    continue
                if isinstance(report, Drawn):
                    if not pending.begun:
                        pending.begun = True
                        self.metrics.admitted(report.request.prompt.prompt_length, pending.submitted)
                    if report.finish is not None:
                        pending.open -= 1
                        if not pending.open:
                            del self._pending[report.request]
            pending.tell(report)
        self.metrics.holding(len(self._pending))


def unused(_: Any) -> None:
    """Does nothing with a report."""
