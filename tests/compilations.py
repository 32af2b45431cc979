"""Counts the programs that XLA compiles."""

import contextlib
from collections.abc import Callable, Iterator

import jax
import pytest

from rmsweb_jax.training.metrics import MetricWriter

_COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """Yields a list that grows by the name of every program that is compiled meanwhile."""
    found: list[str] = []

    def listen(event: str, _: float, **details: str | int) -> None:
        if event == _COMPILED:
            found.append(str(details.get("fun_name", "?")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def compiled_by_step(monkeypatch: pytest.MonkeyPatch, train: Callable[[], object]) -> dict[int, list[str]]:
    """Runs a training stage, and returns what was compiled until the metrics of each step were written."""
    found: dict[int, list[str]] = {}
    write = MetricWriter.write
    with compilations() as names, monkeypatch.context() as patch:

        def marked(self: MetricWriter, step: int, metrics: dict[str, object]) -> None:
            found[step] = list(names)
            names.clear()
            write(self, step, metrics)

        patch.setattr(MetricWriter, "write", marked)
        train()
    return found
