"""`collection.fleet.play` in which half of the episodes are sabotaged, and half of those played again.

Which ones, and how, follows from their names and from how often they were played. Worker processes import
this module as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from collection.environments.base import Environment, Extractor, StepResults
from collection.environments.miniwob import PageHandler
from collection.fleet import play as fleet_play
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.play import PlayRequest, play
from collection.fleet.worker import Worker
from rmsweb_jax.actions import Action
from rmsweb_jax.errors import user_errors
from rmsweb_jax.records.schema import Task, Trajectory
from tests.fleet.processes import kind_of

# A browser that is killed, a network that is cut, and an application that is down.
FAULTS = ("browser", "network", "application")
# How often the episodes of a run were played before, for its workers.
_TIMES = "SABOTAGED_TIMES"
_play, _runner, _get, _run_tasks = Worker._play, Worker._runner, PageHandler.do_GET, fleet_play.run_tasks


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


def _run_tasks_sabotaged(*args: Any) -> Any:
    os.environ[_TIMES] = str(int(os.environ.get(_TIMES, -1)) + 1)
    return _run_tasks(*args)


def _play_sabotaged(self: Worker, task: Task, attempt: int, guidance: str) -> Trajectory:
    _State.fault = fault_of(task.task_id, attempt, int(os.environ[_TIMES]))
    if _State.fault in ("network", "application"):
        self._browsers.discard()  # Its cache has the pages.
    try:
        return _play(self, task, attempt, guidance)
    finally:
        _State.fault = ""


def _runner_sabotaged(self: Worker, environment: Environment) -> Any:
    return _runner(self, Sabotaged(environment, _State.fault, self._browsers))  # pyright: ignore[reportArgumentType]


def _get_sabotaged(self: PageHandler) -> None:
    if _State.fault == "application":
        self.close_connection = True
        self.connection.close()
        return
    _get(self)


Worker._play, Worker._runner = _play_sabotaged, _runner_sabotaged
PageHandler.do_GET = _get_sabotaged
fleet_play.run_tasks = _run_tasks_sabotaged

if __name__ == "__main__":
    with user_errors():
        play(PlayRequest.model_validate_json(Path(sys.argv[1]).read_bytes()))
