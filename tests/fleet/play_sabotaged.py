"""`collection.fleet.play` in which half of the episodes are sabotaged, and half of those played again.

Which ones, and how, follows from their names and from how often they were played. Worker processes import
this module as well.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from collection.environments.base import Environment, Extractor, StepResults
from collection.environments.miniwob import PageHandler
from collection.fleet import play as fleet_play
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.fleet import Fleet
from collection.fleet.worker import Episode, Worker
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import Task, Trajectory
from tests.fleet.processes import kind_of

# A browser that is killed, a network that is cut, and an application that is down.
FAULTS = ("browser", "network", "application")
# How often the episodes of a run were played before, for its workers; a file in its workdir.
_TIMES = "sabotaged.txt"
_play, _environment, _get, _begin = Worker._play, BrowserPool.environment, PageHandler.do_GET, Fleet.begin


class _State:
    fault = ""


def fault_of(task_id: str, attempt: int, times: int = 0) -> str:
    """Returns what happens to an episode that was played `times` before; "" for half of them."""
    draw = hashlib.sha256(f"{task_id}#{attempt}{'+' * times}".encode()).digest()
    return FAULTS[draw[1] % len(FAULTS)] if draw[0] % 2 else ""


class Sabotaged:
    """An environment that loses its network before the start page, or its browser before it first acts."""

    def __init__(self, environment: Environment, fault: str, browsers: BrowserPool):
        self._environment, self._fault, self._browsers = environment, fault, browsers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def reset(self, task: Task) -> Task:
        if self._fault == "network" and self._browsers._guard is not None:
            self._browsers._guard.close()
        return self._environment.reset(task)

    def act(self, actions: Sequence[Action], extract: Extractor, deadline: float) -> StepResults:
        if self._fault == "browser":
            _kill("browser")
        return self._environment.act(actions, extract, deadline)


def _kill(kind: str) -> None:
    """Kills this worker's processes of a kind."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if kind_of(process) == kind:
                process.kill()


def _begin_sabotaged(self: Fleet, jobs: Any, workdir: Path, *args: Any) -> Any:
    times = int((workdir / _TIMES).read_text()) + 1 if (workdir / _TIMES).exists() else 0
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / _TIMES).write_text(str(times))
    return _begin(self, jobs, workdir, *args)


def _play_sabotaged(self: Worker, episode: Episode, folder: Path) -> Trajectory:
    times = int((episode.workdir / _TIMES).read_text())
    _State.fault = fault_of(episode.task.task_id, episode.attempt, times)
    if _State.fault in ("network", "application"):
        self._browsers.discard()  # Its cache has the pages.
    try:
        return _play(self, episode, folder)
    finally:
        _State.fault = ""


@contextlib.contextmanager
def _environment_sabotaged(self: BrowserPool, *args: Any) -> Any:
    with _environment(self, *args) as environment:
        yield Sabotaged(environment, _State.fault, self)


def _get_sabotaged(self: PageHandler) -> None:
    if _State.fault == "application":
        self.close_connection = True
        self.connection.close()
        return
    _get(self)


Worker._play, BrowserPool.environment = _play_sabotaged, _environment_sabotaged
PageHandler.do_GET = _get_sabotaged
Fleet.begin = _begin_sabotaged

if __name__ == "__main__":
    fleet_play.main()
