"""Benchmarks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collection.evaluation.benchmarks import (
    apps,
    miniwob,
    online_mind2web,
    own_tasks,
    webtailbench,
    webvoyager,
)
from collection.evaluation.benchmarks.base import Benchmark
from collection.evaluation.config import EvaluateSettings
from rmsweb_jax.errors import UserError

ADAPTERS: dict[str, Callable[[Any], Benchmark]] = {
    adapter.NAME: adapter.load
    for adapter in (webvoyager, online_mind2web, webtailbench, miniwob, apps, own_tasks)
}


def load_benchmark(settings: EvaluateSettings) -> Benchmark:
    """Loads the benchmark of these settings, with only the tasks in `task_ids` if there are any.

    Raises:
      UserError: its files cannot be used, or the judge would not see the reference answers.
    """
    benchmark = ADAPTERS[settings.benchmark](settings)
    answers = any(note.reference for note in benchmark.notes.values())
    # A file that is given and not used would look as if the judge had seen it.
    if settings.judge.kind != "none" and answers != settings.judge.reference:
        if answers:
            remedy = "set config.judge.reference=True, or leave the file out"
            raise UserError(f"config.references_file: the judge would not see these answers; {remedy}")
        raise UserError("config.judge.reference=True: there are no reference answers; set it to False")
    return benchmark.select(settings.task_ids)
