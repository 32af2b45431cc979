"""Status of a run: counts, their display on a terminal, what each worker does, and wall-clock time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from rmsweb_jax.progress import Progress
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import Task

LIVE = "live"  # Folder of `LiveView`, while a run goes on.
_REFRESH_S = 0.5
_LINE_S = 60.0  # Without a terminal, so that logs stay short.
_SITES_SHOWN = 5
_SAVE_S = 5.0  # A kill loses at most this much of the recorded wall-clock time.


@dataclasses.dataclass
class Status:
    """Counts of a run, resumed parts included.

    Attributes:
      rounds: episodes on disk.
      outcomes: of episodes; `done` includes episodes that failed the judge.
      closed_sites: sites in backoff, with the seconds left.
      set_aside: tasks by site, of sites that refused so often that they are not tried again.
      outages: models that do not answer, with the seconds since when and until they are called again.
      tokens: of acting, judging and reflecting, of prompts and responses.
      cost: of the same calls, in US dollars; 0 if prices are unknown.
      steps_per_second: of all workers together, recently; None before the first step.
      busy: number of workers that play an episode.
      judging: number of episodes that wait for a verdict.
      deaths: number of workers that had to be replaced.
    """

    tasks: int
    tasks_done: int = 0
    rounds: int = 0
    successes: int = 0
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    closed_sites: dict[str, float] = dataclasses.field(default_factory=dict)
    set_aside: Counter[str] = dataclasses.field(default_factory=Counter)
    outages: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    tokens: int = 0
    cost: float = 0.0
    steps_per_second: float | None = None
    workers: int = 0
    busy: int = 0
    judging: int = 0
    deaths: int = 0

    def cells(self) -> list[tuple[str, str]]:
        """The counts to show, as (name, value)."""
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        cells = [
            ("tasks", f"{self.tasks_done}/{self.tasks}"),
            ("episodes", str(self.rounds)),
            ("successes", str(self.successes)),
            ("outcomes", outcomes),
            ("closed sites", _sites(self.closed_sites)),
            ("set aside", _counts(self.set_aside)),
            ("models without answers", _outages(self.outages)),
            ("tokens", f"{self.tokens:,}" if self.tokens else ""),
            ("cost", f"${self.cost:.2f}" if self.cost else ""),
            ("steps/s", "" if self.steps_per_second is None else f"{self.steps_per_second:.1f}"),
            ("workers busy", f"{self.busy}/{self.workers}"),
            ("waiting for a verdict", str(self.judging or "")),
            ("workers replaced", str(self.deaths or "")),
        ]
        return [(name, value) for name, value in cells if value]

    def line(self) -> str:
        """Returns the counts in one line, without the number of tasks, which a progress line shows itself."""
        return "; ".join(f"{name} {value}" for name, value in self.cells()[1:])


def _sites(closed: dict[str, float]) -> str:
    longest = sorted(closed.items(), key=lambda item: -item[1])
    return _first([f"{site} for {seconds:.0f} s" for site, seconds in longest])


def _counts(tasks: Counter[str]) -> str:
    return _first([f"{count} of {site}" for site, count in tasks.most_common()])


def _first(parts: list[str]) -> str:
    shown = ", ".join(parts[:_SITES_SHOWN])
    more = len(parts) - _SITES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _outages(outages: dict[str, tuple[float, float]]) -> str:
    return ", ".join(
        f"{model} for {since / 60:.0f} min, next try in {left:.0f} s"
        for model, (since, left) in outages.items()
    )


def table(stage: str, status: Status) -> Table:
    grid = Table(title=stage, show_header=False, title_justify="left")
    for name, value in status.cells():
        grid.add_row(name, value)
    return grid


class ProgressDisplay:
    """Shows a status: a live table on a terminal, else a line a minute; `progress.json` always.

    Args:
      workdir: folder of `progress.json`.
      stage: name shown.
      status: before anything is done.
    """

    def __init__(self, workdir: Path, stage: str, status: Status):
        self._stage = stage
        live = sys.stderr.isatty()
        self._progress = Progress(workdir, stage, status.tasks, status.tasks_done, line=not live)
        self._live: Live | None = None
        if live:
            self._live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False)
            self._live.start()
        self._shown = time.monotonic()

    def show(self, status: Status) -> None:
        """Takes a new status; redraws at most twice a second, so frequent calls are cheap."""
        line = status.line()
        self._progress.update(status.tasks_done, line)
        interval = _REFRESH_S if self._live else _LINE_S
        if time.monotonic() - self._shown < interval:
            return
        self._shown = time.monotonic()
        if self._live:
            self._live.update(table(self._stage, status), refresh=True)
        else:
            print(f"{self._stage}: tasks {status.tasks_done}/{status.tasks}; {line}", file=sys.stderr)

    def finish(self, status: Status) -> None:
        """Shows that the run is complete."""
        self._progress.close(status.line())

    def close(self) -> None:
        """Releases the terminal, however the run has ended."""
        if self._live:
            self._live.stop()
            self._live = None


class LiveView:
    """What a worker does now, in a small file for viewers: `live/WORKER.json`, which is not synced."""

    def __init__(self, workdir: Path, worker: int, task: Task, attempt: int):
        self._path = workdir / LIVE / f"{worker}.json"
        self._now: dict[str, Any] = {
            "worker": str(worker),
            "task_id": task.task_id,
            "site": task.site,
            "attempt": attempt,
            "step": 0,
            "screenshot": "",
        }

    def show(self, **changes: Any) -> None:
        """Changes fields: `step`, `screenshot`, `waiting_for` (browser, page or model) and `model`."""
        self._now |= {"model": "", **changes, "since": time.time()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._now))
        os.replace(temporary, self._path)

    @contextlib.contextmanager
    def calling(self, model: str, **changes: Any) -> Iterator[None]:
        """Waits for a model while the block runs, and for the page afterwards."""
        self.show(waiting_for="model", model=model, **changes)
        try:
            yield
        finally:
            self.show(waiting_for="page")


class RunClock:
    """Wall-clock seconds of a run over its resumptions; a kill loses those since the last save."""

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
