"""A disk that keeps nothing but what was forced to it: the worst that a power cut may leave."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.records.crash import Disk, Point


@dataclasses.dataclass
class _File:
    """A file under any name, with the bytes of its last fsync; None for a folder."""

    data: bytes | None


class PowerCut(Disk):
    """Stops before an operation; `restore` then shows what the disk holds after the power is back.

    A file has the bytes of its last fsync, and none before the first; a folder has the names of its last.
    What is there at the beginning is durable.
    """

    def __init__(self, root: Path, point: Point | None = None):
        super().__init__(root, point)
        self._files: dict[int, _File] = {}
        self._names: dict[str, _File] = {}
        self._sync_folder(self._root)
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                self._sync_folder(str(path))
            else:
                self._file(str(path)).data = path.read_bytes()

    def run(self, name: str, path: str, do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        gone = (
            os.stat(path).st_ino if name in ("unlink", "rmdir", "replace") and os.path.exists(path) else None
        )
        last = gone is not None and (name == "rmdir" or os.stat(path).st_nlink == 1)
        result = super().run(name, path, do, half)
        if gone is not None and last:
            del self._files[gone]  # Its number may be given to another file.
        if name == "fsync":
            if os.path.isdir(path):
                self._sync_folder(path)
            else:
                self._file(path).data = Path(path).read_bytes()
        return result

    def restore(self, folder: Path) -> None:
        """Writes what is durable to another, empty folder."""
        for path, file in sorted(self._names.items()):
            target = folder / os.path.relpath(path, self._root)
            if target.parent.is_dir():
                target.mkdir() if file.data is None else target.write_bytes(file.data)

    def _file(self, path: str) -> _File:
        empty = _File(None if os.path.isdir(path) else b"")
        return self._files.setdefault(os.stat(path).st_ino, empty)

    def _sync_folder(self, folder: str) -> None:
        for path in [path for path in self._names if os.path.dirname(path) == folder]:
            del self._names[path]
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            self._names[path] = self._file(path)
