"""Prometheus metrics of the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rmsweb_jax.serve.replies import Reply

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
        self._running = Gauge("rmsweb_running_requests", "Requests under way.", registry=registry)
        self._queued = seconds("queue", "From arrival to the first token.")
        self._latency = seconds("request", "From arrival to the last token.")

    def admitted(self, prompt_tokens: int, submitted: float) -> None:
        """Counts a request whose first token is drawn."""
        self._prompt_tokens.inc(prompt_tokens)
        self._queued.observe(time.perf_counter() - submitted)

    def completed(self, replies: Iterable[Reply], submitted: float) -> None:
        """Counts a completed request and its replies."""
        for reply in replies:
            self._tokens.inc(len(reply.tokens))
            self._replies.labels(reply.finish).inc()
        self._latency.observe(time.perf_counter() - submitted)

    def cancelled(self) -> None:
        """Counts a request whose client disconnected."""
        self._cancelled.inc()

    def answered(self, status: int) -> None:
        """Counts a chat request by its response status."""
        self._responses.labels(str(status)).inc()

    def holding(self, running: int) -> None:
        """Sets the number of requests under way."""
        self._running.set(running)

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
