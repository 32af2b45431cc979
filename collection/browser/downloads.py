"""What a browser downloads: into a folder of its own first, then by a safe name to the episode's files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import time

from collection.browser.errors import BrowserLostError
from collection.browser.files import FileFolder

# What Chromium calls a file that is still coming in.
_PARTIAL = (".crdownload", ".tmp")
_WAIT_S = 10.0
# A storm of downloads is told by its first ones; the others are removed.
MAX_AT_ONCE = 10
_DISK_FACTOR = 10


@dataclasses.dataclass(frozen=True)
class Download:
    """A file that arrived, or one that did not.

    Attributes:
      name: in the episode's file folder.
      size: bytes.
      problem: why it is not there; empty when it is.
    """

    name: str
    size: int
    problem: str = ""

    @property
    def text(self) -> str:
        if self.problem:
            return f"Download of {self.name} failed: {self.problem}"
        return f"Downloaded {self.name} ({self.size} bytes)"


class Downloads:
    """The files that a browser has downloaded and nobody has taken yet.

    Args:
      folder: where the browser puts them; None where that cannot be known (a grid).
      max_mb: longer ones are removed. Those still coming in are bounded by the guard's proxy and, all
        together, by ten times this: then the browser is given up.
    """

    def __init__(self, folder: pathlib.Path | None, max_mb: int) -> None:
        self.folder = folder
        self._max_bytes = max_mb * 1_000_000
        self._told: set[str] = set()
        if folder is not None:
            folder.mkdir(exist_ok=True)

    def clear(self) -> None:
        """Forgets what has arrived."""
        for path in self._paths():
            path.unlink(missing_ok=True)
        self._told.clear()

    def take(self, files: FileFolder | None) -> list[Download]:
        """Moves what has arrived to the episode's files, waiting a while for what is arriving.

        Args:
          files: None: the episode keeps no files, they are removed.

        Raises:
          BrowserLostError: downloads that cannot be stopped fill the disk.
        """
        deadline = time.monotonic() + _WAIT_S
        while self.arriving() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._bytes() > _DISK_FACTOR * self._max_bytes:
            raise BrowserLostError("the browser's downloads fill the disk")
        taken = []
        for path in self._paths():
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                partial = path.name.endswith(_PARTIAL)
                whole = path.name.removesuffix(_PARTIAL[0])
                if partial and (size <= self._max_bytes or whole in self._told):
                    continue
                if whole in self._told:  # Told while it came in.
                    path.unlink(missing_ok=True)
                    continue
                name = _plain_name(whole)
                problem = self._problem(size, len(taken), files)
                if not problem and files is not None:
                    name = _free_name(files, name)
                    problem = _move(path, files.folder / name)
                if partial:
                    self._told.add(whole)  # Without its event's number it cannot be cancelled.
                else:
                    path.unlink(missing_ok=True)
                taken.append(Download(name, size, problem))
        return taken

    def arriving(self) -> bool:
        """Whether a file is coming in that may still become one to keep."""
        for path in self._paths():
            with contextlib.suppress(FileNotFoundError):
                if path.name.endswith(_PARTIAL) and path.stat().st_size <= self._max_bytes:
                    return True
        return False

    def _bytes(self) -> int:
        total = 0
        for path in self._paths():
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _problem(self, size: int, before: int, files: FileFolder | None) -> str:
        if size > self._max_bytes:
            return f"larger than {self._max_bytes // 1_000_000} MB"
        if files is None:
            return "there is no file folder"
        if before >= MAX_AT_ONCE:
            return f"more than {MAX_AT_ONCE} files at once"
        return "the file folder is full" if files.is_full() else ""

    def _paths(self) -> list[pathlib.Path]:
        """What is in the folder, oldest first."""
        if self.folder is None:
            return []
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime_ns, entry.path))
        return [pathlib.Path(path) for _, path in sorted(found)]


def _move(path: pathlib.Path, to: pathlib.Path) -> str:
    """Moves a file; why that failed, or an empty text."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, to)
    except OSError as error:
        to.unlink(missing_ok=True)
        return error.strerror or type(error).__name__
    return ""


def _plain_name(name: str) -> str:
    """A name that `FileFolder` takes, with the extension that it had."""
    stem, dot, extension = name.rpartition(".")
    if not dot:
        stem, extension = name, ""
    stem = re.sub(r"[^A-Za-z0-9._ -]+", "_", stem).strip("._ -")[:60] or "download"
    extension = re.sub(r"[^A-Za-z0-9]+", "", extension)[:10]
    return f"{stem}.{extension}" if extension else stem


def _free_name(files: FileFolder, name: str) -> str:
    taken, number, free = set(files.names()), 1, name
    stem, dot, extension = name.rpartition(".")
    while free in taken:
        number += 1
        free = f"{stem}-{number}.{extension}" if dot else f"{name}-{number}"
    return free
