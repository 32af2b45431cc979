"""How long a run took, over all its starts."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rmsweb_jax.records.files import write_atomic

_SAVE_S = 5.0


class Clock:
    """Wall-clock seconds over resumed runs; what passes between two saves is lost by a kill."""

    def __init__(self, path: Path):
        self._path = path
        self._before = json.loads(path.read_text())["seconds"] if path.exists() else 0.0
        self._start = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._start

    def tick(self) -> None:
        if time.monotonic() - self._saved >= _SAVE_S:
            self.save()

    def save(self) -> None:
        self._saved = time.monotonic()
        write_atomic(self._path, json.dumps({"seconds": self.seconds}).encode())
