"""Files of an episode: a folder with plain file names, and the browser's downloads on their way there."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import shutil
import time

from collection.browser.config import BrowserLostError
from collection.browser.pdf import PdfError, pdf_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
MAX_FILE_CHARS = 1_000_000
MAX_FILES = 100
# Suffixes of Chromium's unfinished downloads.
_PARTIAL = (".crdownload", ".tmp")
_WAIT_S = 10.0
# A page can start any number of downloads; the first ones are kept and reported, the others removed.
MAX_AT_ONCE = 10
_DISK_FACTOR = 10  # Limit for all files, in limits of one file; unfinished downloads cannot be cancelled.


class FileError(Exception):
    """A file action failed; the message is shown to the agent."""


class FileFolder:
    """A folder that one episode reads and writes by plain file names."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def path(self, name: str) -> pathlib.Path:
        """Returns the path of a file in this folder. Raises FileError unless `name` is a plain file name."""
        path = self.folder / name
        if not _NAME.fullmatch(name) or path.is_symlink():
            raise FileError(f"{name[:100]!r} is not a plain file name")
        return path

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    def read(self, name: str) -> str:
        """Returns the text of a file or of a PDF's pages, at most `MAX_FILE_CHARS` characters."""
        path = self.path(name)
        if not path.is_file():
            raise FileError(f"No file {name}; there is: {', '.join(self.names()) or 'none'}")
        try:
            if path.suffix.lower() == ".pdf":
                return pdf_text(path)
            with path.open(encoding="utf-8-sig") as file:
                text = file.read(MAX_FILE_CHARS)
        except PdfError as error:
            raise FileError(f"{name} {error}") from error
        except UnicodeDecodeError as error:
            raise FileError(f"{name} is not text") from error
        if "\0" in text:
            raise FileError(f"{name} is not text")
        return text

    def write(self, name: str, content: str, append: bool) -> bool:
        """Writes or appends; returns True if the file has changed."""
        path = self.path(name)
        old = self.read(name) if path.is_file() else None
        new = (old or "") + content if append else content
        if len(new) > MAX_FILE_CHARS:
            raise FileError(f"{name} would be longer than {MAX_FILE_CHARS} characters")
        if old is None and self.is_full():
            raise FileError(f"There are {MAX_FILES} files already")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8")
        except (OSError, UnicodeEncodeError) as error:
            raise FileError(f"{name} cannot be written: {error}") from error
        return new != old

    def is_full(self) -> bool:
        """Returns True if no other file may be added."""
        return len(self.names()) >= MAX_FILES

    def replace(self, name: str, old: str, new: str) -> int:
        """Replaces every occurrence; returns their number."""
        if not old:
            raise FileError("old_str is empty")
        text = self.read(name)
        if old not in text:
            raise FileError(f"{name} does not contain {old[:100]!r}")
        self.write(name, text.replace(old, new), append=False)
        return text.count(old)


@dataclasses.dataclass(frozen=True)
class Download:
    """A finished or failed download.

    Attributes:
      name: file name in the episode's folder.
      size: bytes.
      problem: reason of the failure; empty if the file is there.
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
    """The browser's download folder.

    Args:
      folder: the browser's download folder.
      max_mb: size limit of a finished file. Unfinished files are limited by the guard and, all
        together, by ten times this size; then the browser is abandoned.
    """

    def __init__(self, folder: pathlib.Path, max_mb: int) -> None:
        self.folder = folder
        self._max_bytes = max_mb * 1_000_000
        self._reported: set[str] = set()
        folder.mkdir(exist_ok=True)

    def clear(self) -> None:
        """Removes all files."""
        for path, _ in self._files():
            path.unlink(missing_ok=True)
        self._reported.clear()

    def take(self, files: FileFolder | None) -> list[Download]:
        """Moves finished downloads to the episode's files; waits up to 10 s for unfinished ones.

        Args:
          files: None if the episode has no file folder; downloads are then removed.

        Raises:
          BrowserLostError: downloads that cannot be stopped fill the disk.
        """
        deadline = time.monotonic() + _WAIT_S
        while self.arriving() and time.monotonic() < deadline:
            time.sleep(0.05)
        if sum(size for _, size in self._files()) > _DISK_FACTOR * self._max_bytes:
            raise BrowserLostError("the browser's downloads fill the disk")
        taken = []
        for path, size in self._files():
            partial = path.name.endswith(_PARTIAL)
            whole = path.name.removesuffix(_PARTIAL[0])
            if partial and (size <= self._max_bytes or whole in self._reported):
                continue
            if whole not in self._reported:  # Else it was reported while it was unfinished.
                name = _plain_name(whole)
                problem = self._problem(size, len(taken), files)
                if not problem and files is not None:
                    name = _free_name(files, name)
                    problem = _move(path, files.folder / name)
                taken.append(Download(name, size, problem))
            if partial:
                self._reported.add(whole)  # It goes on: cancelling needs an id that only events have.
            else:
                path.unlink(missing_ok=True)
        return taken

    def arriving(self) -> bool:
        """Returns True while an unfinished file is within the size limit."""
        return any(path.name.endswith(_PARTIAL) and size <= self._max_bytes for path, size in self._files())

    def _problem(self, size: int, before: int, files: FileFolder | None) -> str:
        if size > self._max_bytes:
            return f"larger than {self._max_bytes // 1_000_000} MB"
        if files is None:
            return "there is no file folder"
        if before >= MAX_AT_ONCE:
            return f"more than {MAX_AT_ONCE} files at once"
        return "the file folder is full" if files.is_full() else ""

    def _files(self) -> list[tuple[pathlib.Path, int]]:
        """Returns the files in the folder with their sizes, oldest first."""
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat(), path))
        found.sort(key=lambda one: (one[0].st_mtime_ns, one[1]))
        return [(path, status.st_size) for status, path in found]


def _move(path: pathlib.Path, to: pathlib.Path) -> str:
    """Moves a file; returns the reason if that failed, else an empty text."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, to)
    except OSError as error:
        to.unlink(missing_ok=True)
        return error.strerror or type(error).__name__
    return ""


def _plain_name(name: str) -> str:
    """Returns a name that `FileFolder` accepts, with the same extension."""
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
