"""Stopping a writer at a chosen disk operation: before it, after it, or when half of it is done."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from array_record.python.array_record_module import ArrayRecordWriter

from rmsweb_jax.records import shards

Part = Literal["before", "middle", "after"]
PHASES = ("journal", "image", "shard", "manifest")
_SYSTEM = ("write", "fsync", "replace", "ftruncate", "unlink", "mkdir", "rmdir")


class Stopped(BaseException):
    """Simulates a dead process: nothing reaches the disk after it."""


def stop() -> NoReturn:
    raise Stopped


@dataclasses.dataclass(frozen=True)
class Operation:
    """One change of the disk, or one `fsync`.

    Attributes:
      phase: what it is part of, one of `PHASES`.
      name: of the function in `os`, or `shard.write`, `shard.close`.
      path: the file that is changed; of a rename, the new name.
      parted: it has bytes, so that a part of it may be done.
    """

    phase: str
    name: str
    path: str
    parted: bool


@dataclasses.dataclass(frozen=True)
class Point:
    """The point at which the process dies.

    Attributes:
      number: 0-based, among the operations of the phase, or of all when `phase` is empty; in the middle,
        among those that can be parted.
      fraction: of its bytes that are written by an operation which is stopped in its middle.
    """

    number: int
    part: Part = "before"
    phase: str = ""
    fraction: float = 0.5


class Disk:
    """Counts what is done below `root`, and calls `die` at `point`."""

    def __init__(self, root: Path, point: Point | None = None, die: Callable[[], NoReturn] = stop):
        self.operations: list[Operation] = []
        self._root, self._point, self._die = str(root.resolve()), point, die
        self._phase, self._dead = PHASES[0], False

    @contextlib.contextmanager
    def watched(self) -> Iterator[Disk]:
        """Inside, all writers of `rmsweb_jax.records` go through this."""
        system = {name: getattr(os, name) for name in _SYSTEM}
        for name, function in system.items():
            setattr(os, name, self._wrap(name, function))
        shards.ArrayRecordWriter = self._writer
        try:
            yield self
        finally:
            for name, function in system.items():
                setattr(os, name, function)
            shards.ArrayRecordWriter = ArrayRecordWriter

    def run(self, name: str, path: str, do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Runs one operation, or the part of it before the stop; `half` where it can be parted."""
        if self._dead:
            self._end()
        self._phase = _phase(path, self._phase)
        self.operations.append(Operation(self._phase, name, path, half is not None))
        point = self._point
        if point is None or not self._fits(point, self.operations[-1]):
            return do()
        if sum(self._fits(point, one) for one in self.operations) != point.number + 1:
            return do()
        if point.part == "middle" and half is not None:
            half()
        elif point.part == "after":
            do()
        return self._end()

    @staticmethod
    def _fits(point: Point, operation: Operation) -> bool:
        return point.phase in ("", operation.phase) and (operation.parted or point.part != "middle")

    def _end(self) -> NoReturn:
        self._dead = True
        self._die()

    def _wrap(self, name: str, function: Callable) -> Callable:
        def wrapped(*args: Any, **options: Any) -> Any:
            path = _path(args[1] if name == "replace" else args[0])
            if not path.startswith(self._root):
                return function(*args, **options)

            def do() -> Any:
                return function(*args, **options)

            def half() -> Any:
                return function(args[0], args[1][: int(len(args[1]) * self._fraction)])

            return self.run(name, path, do, half if name == "write" else None)

        return wrapped

    @property
    def _fraction(self) -> float:
        return self._point.fraction if self._point else 1.0

    def _writer(self, path: str, options: str) -> _Writer:
        return _Writer(self, path, options, self._fraction)


class _Writer:
    """An ArrayRecordWriter whose file may be left half written."""

    def __init__(self, disk: Disk, path: str, options: str, fraction: float):
        self._disk, self._path, self._fraction = disk, path, fraction
        self._writer: Any = ArrayRecordWriter(path, options)

    def write(self, entry: bytes) -> None:
        self._disk.run("shard.write", self._path, lambda: self._writer.write(entry))

    def close(self) -> None:
        self._disk.run("shard.close", self._path, self._writer.close, self._close_half)

    def _close_half(self) -> None:
        self._writer.close()
        os.truncate(self._path, int(os.path.getsize(self._path) * self._fraction))


def _path(file: Any) -> str:
    return os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.path.abspath(file)


def _phase(path: str, before: str) -> str:
    """A folder's fsync belongs to what was done in it before."""
    if "/journal" in path or "/episodes.jsonl" in path:
        return "journal"
    if "/images/" in path:
        return "image"
    if ".array_record" in path:
        return "shard"
    return "manifest" if "manifest.json" in path or ".unfinished.json" in path else before
