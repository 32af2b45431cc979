"""The files of an episode: plain names in one folder, nothing outside it."""

from __future__ import annotations

import pathlib
import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
MAX_FILE_CHARS = 1_000_000


class FileError(Exception):
    """A file action that cannot be carried out; the message goes to the agent."""


class FileFolder:
    """A folder that one episode reads and writes by plain file names."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def path(self, name: str) -> pathlib.Path:
        """The path of a file of this folder. Raises FileError for anything but a plain name."""
        path = self.folder / name
        if not _NAME.fullmatch(name) or path.is_symlink():
            raise FileError(f"{name[:100]!r} is not a plain file name")
        return path

    def names(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())

    def read(self, name: str) -> str:
        path = self.path(name)
        if not path.is_file():
            raise FileError(f"No file {name}; there is: {', '.join(self.names()) or 'none'}")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise FileError(f"{name} is not text") from error

    def write(self, name: str, content: str, append: bool) -> bool:
        """Writes or appends; True when the file is different afterwards."""
        path = self.path(name)
        old = self.read(name) if path.is_file() else None
        new = (old or "") + content if append else content
        if len(new) > MAX_FILE_CHARS:
            raise FileError(f"{name} would be longer than {MAX_FILE_CHARS} characters")
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(new, encoding="utf-8")
        return new != old

    def replace(self, name: str, old: str, new: str) -> int:
        """Replaces every occurrence and returns how many there were."""
        if not old:
            raise FileError("old_str is empty")
        text = self.read(name)
        if old not in text:
            raise FileError(f"{name} does not contain {old[:100]!r}")
        self.write(name, text.replace(old, new), append=False)
        return text.count(old)
