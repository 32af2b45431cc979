"""Episodes half of which lose their browser, their network or their application when their page was shown."""

from __future__ import annotations

import collections
import contextlib
import hashlib
from typing import ClassVar

import psutil

from collection.browser.chromium import kill_session
from collection.environments.apps.python_site import PythonSite
from collection.gym.turns import Turn, Turns
from tests.fleet.processes import kind_of

FAULTS = ("browser", "network", "application")


def fault_of(task_id: str, times: int) -> str:
    """What happens to an episode of a task that was begun so often before; "" for half of them."""
    draw = hashlib.sha256(f"{task_id}#{times}".encode()).digest()
    return FAULTS[draw[1] % len(FAULTS)] if draw[0] % 2 else ""


def apply(fault: str, turns: Turns) -> None:
    """Takes away what the fault names, from this session alone."""
    pool = turns.session._pool
    if fault == "browser" and pool._browser is not None:
        for pid in pool._browser._process.members:
            with contextlib.suppress(psutil.Error):
                if kind_of(psutil.Process(pid)) == "browser":
                    psutil.Process(pid).kill()
    elif fault == "network" and pool._guard is not None:
        pool._guard.close()
    elif fault == "application":
        for application in pool._applications.values():
            assert isinstance(application, PythonSite)
            kill_session(application._server.pid)
        if pool._server is not None:
            pool._server.close()


class SabotagedTurns(Turns):
    """Sabotaged before the first step.

    Attributes:
      begun: how often a task was begun, of all sessions of the process.
      faults: of the episodes that were begun, in order.
    """

    begun: ClassVar[collections.Counter[str]] = collections.Counter()
    faults: ClassVar[list[str]] = []

    def reset(self, seed: int, task: str = "") -> Turn:
        turn = super().reset(seed, task)
        assert self.task is not None
        fault = fault_of(self.task.task_id, self.begun[self.task.task_id])
        self.begun[self.task.task_id] += 1
        self.faults.append(fault)
        apply(fault, self)
        return turn
