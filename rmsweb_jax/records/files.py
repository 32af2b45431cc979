"""Small files that are either whole or absent."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

# The random part is hexadecimal; earlier versions put the process number there.
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
    # Random, since process numbers repeat among the hosts that share a disk.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def is_temporary(path: Path) -> bool:
    """Whether `path` has a name that `replacing` gives: once no writer runs, what a crash left."""
    return _TEMPORARY.fullmatch(path.name) is not None


def write_all(descriptor: int, data: bytes) -> None:
    """Writes every byte; the system may take a part only at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents, durably: a file in a folder that a power cut takes is lost too."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable: without it a rename can be lost in a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
