"""The thread that owns the decoding engine: takes requests of any thread, and hands out what is drawn."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flax import nnx
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Drawn, Request
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.lora import load_adapters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.serve.protocol import ApiError

Report = Drawn | ApiError


@dataclasses.dataclass
class _Pending:
    """A request under way: what gets its reports, when it came, and which of its replies are open."""

    on_report: Callable[[Report], None]
    submitted: float
    open: set[int]
    begun: bool = False


class ServingEngine:
    """Runs an engine in a thread.

    A reply depends only on prompt, adapter, grammar, seed, sampling settings and its index among the `n`.

    Args:
      model: without adapters; not modified.
      max_waiting: requests that may be under way beyond the lanes.

    Attributes:
      metrics: counters of this engine.
      adapters: slot of each loaded adapter by its name.
    """

    def __init__(self, engine: Engine, model: Qwen3VL, max_waiting: int):
        self.engine, self.metrics = engine, ServerMetrics()
        self.adapters: dict[str, int] = {}
        self._model, self._limit = model, max_waiting + engine.sizes.lanes
        self._lock = threading.Lock()
        self._pending: dict[Request, _Pending] = {}
        self.metrics.running.set_function(lambda: len(self._pending))
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stops the thread after its step; requests under way get an error. Can be called again."""
        with self._lock:
            self._stopped = True
        self.engine.stop()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return not self._stopped

    def submit(self, request: Request, on_report: Callable[[Report], None], adapter: str = "") -> None:
        """Queues a request whose size was checked.

        Args:
          on_report: called in the engine's thread with each report, and with an error if the engine stops.
          adapter: name of a loaded adapter, whose slot the request gets.

        Raises:
          KeyError: no adapter has this name.
          ApiError: too many requests wait, or the engine has stopped.
        """
        with self._lock:
            self._check_alive()
            if len(self._pending) >= self._limit:
                raise ApiError(f"{len(self._pending)} requests wait already; try again later", status=503)
            if adapter:
                # The slot cannot be given to another adapter once the request is pending.
                request.adapter = self.adapters[adapter]
            self.engine.submit(request)
            replies = set(range(request.sampling.num_samples))
            self._pending[request] = _Pending(on_report, time.perf_counter(), replies)

    def cancel(self, request: Request, sample: int | None = None) -> None:
        """Ends one sample of a request, or all of it, without another report."""
        with self._lock:
            pending = self._pending.get(request)
            if pending is None:
                return
            if sample is None:
                self.metrics.cancelled.inc()
                del self._pending[request]
            else:
                self._end(request, pending, sample)
            self.engine.cancel(request, sample)

    def load(self, name: str, folder: Path) -> None:
        """Loads a PEFT folder into a free slot.

        Raises:
          ApiError: the name is taken, no slot is free, the adapters are unfit, or the engine has stopped.
        """
        # On a copy that shares the model's arrays.
        model = nnx.clone(self._model)
        try:
            load_adapters(model, folder)
            paths = [path for path, _ in nnx.to_flat_state(nnx.state(model, LoRAParam))]
            if any("self_attn" not in path or "language_model" not in path for path in paths):
                raise UserError("adapters outside the decoder's attention: merge them by experiments.merge")
            new = self.engine.prepare_adapters(model)
        except UserError as error:
            raise ApiError(f"lora_path: {error}", "lora_path") from None
        with self._lock:
            self._check_alive()
            if name in self.adapters:
                raise ApiError(f"lora_name: {name!r} has already been loaded", "lora_name")
            # A request outlives the name of its adapter.
            used = {*self.adapters.values(), *(request.adapter for request in self._pending)}
            slots = range(1, len(self.engine.versions))
            slot = next((slot for slot in slots if slot not in used), None)
            if slot is None:
                raise ApiError(f"lora_name: all {len(slots)} slots are used; unload one", "lora_name")
            self.engine.set_adapters(slot, new)
            self.adapters[name] = slot

    def unload(self, name: str) -> None:
        """Unloads an adapter; requests submitted before are still answered.

        Raises:
          ApiError: no adapter has this name.
        """
        with self._lock:
            if self.adapters.pop(name, None) is None:
                raise ApiError(f"lora_name: {name!r} is not loaded", "lora_name")

    def _check_alive(self) -> None:
        if self._stopped:
            raise _stopped()

    def _run(self) -> None:
        try:
            for report in self.engine.stream(wait=True):
                self._hand_out(report)
        except Exception:
            # The clients get an error, and the log the cause.
            logging.exception("the engine stopped")
        finally:
            with self._lock:
                self._stopped = True
                all_pending, self._pending = list(self._pending.values()), {}
            for pending in all_pending:
                pending.on_report(_stopped())

    def _hand_out(self, report: Drawn) -> None:
        with self._lock:
            pending = self._pending.get(report.request)
            if pending is None:  # Cancelled meanwhile.
                return
            if not pending.begun:
                pending.begun = True
                self.metrics.prompt_tokens.inc(report.request.prompt.prompt_length)
                self.metrics.queued.observe(time.perf_counter() - pending.submitted)
            if report.finish is not None:
                self._end(report.request, pending, report.sample)
        pending.on_report(report)

    def _end(self, request: Request, pending: _Pending, sample: int) -> None:
        """Notes that a reply has ended; the engine and a stop text may both end it."""
        pending.open.discard(sample)
        if not pending.open:
            del self._pending[request]
            self.metrics.latency.observe(time.perf_counter() - pending.submitted)


def _stopped() -> ApiError:
    return ApiError("the engine has stopped; see the server's log", status=503)


# Bucket bounds of the histograms, in seconds.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)


class ServerMetrics:
    """Counters of one engine. Thread-safe."""

    def __init__(self) -> None:
        # Not the global registry, in which a second engine of the process would clash.
        registry = self._registry = CollectorRegistry()

        def counter(name: str, what: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"rmsweb_{name}", what, labels, registry=registry)

        def seconds(name: str, what: str) -> Histogram:
            return Histogram(f"rmsweb_{name}_seconds", what, buckets=_SECONDS, registry=registry)

        self.responses = counter(
            "responses", "Requests for replies by the status they were answered with.", ["status"]
        )
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts that were prefilled.")
        self.generated_tokens = counter("generated_tokens", "Tokens of completed replies.")
        self.replies = counter("replies", "Completed replies by why they ended.", ["finish_reason"])
        self.cancelled = counter(
            "cancelled_requests", "Requests that ended early: their client went away, or a reply failed."
        )
        self.running = Gauge("rmsweb_running_requests", "Requests under way.", registry=registry)
        self.queued = seconds("queue", "From arrival to the first token.")
        self.latency = seconds("request", "From arrival to the last token.")

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
