"""Processor time of an online run, by kind of process."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from typing import Self

import psutil


class CpuSeconds(contextlib.AbstractContextManager["CpuSeconds"]):
    """Adds up the processor time of all that this process starts, by kind, while the block runs."""

    def __init__(self) -> None:
        self._first, self._last = dict[tuple[int, float], float](), dict[tuple[int, float], float]()
        self._kinds = dict[tuple[int, float], str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._first = dict(self._last)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(2.0):
            self._look()

    def _look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                key, times = (process.pid, process.create_time()), process.cpu_times()
                self._kinds.setdefault(key, _kind(process))
                self._last[key] = times.user + times.system

    def seconds(self) -> dict[str, float]:
        found = defaultdict[str, float](float)
        for key, spent in self._last.items():
            found[self._kinds[key]] += spent - self._first.get(key, 0.0)
        return {kind: round(found[kind], 1) for kind in sorted(found)}


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    kinds = {
        "rmsweb_jax.serve": "policy server",
        "experiments.train_rl": "training",
        "online_apart": "training",
    }
    for part, kind in kinds.items():
        if part in line:
            return kind
    if process.name().startswith("chrom"):
        return "browsers"
    return "workers"
