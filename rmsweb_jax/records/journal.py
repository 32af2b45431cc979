"""A file of records that loses at most the one being written when the machine stops.

Each line is `length checksum record`: the record's bytes (JSON without line breaks) behind their
number and CRC-32. Every line is forced to disk before `append` returns.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from types import TracebackType

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import sync_folder


class Journal:
    """Appends records durably; one writer at a time.

    Opening cuts off a torn last line of an earlier, killed writer.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _, good = _scan(path)
        self._file = open(path, "ab")  # noqa: SIM115 - closed by close()
        if self._file.tell() != good:
            self._file.truncate(good)
        sync_folder(path.parent)

    def append(self, record: bytes) -> None:
        """Writes one record; it is on disk when this returns.

        Raises:
          OSError: the disk is full; the journal then holds the records before this one.
        """
        if b"\n" in record:
            raise ValueError("a journal record must be one line")
        start = self._file.tell()
        try:
            self._file.write(b"%d %08x %s\n" % (len(record), zlib.crc32(record), record))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), start)
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> list[bytes]:
    """All whole records, oldest first; none when there is no file. A torn last line is dropped.

    Raises:
      UserError: a line before the last is damaged, which no crash of a writer explains.
    """
    return _scan(path)[0]


def _scan(path: Path) -> tuple[list[bytes], int]:
    """The whole records and the number of bytes they take."""
    if not path.exists():
        return [], 0
    records, good = [], 0
    lines = re.findall(rb"[^\n]*\n|[^\n]+", path.read_bytes())
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is None:
            if number < len(lines):
                raise UserError(
                    f"{path}: line {number} is damaged: restore the file, or delete it to start anew"
                )
            break
        records.append(record)
        good += len(line)
    return records, good


def _parse(line: bytes) -> bytes | None:
    if not line.endswith(b"\n"):
        return None
    parts = line[:-1].split(b" ", 2)
    if len(parts) != 3 or parts[0] != b"%d" % len(parts[2]) or parts[1] != b"%08x" % zlib.crc32(parts[2]):
        return None
    return parts[2]
