"""Prometheus metrics of the server."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rmsweb_jax.serve.batch import Completion, PendingRequest

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

        self._responses = counter(
            "responses", "Chat requests by the status they were answered with.", ["status"]
        )
        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts that were prefilled.")
        self._tokens = counter("generated_tokens", "Tokens of completed replies.")
        self._replies = counter("replies", "Completed replies by why they ended.", ["finish_reason"])
        self._cancelled = counter("cancelled_requests", "Requests whose client went away.")
        self._running = Gauge("rmsweb_running_requests", "Requests in slots.", registry=registry)
        self._waiting = Gauge("rmsweb_waiting_requests", "Requests that wait for a slot.", registry=registry)
        self._queued = seconds("queue", "From arrival to a slot.")
        self._latency = seconds("request", "From arrival to the last token.")

    def admitted(self, pending: PendingRequest) -> None:
        """Counts a request that got a slot."""
        self._prompt_tokens.inc(len(pending.prepared.prompt.tokens))
        self._queued.observe(time.perf_counter() - pending.submitted)

    def completed(self, pending: PendingRequest, completions: Sequence[Completion]) -> None:
        """Counts a completed request and its replies."""
        for completion in completions:
            self._tokens.inc(len(completion.tokens))
            self._replies.labels(completion.finish_reason).inc()
        self._latency.observe(time.perf_counter() - pending.submitted)

    def cancelled(self) -> None:
        """Counts a request whose client disconnected."""
        self._cancelled.inc()

    def answered(self, status: int) -> None:
        """Counts a chat request by its response status."""
        self._responses.labels(str(status)).inc()

    def holding(self, running: int, waiting: int) -> None:
        """Sets the numbers of running and waiting requests."""
        self._running.set(running)
        self._waiting.set(waiting)

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
