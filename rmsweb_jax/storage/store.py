"""Whole objects under keys: the interface that a disk and a bucket have in common.

There is no append, rename, link or lock, since buckets have none. A write is visible whole or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from rmsweb_jax.records.files import is_temporary, make_folder, replacing, sync_folder, write_atomic


class Entry(NamedTuple):
    """An object in a listing.

    Attributes:
      size: in bytes.
      version: of an object in a bucket; every write changes it.
    """

    key: str
    size: int
    version: str = ""


class Store(Protocol):
    """Objects under keys such as `runs/a/report.json`.

    Reads raise FileNotFoundError for a key that does not exist, and all methods raise UserError when the
    store cannot be reached or refuses the request.
    """

    def read(self, key: str) -> bytes: ...

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Reads the bytes [start, stop); fewer where the object ends before."""
        ...

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Reads an object and its version, for `replace`."""
        ...

    def write(self, key: str, data: bytes) -> None: ...

    def upload(self, key: str, file: Path) -> None:
        """Writes an object with the bytes of a file, which need not fit into memory."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object that does not exist yet.

        Returns:
          False if there is one with other bytes. Writers that must not mistake each other's objects for
          their own put something random into them: equal bytes count as one's own write, whose reply may
          have been lost.
        """
        ...

    def replace(self, key: str, data: bytes, version: str) -> bool:
        """Writes an object if it still has a version that `read_version` returned; False if it has not."""
        ...

    def entries(self, prefix: str) -> list[Entry]:
        """Lists all objects whose keys begin with `prefix`, sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        ...

    def size(self, key: str) -> int | None:
        """Returns the bytes of an object; None if there is none."""
        ...


class LocalStore:
    """The files of a folder as objects; see `Store`.

    Conditional writes are safe against each other on a disk with locks, and not against `write`.
    """

    def __init__(self, root: Path):
        self._root = root

    def read(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        with open(self._root / key, "rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def read_version(self, key: str) -> tuple[bytes, str]:
        data = self.read(key)
        return data, hashlib.sha256(data).hexdigest()

    def write(self, key: str, data: bytes) -> None:
        path = self._root / key
        make_folder(path.parent)
        write_atomic(path, data)

    def upload(self, key: str, file: Path) -> None:
        path = self._root / key
        make_folder(path.parent)
        with replacing(path) as temporary:
            shutil.copyfile(file, temporary)

    def create(self, key: str, data: bytes) -> bool:
        with self._locked():
            if (self._root / key).exists():
                return self.read(key) == data
            self.write(key, data)
            return True

    def replace(self, key: str, data: bytes, version: str) -> bool:
        with self._locked():
            if not (self._root / key).exists() or self.read_version(key)[1] != version:
                return False
            self.write(key, data)
            return True

    def entries(self, prefix: str) -> list[Entry]:
        paths = (path for path in self._root.rglob("*") if path.is_file() and not is_temporary(path))
        entries = [Entry(str(path.relative_to(self._root)), path.stat().st_size) for path in paths]
        return sorted(entry for entry in entries if entry.key.startswith(prefix) and entry.key != _LOCK)

    def delete(self, key: str) -> None:
        path = self._root / key
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)

    def size(self, key: str) -> int | None:
        path = self._root / key
        return path.stat().st_size if path.is_file() else None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self._root)
        with open(self._root / _LOCK, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


_LOCK = ".store.lock"
