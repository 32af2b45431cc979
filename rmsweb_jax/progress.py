"""How far a stage is: a small file that `make demo` and people read while it runs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rmsweb_jax.records.files import write_atomic

_INTERVAL_S = 0.5


class Progress:
    """Counts done work against a total and writes `progress.json` (stage, done, total, eta_s, note).

    On a terminal it also keeps one status line. Use `update` as often as you like: writes are
    limited to two a second.
    """

    def __init__(self, workdir: Path, stage: str, total: int, done: int = 0):
        self._path = workdir / "progress.json"
        self._stage, self._total, self._done, self._first = stage, total, done, done
        self._start = time.monotonic()
        self._written = 0.0
        self._width = 0
        self._write("")

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        """Reports that `done` of the total units are finished; `note` is shown beside them."""
        self._done = done
        self._total = self._total if total is None else total
        if time.monotonic() - self._written >= _INTERVAL_S or done >= self._total:
            self._write(note)

    def close(self, note: str = "") -> None:
        self._done = self._total
        self._write(note)
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def _write(self, note: str) -> None:
        self._written = time.monotonic()
        fresh = self._done - self._first
        elapsed = self._written - self._start
        eta = elapsed / fresh * (self._total - self._done) if fresh > 0 else None
        state = {"stage": self._stage, "done": self._done, "total": self._total, "eta_s": eta, "note": note}
        write_atomic(self._path, json.dumps(state).encode())
        if sys.stderr.isatty():
            left = "" if eta is None else f", {eta:.0f} s left"
            line = f"{self._stage}: {self._done}/{self._total}{left} {note}"[:160]
            print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(line)
