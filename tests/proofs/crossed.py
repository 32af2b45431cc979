"""Counts the files that a piece of work crosses, as a reader of its code would have to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PRODUCT = ("collection", "rmsweb_jax")


def crossed(work: Callable[[], Any]) -> dict[str, int]:
    """Runs some work; returns the files of the product whose functions ran, with their number.

    Imports and what a cache answers do not count, so call it once in a fresh process.
    """
    called: set[tuple[str, str, int]] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            called.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files: dict[str, int] = {}
    for name, *_ in called:
        path = Path(name)
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PRODUCT:
            inside = str(path.relative_to(ROOT))
            files[inside] = files.get(inside, 0) + 1
    return dict(sorted(files.items()))
