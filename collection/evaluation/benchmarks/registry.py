"""Benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collection.evaluation.benchmarks import apps, miniwob, online_mind2web, webtailbench, webvoyager
from collection.evaluation.benchmarks.base import Benchmark
from rmsweb_jax.errors import UserError

ADAPTERS: dict[str, Callable[[dict[str, Any]], Benchmark]] = {
    adapter.NAME: adapter.load for adapter in (webvoyager, online_mind2web, webtailbench, miniwob, apps)
}
_FILES = (webvoyager.NAME, online_mind2web.NAME, webtailbench.NAME, apps.NAME)


def load_benchmark(settings: dict[str, Any]) -> Benchmark:
    """The benchmark `settings["benchmark"]`, and of its tasks those that `settings["task_ids"]` names.

    Raises:
      UserError: there is none of that name, its file is not given, or what is in it cannot be used.
    """
    name = settings["benchmark"]
    if name not in ADAPTERS:
        raise UserError(f"config.benchmark={name!r}: unknown; take one of {', '.join(ADAPTERS)}")
    if name in _FILES and not settings["tasks_file"]:
        raise UserError(
            f"config.tasks_file is empty: give the file of {name}'s tasks (see README, Benchmarks)"
        )
    return ADAPTERS[name](settings).select(settings["task_ids"])
