"""The files of an episode: plain names in one folder, nothing outside it."""

from __future__ import annotations

import pathlib
import re

from collection.browser.pdf import PdfError, pdf_text

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
MAX_FILE_CHARS = 1_000_000
MAX_FILES = 100


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
        """A file's text, of a PDF that of its pages; at most `MAX_FILE_CHARS` characters."""
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
        """Writes or appends; True when the file is different afterwards."""
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
        """Whether no other file may be added."""
        return len(self.names()) >= MAX_FILES

    def replace(self, name: str, old: str, new: str) -> int:
        """Replaces every occurrence and returns how many there were."""
        if not old:
            raise FileError("old_str is empty")
        text = self.read(name)
        if old not in text:
            raise FileError(f"{name} does not contain {old[:100]!r}")
        self.write(name, text.replace(old, new), append=False)
        return text.count(old)
