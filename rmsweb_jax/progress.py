"""Progress of a stage: a small file, which `make demo` and users read while it runs, and a terminal line."""

from __future__ import annotations

import atexit
import datetime
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from rmsweb_jax.records.files import write_atomic

_FILE = "progress.json"
_INTERVAL_S = 0.5
# The rate is an average over about the last minute, or over the last ten units if these take longer.
_MEMORY_S, _MEMORY_UNITS = 60.0, 10.0


def read_progress(workdir: Path) -> dict[str, Any] | None:
    """Reads the state that `Progress` wrote last in a folder; None before the first one."""
    try:
        return json.loads((workdir / _FILE).read_bytes())
    except FileNotFoundError:
        return None


class Rate:
    """A smoothed rate in units per second, which soon forgets a slow start such as compilation.

    Args:
      done: units that are already finished.
      now: seconds of a monotonic clock.
    """

    def __init__(self, done: float, now: float):
        self._done, self._now = done, now
        self._units = self._seconds = 0.0

    def update(self, done: float, now: float) -> None:
        """Records that `done` units are finished at `now`."""
        units, seconds = done - self._done, now - self._now
        if units <= 0:
            return
        keep = math.exp(-min(seconds / _MEMORY_S, units / _MEMORY_UNITS))
        self._units, self._seconds = keep * self._units + units, keep * self._seconds + seconds
        self._done, self._now = done, now

    def per_second(self) -> float | None:
        """Returns the rate; None until a unit is finished."""
        return self._units / self._seconds if self._units and self._seconds else None


class Progress:
    """Counts finished work against a total and writes `progress.json` (stage, done, total, eta_s, note).

    On a terminal it also shows a status line, unless another instance in this process does. `update` may be
    called often: writes are limited to two per second.

    Args:
      workdir: folder of the file.
      stage: name to show.
      total, done: number of units, and of those that are already finished.
      active: False writes and shows nothing, as in all but one process of a run.
      line: False shows no status line, for callers with a display of their own.
    """

    def __init__(
        self,
        workdir: Path,
        stage: str,
        total: int,
        done: int = 0,
        active: bool = True,
        line: bool = True,
    ):
        self._path = workdir / _FILE
        self._stage, self._total, self._done, self._active = stage, total, done, active
        self._written = time.monotonic()
        self._rate = Rate(done, self._written)
        self._line = _Line.take(stage) if active and line else None
        self._write("")

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        """Reports that `done` of the total units are finished, with a note to show."""
        self._done = done
        self._total = self._total if total is None else total
        if time.monotonic() - self._written >= _INTERVAL_S or done >= self._total:
            self._write(note)

    def close(self, note: str = "") -> None:
        self._done = self._total
        self._write(note)
        if self._line:
            self._line.release()
            self._line = None

    def _write(self, note: str) -> None:
        if not self._active:
            return
        self._written = time.monotonic()
        self._rate.update(self._done, self._written)
        rate = self._rate.per_second()
        eta = None if rate is None else (self._total - self._done) / rate
        state = {"stage": self._stage, "done": self._done, "total": self._total, "eta_s": eta, "note": note}
        write_atomic(self._path, json.dumps(state).encode())
        if self._line:
            self._line.show(self._done, self._total, rate, eta, note)


class _Line:
    """The status line of this process's terminal: bar, units, rate, time left, note."""

    _taken = False

    @classmethod
    def take(cls, stage: str) -> _Line | None:
        """Makes a status line if there is a terminal without one; otherwise returns None."""
        return None if cls._taken or not sys.stderr.isatty() else cls(stage)

    def __init__(self, stage: str):
        _Line._taken = True
        fields = ("units", "rate", "left", "note")
        texts = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in fields]
        columns = (TextColumn("{task.description}"), BarColumn(), *texts)
        # Refreshed by `show`, not by a thread of its own.
        self._bars = Bars(*columns, console=Console(stderr=True, highlight=False), auto_refresh=False)
        self._task = self._bars.add_task(stage, units="", rate="", left="", note="")
        self._bars.start()
        # Shows the cursor again when the process ends with an error.
        atexit.register(self.release)

    def show(self, done: int, total: int, rate: float | None, eta: float | None, note: str) -> None:
        self._bars.update(
            self._task,
            completed=done,
            total=total,
            refresh=True,
            units=f"{done}/{total}",
            rate="" if rate is None else f"{rate:.2f}/s" if rate >= 1 else f"{1 / rate:.1f} s each",
            left="" if eta is None else f"{datetime.timedelta(seconds=round(eta))} left",
            note=note,
        )

    def release(self) -> None:
        self._bars.stop()
        _Line._taken = False
        atexit.unregister(self.release)
