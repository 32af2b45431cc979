"""The data sets and runs below the given folders, by name. Nothing outside these folders has a name."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.shards import read_manifest

# For so many seconds the folders are not looked through again.
_KNOWN_S = 2.0
# Files that mark a folder as a run, and folders that have none below them.
_MARKS = ("report.json", "progress.json", "manifest.json", "results.jsonl", "metrics.jsonl")
_SKIPPED = frozenset(("images", "tensorboard", "checkpoints", "export", "files", "live", "frozen", "server"))


@dataclasses.dataclass(frozen=True)
class Found:
    """What a folder holds.

    Attributes:
      kind: of the records of its data set; "" for none.
      problem: why its data set cannot be read.
    """

    name: str
    path: Path
    files: frozenset[str]
    kind: str = ""
    problem: str = ""

    def json(self, file: str) -> dict[str, Any]:
        """Reads one of its JSON files; empty if it is not there or damaged."""
        return next(iter(self.lines(file, whole=True)), {})

    def lines(self, file: str, whole: bool = False) -> list[dict[str, Any]]:
        """Reads the whole lines of one of its JSONL files, or a `whole` JSON file; others are left out."""
        try:
            text = (self.path / file).read_bytes()
        except OSError:
            return []
        found = []
        for line in [text] if whole else text.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found

    def written(self, *files: str) -> float:
        """When the newest of its files, or of some of them, was written, in seconds since 1970; 0: never."""
        return max((_state(self.path / name)[0] / 1e9 for name in files or self.files), default=0.0)


class Folders:
    """Looks through the roots, at most every two seconds.

    Args:
      roots: folders on disk.

    Raises:
      UserError: one of them is not a folder, or two have the same name.
    """

    def __init__(self, roots: Sequence[Path]):
        self._roots: dict[str, Path] = {}
        for root in roots:
            if not root.is_dir():
                raise UserError(f"{root}: no such folder")
            name = root.resolve().name
            if name in self._roots:
                raise UserError(f"{root}: {self._roots[name]} has the same name: give the folder above both")
            self._roots[name] = root
        self._lock = threading.Lock()
        self._found: dict[str, Found] = {}
        self._at = -_KNOWN_S

    def all(self) -> dict[str, Found]:
        """Name -> folder of a run or a data set, sorted."""
        with self._lock:
            if time.monotonic() - self._at >= _KNOWN_S:
                self._found = {one.name: one for root in self._roots.items() for one in _walk(*root)}
                self._at = time.monotonic()
            return self._found

    def find(self, name: str, file: str = "") -> Found | None:
        """The folder of that name, if it has the file; looks again if it was not there a moment ago."""
        for _ in range(2):
            found = self.all().get(name)
            if found is not None and (not file or file in found.files):
                return found
            self._at = -_KNOWN_S
        return None

    def datasets(self, kind: str) -> dict[str, Path]:
        """Name -> folder of the data sets of one kind."""
        return {name: found.path for name, found in self.all().items() if found.kind == kind}


def _walk(name: str, root: Path) -> list[Found]:
    found = []
    for folder, below, files in os.walk(root):
        below[:] = sorted(one for one in below if one not in _SKIPPED and not one.startswith("."))
        if not set(_MARKS) & set(files):
            continue
        path = Path(folder)
        # The episodes of a fleet that has not ended are in its journal.
        kind, problem = "trajectories" if EPISODES in files else "", ""
        if "manifest.json" in files:
            named, problem = _kind(path, _state(path / "manifest.json"))
            # One that is being written, or whose writer was killed, is still in the journal.
            kind, problem = (named, problem) if named or not kind else (kind, "")
        names = (name, *path.relative_to(root).parts)
        found.append(Found("/".join(names), path, frozenset(files), kind, problem))
    return found


@functools.lru_cache(maxsize=4096)
def _kind(folder: Path, state: tuple[int, int]) -> tuple[str, str]:
    """Kind of a folder's data set, and why it cannot be read."""
    try:
        return read_manifest(folder).kind, ""
    except (UserError, OSError) as error:
        return "", str(error)


def _state(path: Path) -> tuple[int, int]:
    """Time of change in nanoseconds, and size; zeros for a file that is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
