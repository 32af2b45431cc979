"""Benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collection.evaluation.benchmarks import apps, miniwob, online_mind2web, webtailbench, webvoyager
from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.config import EvaluateSettings

ADAPTERS: dict[str, Callable[[Any], Benchmark]] = {
    adapter.NAME: adapter.load for adapter in (webvoyager, online_mind2web, webtailbench, miniwob, apps)
}


def load_benchmark(settings: EvaluateSettings) -> Benchmark:
    """Loads the benchmark of these settings, with only the tasks in `task_ids` if there are any.

    Raises:
      UserError: its files cannot be used.
    """
    return ADAPTERS[settings.benchmark](settings).select(settings.task_ids)
