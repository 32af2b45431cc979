"""The process's own highest memory use (Linux)."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc/self")


def reset_peak() -> None:
    """Forgets the highest use so far."""
    (_PROC / "clear_refs").write_text("5")


def peak_bytes() -> int:
    """Highest resident memory since the last reset."""
    fields = dict(line.split(":", 1) for line in (_PROC / "status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024
