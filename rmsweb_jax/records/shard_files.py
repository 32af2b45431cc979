"""Single ArrayRecord files.

An ArrayRecord file whose writer was killed is lost as a whole, and a truncated one claims to hold
no records without any error. So a shard is written under a temporary name, closed, counted, forced
to disk and renamed, and every reader compares it with what the manifest says.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import replacing
from rmsweb_jax.records.manifest import AGAIN, Shard, check_size

# For records here and there: nothing is read ahead.
_RANDOM_READS = "readahead_buffer_size:0"
# Grain reads single records in random order: a group of one is decompressed for each.
_WRITER_OPTIONS = "group_size:1"
_FREE = "free disk space and run the same command again"


def write_shard(path: Path, entries: list[bytes]) -> Shard:
    """Writes one file of records durably.

    Raises:
      UserError: it could not be written whole; nothing is left of it then.
    """
    try:
        with replacing(path) as temporary:
            writer = ArrayRecordWriter(str(temporary), _WRITER_OPTIONS)
            for entry in entries:
                writer.write(entry)
            writer.close()
            if _count(temporary) != len(entries):
                raise UserError(f"{path}: could not be written whole: {_FREE}")
            size, sha256 = temporary.stat().st_size, _file_sha256(temporary)
    except RuntimeError as error:
        raise UserError(f"{path}: could not be written ({' '.join(str(error).split())}): {_FREE}") from error
    return Shard(
        file=path.name, records=len(entries), bytes=size, sha256=sha256, content=content_sha256(entries)
    )


def read_shard(folder: Path, shard: Shard) -> list[bytes]:
    """The records of a file that is just as it was written.

    Raises:
      UserError: it is missing, truncated or changed.
    """
    check_shard(folder, shard)
    path = folder / shard.file
    reader = ArrayRecordReader(str(path))
    try:
        entries = reader.read_all() if reader.ok() else []
    finally:
        reader.close()
    if len(entries) != shard.records:
        raise UserError(f"{path}: {len(entries)} records, the manifest says {shard.records}: {AGAIN}")
    return entries


def iter_shard(folder: Path, shard: Shard, at_once: int = 32) -> Iterator[bytes]:
    """As `read_shard`, with few records in memory at a time.

    Raises:
      UserError: as `read_shard`.
    """
    check_shard(folder, shard)
    for first in range(0, shard.records, at_once):
        yield from read_entries(folder, shard, range(first, min(first + at_once, shard.records)))


def read_entries(folder: Path, shard: Shard, numbers: Sequence[int]) -> list[bytes]:
    """Single records of a shard that has been checked, by their numbers in it (0-based).

    Raises:
      UserError: the file does not give them.
    """
    path = folder / shard.file
    check_size(path, shard)
    # A reader that has met damage says so by the error of any call, `close` too.
    with (
        contextlib.suppress(RuntimeError),
        contextlib.closing(ArrayRecordReader(str(path), _RANDOM_READS)) as reader,
    ):
        if reader.ok() and reader.num_records() == shard.records:
            return reader.read(list(numbers))
    raise UserError(f"{path}: does not hold the {shard.records} records of the manifest: {AGAIN}")


def check_shard(folder: Path, shard: Shard) -> None:
    """Refuses a file that is not as it was written.

    Raises:
      UserError: it is missing, truncated or changed.
    """
    path = folder / shard.file
    check_size(path, shard)
    if _file_sha256(path) != shard.sha256:
        raise UserError(f"{path}: shard has changed since it was written: {AGAIN}")


def is_intact(folder: Path, shard: Shard) -> bool:
    """Whether the file is there and its checksum right."""
    path = folder / shard.file
    return path.exists() and _file_sha256(path) == shard.sha256


def content_sha256(entries: Iterable[bytes]) -> str:
    """A digest of the records and where each ends, however they are compressed."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(b"%d " % len(entry))
        digest.update(entry)
    return digest.hexdigest()


def _count(path: Path) -> int:
    """Number of records, 0 when the file is not sound."""
    reader = ArrayRecordReader(str(path))
    try:
        return reader.num_records() if reader.ok() else 0
    finally:
        reader.close()


def _file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
