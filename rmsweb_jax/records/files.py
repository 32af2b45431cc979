"""Atomic and durable writes of small files."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

# The part before `.tmp` is hexadecimal: random, or the process number of earlier versions.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]+\.tmp")


def write_atomic(path: Path, data: bytes) -> None:
    """Writes `data` so that a reader, or a later run after a crash, sees all of it or nothing.

    Raises:
      OSError: the disk is full or the folder cannot be written; `path` is then unchanged.
    """
    with replacing(path) as temporary, open(temporary, "xb", buffering=0) as file:
        write_all(file.fileno(), data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary name next to `path`; the file becomes `path`, durably, when the block ends.

    When the block raises, the temporary file is removed and `path` unchanged.
    """
    # Random, since process numbers repeat on hosts that share a disk.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        # Synced before the rename: otherwise a power cut may leave the new name with an empty file.
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def is_temporary(path: Path) -> bool:
    """Returns True for names made by `replacing`; without a running writer they are leftovers of a crash."""
    return _TEMPORARY.fullmatch(path.name) is not None


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes; a single `os.write` may write a part only."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents durably: a power cut that loses a folder loses its files, too."""
    # From the outermost on; the entry of each new folder is in its parent.
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable; without it a power cut may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
