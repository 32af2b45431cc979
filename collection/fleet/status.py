"""How a run is doing, as data, as one line and as a table on a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from rmsweb_jax.progress import Progress

_REFRESH_S = 0.5
_LINE_S = 60.0
_SITES_SHOWN = 5


@dataclasses.dataclass
class Status:
    """Counts of a run, resumed parts included.

    Attributes:
      rounds: episodes on disk.
      outcomes: how episodes ended; `done` counts both those that passed and those that did not.
      closed_sites: sites that are left alone, and for how many seconds yet.
      cost: US dollars, of acting and reflecting.
      steps_per_second: of all workers together, lately; None as long as there was none.
      busy: workers that play an episode.
      deaths: workers that had to be replaced.
    """

    tasks: int
    tasks_done: int = 0
    rounds: int = 0
    successes: int = 0
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    closed_sites: dict[str, float] = dataclasses.field(default_factory=dict)
    cost: float = 0.0
    steps_per_second: float | None = None
    workers: int = 0
    busy: int = 0
    deaths: int = 0

    def cells(self) -> list[tuple[str, str]]:
        """What is worth telling, as (name, value)."""
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        cells = [
            ("tasks", f"{self.tasks_done}/{self.tasks}"),
            ("episodes", str(self.rounds)),
            ("successes", str(self.successes)),
            ("outcomes", outcomes),
            ("closed sites", _sites(self.closed_sites)),
            ("cost", f"${self.cost:.2f}" if self.cost else ""),
            ("steps/s", "" if self.steps_per_second is None else f"{self.steps_per_second:.1f}"),
            ("workers busy", f"{self.busy}/{self.workers}"),
            ("workers replaced", str(self.deaths or "")),
        ]
        return [(name, value) for name, value in cells if value]

    def line(self) -> str:
        """In one line, without the tasks, which a progress line has already."""
        return "; ".join(f"{name} {value}" for name, value in self.cells()[1:])


def _sites(closed: dict[str, float]) -> str:
    longest = sorted(closed.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{site} for {seconds:.0f} s" for site, seconds in longest[:_SITES_SHOWN])
    more = len(longest) - _SITES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def table(stage: str, status: Status) -> Table:
    grid = Table(title=stage, show_header=False, title_justify="left")
    for name, value in status.cells():
        grid.add_row(name, value)
    return grid


class Board:
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
        """Takes a new status; call it as often as you like."""
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
        """The run is over."""
        self._progress.close(status.line())

    def close(self) -> None:
        """Gives the terminal back, however the run has ended."""
        if self._live:
            self._live.stop()
            self._live = None
