"""Prometheus metrics of the server."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
