"""Files of a data set: ArrayRecord shards of records and of PNGs, and the manifest that names them.

    FOLDER/manifest.json                        kind, provenance, and the shards in order
    FOLDER/data-00000-1f0c9a3e.array_record     record after record, as JSON
    FOLDER/images-00000-1f0c9a3e.array_record   row 0: {SHA-256: row}; then each PNG of these records once

Shards are written once, under random names, and never changed. The manifest is replaced last: what it does
not name does not exist. So readers, copies in buckets and frozen manifests always agree. ArrayRecord has
checksums of its own: it refuses a damaged shard.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from pydantic import Field, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder
from rmsweb_jax.records.schema import KINDS, SCHEMA_VERSION, Record
from rmsweb_jax.storage import AnyPath, StorePath, cache_folder, parse_path

# The remedy in error messages.
AGAIN = "make this data set again"
MANIFEST = "manifest.json"
# A group is compressed as a whole, and single records are read in random order.
_WRITER_OPTIONS = "group_size:1"
_READER_OPTIONS = "readahead_buffer_size:0"
_OPEN_FILES = 256
_THREADS = 8


class Shard(Record):
    """A finished pair of files.

    Attributes:
      data: file of the records.
      images: file of their screenshots; empty if they have none.
      bytes: of both files.
      content: SHA-256 over the records and the names of the images, by which a repeated write is recognized.
    """

    data: str
    images: str
    records: int
    bytes: int
    content: str

    @property
    def files(self) -> list[str]:
        return [name for name in (self.data, self.images) if name]


class Manifest(Record):
    """Contents of a data set folder.

    Attributes:
      provenance: origin of the records: source folders, figures, model names.
      folder: of a frozen manifest, the folder of its shards; otherwise they are next to it.
    """

    kind: str
    schema_version: int = SCHEMA_VERSION
    shards: tuple[Shard, ...] = ()
    provenance: dict[str, Any] = Field(default_factory=dict)
    folder: str = ""

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    def encode(self) -> bytes:
        """Returns the bytes of `manifest.json`."""
        return self.model_dump_json(indent=1).encode()


def read_manifest(folder: AnyPath) -> Manifest:
    """Reads the manifest of a data set.

    Raises:
      UserError: there is no finished data set, it is not a manifest, or of another schema version.
    """
    path = folder / MANIFEST
    try:
        return parse_manifest(path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no finished data set here: run the stage that makes it first") from None


def parse_manifest(text: bytes, path: AnyPath) -> Manifest:
    """Parses the bytes of a manifest; raises as `read_manifest`."""
    try:
        version = int(orjson.loads(text)["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a manifest: {AGAIN}") from error
    # Checked before the other fields, which differ between versions.
    if version > SCHEMA_VERSION:
        raise UserError(f"{path}: schema version {version} is newer than {SCHEMA_VERSION}: update rmsweb-jax")
    if version < SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {version} is older than {SCHEMA_VERSION}: python -m experiments.records "
            f"upgrade --data={path.parent} --output=NEW_FOLDER"
        )
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise UserError(f"{path}: not a manifest of version {version}: {AGAIN}") from error
    if manifest.kind not in KINDS:
        raise UserError(f"{path}: unknown kind {manifest.kind!r}: {AGAIN}")
    return manifest


def home(folder: AnyPath) -> AnyPath:
    """Returns the folder of a data set, also where a workdir has frozen its manifest."""
    named = read_manifest(folder).folder
    return parse_path(named, "folder") if named else folder


def shards_folder(folder: AnyPath, manifest: Manifest) -> Path:
    """Returns the folder on this disk that has the shards of a manifest.

    Those of a bucket are copied to `cache_folder()/data`; shards that are there already are not copied again.

    Raises:
      UserError: a shard is missing in the bucket, or cannot be copied whole.
    """
    place = parse_path(manifest.folder, "folder") if manifest.folder else folder
    if not isinstance(place, StorePath):
        return place
    target = cache_folder() / "data" / hashlib.sha256(str(place).encode()).hexdigest()[:16]
    missing = [name for shard in manifest.shards for name in shard.files if not (target / name).exists()]
    if missing:
        make_folder(target)
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(functools.partial(_fetch, place, target), missing))
    return target


def _fetch(source: StorePath, target: Path, name: str) -> None:
    try:
        (source / name).download(target / name)
    except FileNotFoundError as error:
        raise UserError(f"{source / name}: shard missing: {AGAIN}") from error
    if not _count(target / name):
        (target / name).unlink()
        raise UserError(f"{source / name}: could not be copied whole, or is damaged there: try again")


def write_rows(path: Path, rows: Iterable[bytes]) -> int:
    """Writes a new ArrayRecord file durably, with one row in memory at a time; returns their number.

    Raises:
      UserError: the file could not be written whole; it then does not exist.
    """
    number = 0
    try:
        writer = ArrayRecordWriter(str(path), _WRITER_OPTIONS)
        try:
            for row in rows:
                writer.write(row)
                number += 1
        finally:
            writer.close()
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
        # The library does not report every failed write, so the rows are counted again.
        if _count(path) != number:
            raise RuntimeError("rows are missing")
    except BaseException as error:
        path.unlink(missing_ok=True)
        if not isinstance(error, RuntimeError):
            raise
        raise UserError(
            f"{path}: could not be written whole ({' '.join(str(error).split())}): free disk space and run "
            "the same command again"
        ) from error
    return number


def read_rows(path: Path, numbers: Sequence[int]) -> list[bytes]:
    """Reads single rows of an ArrayRecord file.

    Raises:
      UserError: it is missing or damaged.
    """
    try:
        rows = _reader(str(path), os.getpid()).read(list(numbers))
        if not all(rows):  # No row is empty; but one is read so if its file was cut while it was open.
            raise RuntimeError("rows are missing")
        return rows
    except (RuntimeError, IndexError, OSError) as error:
        reason = "shard missing" if not path.exists() else " ".join(str(error).split())[:160]
        raise UserError(f"{path}: {reason}: {AGAIN}") from error


@functools.lru_cache(maxsize=_OPEN_FILES)
def _reader(path: str, process: int) -> Any:
    """An open file; those that were not used for longest are closed. A forked child opens its own."""
    reader = ArrayRecordReader(path, _READER_OPTIONS)
    if not reader.ok():
        with contextlib.suppress(RuntimeError):
            reader.close()
        raise RuntimeError("not a whole shard")
    return reader


def _count(path: Path) -> int:
    """Counts the rows of a file; 0 if it is damaged."""
    reader = ArrayRecordReader(str(path))
    try:
        return reader.num_records() if reader.ok() else 0
    finally:
        with contextlib.suppress(RuntimeError):
            reader.close()


def iter_shard(folder: Path, shard: Shard, at_once: int = 32) -> Iterator[bytes]:
    """Yields the records of a shard as JSON, with few in memory at a time.

    Args:
      folder: on this disk, see `shards_folder`.

    Raises:
      UserError: as `read_rows`.
    """
    for first in range(0, shard.records, at_once):
        yield from read_rows(folder / shard.data, range(first, min(first + at_once, shard.records)))
