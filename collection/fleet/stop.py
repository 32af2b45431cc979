"""A polite end: a signal asks the fleet to let running episodes end, and to begin no more."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from rmsweb_jax.errors import UserError

# SIGTERM: what Kubernetes, Slurm and a machine that is taken back send. SIGUSR1: what
# `sbatch --signal=USR1@300` sends before the time is up.
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StoppedError(UserError):
    """The run was asked to stop; a scheduler may start the same command again (EX_TEMPFAIL)."""

    exit_code = 75

    def __init__(self) -> None:
        super().__init__("stopped; every finished episode is kept: run the same command again to continue")


class StopRequest(contextlib.AbstractContextManager["StopRequest"]):
    """While it is active, a first SIGTERM sets `asked`, and a second one ends at once, as Ctrl-C does.

    Outside the main thread, which alone gets signals, nothing is asked.

    Args:
      wake: called at the first signal.
    """

    def __init__(self, wake: Callable[[], None]):
        self.asked = False
        self._wake = wake
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hear) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise StoppedError
        self.asked = True
        self._wake()
