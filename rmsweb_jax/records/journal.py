"""Append-only file of records as JSON lines, of which a crash loses at most the one that is being written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, sync_folder, write_all

_BLOCK = 1 << 20


class Journal:
    """Appends records durably; allows one writer at a time.

    Opening cuts off what a killed writer left after the last line break.
    """

    def __init__(self, path: Path):
        make_folder(path.parent)
        # Unbuffered: bytes of a failed write must not be written again with the next record.
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed by close()
        self._file.truncate(_whole_bytes(path))
        os.fsync(self._file.fileno())
        sync_folder(path.parent)

    def append(self, record: bytes) -> int:
        """Writes one record (JSON without line breaks), which is on disk when this returns.

        Returns:
          Its place, for `read_record`.

        Raises:
          OSError: the disk is full; the journal still holds all earlier records.
        """
        if b"\n" in record:
            raise ValueError("a journal record must be one line")
        descriptor = self._file.fileno()
        start = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, record + b"\n")
            os.fsync(descriptor)
        except OSError:
            # The next record must not continue a part of this one.
            os.ftruncate(descriptor, start)
            raise
        return start

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def iter_journal(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields all whole records, oldest first, each with its place (bytes from the file's start)."""
    place = 0
    with open(path, "rb") as file:
        for line in file:
            # The last line may be unfinished: its writer was killed, or is writing it now.
            if not line.endswith(b"\n"):
                return
            yield place, line[:-1]
            place += len(line)


def read_journal(path: Path) -> list[bytes]:
    """Reads all whole records, oldest first; none if there is no file."""
    return [record for _, record in iter_journal(path)] if path.exists() else []


def read_record(path: Path, place: int) -> bytes:
    """Reads the record at a place that `append` or `iter_journal` returned.

    Raises:
      UserError: there is no whole record.
    """
    with open(path, "rb") as file:
        file.seek(place)
        line = file.readline()
    if not line.endswith(b"\n"):
        raise UserError(
            f"{path}: no whole record at byte {place}: restore the file, or use another --workdir"
        )
    return line[:-1]


def _whole_bytes(path: Path) -> int:
    """Length of a file up to its last line break."""
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            file.seek(start)
            if (found := file.read(end - start).rfind(b"\n")) >= 0:
                return start + found + 1
            end = start
    return 0
