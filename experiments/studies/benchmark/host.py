"""What Linux knows of this process's memory and of the machine's load."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

_PROC = Path("/proc")
_LIBC = ctypes.CDLL(None)


def reset_peak() -> None:
    """Forgets the process's highest memory use so far."""
    # What loading and compiling freed is not what a step needs.
    _LIBC.malloc_trim(0)
    (_PROC / "self" / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """The process's highest resident memory since the last reset."""
    fields = dict(line.split(":", 1) for line in (_PROC / "self" / "status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def others_seconds() -> float:
    """CPU seconds that all other processes have used; differences of it tell who else computes."""
    user, nice, system, _idle, _wait, *interrupts = (
        _PROC.joinpath("stat").read_text().split("\n")[0].split()[1:]
    )
    ticks = sum(map(int, (user, nice, system, *interrupts[:3])))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
