"""Append-only file of records, of which a crash loses at most the one that is being written.

Each line is `length checksum record`: the length and CRC-32 of the record's bytes, and these (JSON without
line breaks). Every line is synced to disk before `append` returns.
"""

from __future__ import annotations

import dataclasses
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, sync_folder, write_all

_START = re.compile(rb"\d{1,19} [0-9a-f]{8} ")


@dataclasses.dataclass(frozen=True)
class JournalLine:
    """A line of a journal.

    Attributes:
      number: number of the line, from 1.
      data: its bytes in the file.
      record: the record, or None if the line is damaged.
      last: True for the last line, which a stopped writer may have left unfinished.
    """

    number: int
    data: bytes
    record: bytes | None
    last: bool

    @property
    def torn(self) -> bool:
        """True if the line was never finished, so that its `append` never returned."""
        return self.last and not self.data.endswith(b"\n")


class Journal:
    """Appends records durably; allows one writer at a time.

    Opening removes an unfinished last line of a killed writer.

    Raises:
      UserError: a line before the last is damaged.
    """

    def __init__(self, path: Path):
        make_folder(path.parent)
        good = sum(len(line.data) for line in whole_lines(path)) if path.exists() else 0
        # Unbuffered: bytes of a failed write must not be written again with the next record.
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        if self._file.tell() != good:
            # Appending to an unfinished line would damage it and the new record.
            os.ftruncate(self._file.fileno(), good)
            os.fsync(self._file.fileno())
        sync_folder(path.parent)

    def append(self, record: bytes) -> int:
        """Writes one record, which is on disk when this returns.

        Returns:
          Its location, for `read_record`.

        Raises:
          OSError: the disk is full; the journal still holds all earlier records.
        """
        if b"\n" in record:
            raise ValueError("a journal record must be one line")
        descriptor = self._file.fileno()
        start = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, _line(record))
            os.fsync(descriptor)
        except OSError:
            # A part of a line before later records would be damage, not a torn last line.
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


def read_journal(path: Path) -> list[bytes]:
    """Reads all whole records, oldest first; none if there is no file. Drops an unfinished last line.

    Raises:
      UserError: a line before the last is damaged, which a crash of a writer cannot cause.
    """
    return list(iter_journal(path)) if path.exists() else []


def iter_journal(path: Path) -> Iterator[bytes]:
    """Yields what `read_journal` returns, from an existing file; raises when it reaches the damage."""
    for line in whole_lines(path):
        if line.record is not None:
            yield line.record


def read_record(path: Path, place: int) -> bytes:
    """Reads the record at the location that `append` returned (bytes from the file's start).

    Raises:
      UserError: there is no whole record.
    """
    with open(path, "rb") as file:
        file.seek(place)
        record = _parse(file.readline())
    if record is None:
        raise UserError(
            f"{path}: no whole record at byte {place}: restore the file, or use another --workdir"
        )
    return record


def is_journal(path: Path) -> bool:
    """Returns whether a file is a journal, by its first line: the folder may hold other JSONL files."""
    with open(path, "rb") as file:
        return _START.match(file.read(32)) is not None


def scan_journal(path: Path) -> Iterator[JournalLine]:
    """Yields all lines, damaged ones too; one may be appended meanwhile."""

    def next_line(file: BinaryIO) -> bytes:
        line = file.readline()
        # The end of the file may have been in the middle of a line that is being written.
        while line and not line.endswith(b"\n") and (rest := file.readline()):
            line += rest
        return line

    with open(path, "rb") as file:
        data, number = next_line(file), 1
        while data:
            after = next_line(file)
            yield JournalLine(number, data, _parse(data), not after)
            data, number = after, number + 1


def whole_lines(path: Path) -> Iterator[JournalLine]:
    """Yields the lines with a record. Raises as `read_journal`, when it reaches the damage."""
    for line in scan_journal(path):
        if line.record is not None:
            yield line
        elif not line.last:
            raise UserError(
                f"{path}: line {line.number} is damaged: restore the file, or continue without it: "
                f"python -m experiments.records repair --data={path.parent} --apply"
            )


def _line(record: bytes) -> bytes:
    return b"%d %08x %s\n" % (len(record), zlib.crc32(record), record)


def _parse(line: bytes) -> bytes | None:
    if not line.endswith(b"\n"):
        return None
    parts = line[:-1].split(b" ", 2)
    # Compared as written by `_line`, so that only one form of the numbers is valid.
    if len(parts) != 3 or parts[0] != b"%d" % len(parts[2]) or parts[1] != b"%08x" % zlib.crc32(parts[2]):
        return None
    return parts[2]
