"""Processes of a run, by kind."""

from __future__ import annotations

import psutil

KINDS = ("worker", "driver", "browser")


def kind_of(process: psutil.Process) -> str:
    """One of `KINDS`, or empty for other processes.

    Raises:
      psutil.Error: it is gone.
    """
    command = process.cmdline()
    name = process.name()
    if name.startswith("chromedriver"):
        return "driver"
    if name.startswith("chrom"):
        # The first of a browser's processes; the others have a type.
        return "" if any(part.startswith("--type=") for part in command) else "browser"
    if any("spawn_main" in part for part in command) or "".join(command[:1]).startswith("ray::_Actor"):
        return "worker"
    return ""
