"""What the server counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rmsweb_jax.serve.requests import Completion, Ticket

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)


class Metrics:
    """Counters of one engine; any thread may call."""

    def __init__(self) -> None:
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

    def admitted(self, ticket: Ticket) -> None:
        """A request has got a slot."""
        self._prompt_tokens.inc(len(ticket.prepared.prompt.tokens))
        self._queued.observe(time.perf_counter() - ticket.submitted)

    def completed(self, ticket: Ticket, completions: Sequence[Completion]) -> None:
        """A request's replies have ended."""
        for completion in completions:
            self._tokens.inc(len(completion.tokens))
            self._replies.labels(completion.finish_reason).inc()
        self._latency.observe(time.perf_counter() - ticket.submitted)

    def cancelled(self) -> None:
        """A client went away before its answer."""
        self._cancelled.inc()

    def answered(self, status: int) -> None:
        """A chat request was answered, well or not."""
        self._responses.labels(str(status)).inc()

    def holding(self, running: int, waiting: int) -> None:
        """Who is in slots, and who waits for one."""
        self._running.set(running)
        self._waiting.set(waiting)

    def text(self) -> bytes:
        """All of them in the exposition format."""
        return generate_latest(self._registry)
