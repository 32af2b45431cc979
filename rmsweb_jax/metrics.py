"""Training curves: `metrics.jsonl` and TensorBoard, safe to append to after a crash."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from tensorboardX import SummaryWriter

from rmsweb_jax.records.files import write_atomic

METRICS_FILE = "metrics.jsonl"


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of `folder/metrics.jsonl` in order; a torn last line (a crash while writing) is left out."""
    path = folder / METRICS_FILE
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(json.loads(line))
    return rows


class MetricWriter:
    """Writes one row a step; on a resumed run the rows of steps that are done again are cut first.

    Args:
      folder: gets `metrics.jsonl` and `tensorboard/`.
      resume_step: the last finished step that is kept (0: none, the files start empty).

    In a multi-host run only the first process writes.
    """

    def __init__(self, folder: Path, resume_step: int = 0):
        self._active = jax.process_index() == 0
        if not self._active:
            return
        folder.mkdir(parents=True, exist_ok=True)
        kept = [row for row in read_metrics(folder) if row["step"] <= resume_step]
        write_atomic(folder / METRICS_FILE, b"".join(_line(row) for row in kept))
        self._file = open(folder / METRICS_FILE, "ab")  # noqa: SIM115 - closed by close()
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_step + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends the row {step, time, **values}; array scalars become floats, non-finite ones null."""
        if not self._active:
            return
        row: dict[str, Any] = {"step": step, "time": round(time.time(), 3)}
        row |= {key: _plain(value) for key, value in values.items()}
        self._file.write(_line(row))
        self._file.flush()
        for key, value in row.items():
            if key not in ("step", "time") and isinstance(value, int | float):
                self._board.add_scalar(key, value, step)

    def close(self) -> None:
        if self._active:
            self._file.close()
            self._board.close()

    def __enter__(self) -> MetricWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | bool) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None
