"""A clock that several processes share, and that runs ahead while nothing happens.

A test owns a `SharedClock` and moves it. The module `sitecustomize` next to this is for the processes of a
run: with this folder in PYTHONPATH and the file's path in SHARED_CLOCK, each Python process takes its time
from the file and waits by it. A wait of an hour then takes as long as the test wants.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from pathlib import Path

FOLDER = Path(__file__).parent  # of tests.internet.clock.sitecustomize
VARIABLE = "SHARED_CLOCK"
# The file: the seconds that the clock is ahead, then slots for processes that wait: id and end of the wait.
SLOTS = 64
_HEAD, _SLOT = struct.Struct("d"), struct.Struct("qd")
_POLL_S = 0.02


class SharedClock:
    """A clock in a file.

    Args:
      path: created by this.
    """

    def __init__(self, path: Path):
        self.path = path
        path.write_bytes(bytes(_HEAD.size + SLOTS * _SLOT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._own: dict[int, float] = {}  # Ends of the waits of this process, by thread.

    @property
    def ahead(self) -> float:
        return _HEAD.unpack_from(self._map, 0)[0]

    @property
    def now(self) -> float:
        """Monotonic seconds, as the processes see them."""
        return time.monotonic() + self.ahead

    def advance(self, seconds: float) -> None:
        _HEAD.pack_into(self._map, 0, self.ahead + max(0.0, seconds))

    def wait(self, seconds: float) -> None:
        """Waits in a thread of this process, on behalf of a process that waits for its answer."""
        thread, until = threading.get_ident(), self.now + seconds
        self._own[thread] = until
        try:
            while (left := until - self.now) > 0:
                time.sleep(min(left, _POLL_S))
        finally:
            del self._own[thread]

    def waits(self) -> list[float]:
        """Returns the seconds left of each living process that waits, or whose answer waits here."""
        slots = _SLOT.iter_unpack(self._map[_HEAD.size :])
        ends = [until for pid, until in slots if pid and until and Path(f"/proc/{pid}").exists()]
        now = self.now
        return [until - now for until in (*ends, *self._own.copy().values())]
