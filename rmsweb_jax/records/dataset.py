"""Data set folders: ArrayRecord shards, each entered in a manifest as soon as it is on disk.

A writer that was stopped loses at most the shard it was at: the same call goes on behind the last one
in the manifest. Readers take finished data sets only, and only what the manifest names.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from pydantic import ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import is_temporary, make_folder, replacing, sync_folder, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import KINDS, SCHEMA_VERSION, Record

AGAIN = "make this data set again"
MANIFEST = "manifest.json"


class Shard(Record):
    """One finished file of the data set.

    Attributes:
      sha256: of the whole file.
      content: SHA-256 over the records in it, by which a repeated write recognizes them.
    """

    file: str
    records: int
    bytes: int
    sha256: str
    content: str


class Manifest(Record):
    """What a data set folder holds.

    Attributes:
      schema_version: of the records in the shards.
      finished: all shards are there; until then only the writer reads it.
      provenance: how the records were made: source folders, figures, model names.
    """

    schema_version: int
    kind: str
    finished: bool
    records: int
    shards: tuple[Shard, ...]
    provenance: dict[str, Any]


def read_manifest(folder: Path) -> Manifest:
    """The manifest, finished or not; no shard is looked at.

    Raises:
      UserError: there is none, or it is no manifest, or of a newer schema.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path}: no finished data set here: run the stage that makes it first") from error
    try:
        fields = orjson.loads(text)
        version = int(fields["schema_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a manifest: {AGAIN}") from error
    # Checked before the other fields, which differ between versions.
    if version > SCHEMA_VERSION:
        raise UserError(f"{path}: schema version {version} is newer than {SCHEMA_VERSION}: update rmsweb-jax")
    if version < SCHEMA_VERSION:
        raise UserError(f"{path}: schema version {version} is older than {SCHEMA_VERSION}: {AGAIN}")
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise UserError(f"{path}: not a manifest of version {version}: {AGAIN}") from error
    if manifest.kind not in KINDS:
        raise UserError(f"{path}: unknown kind {manifest.kind!r}: {AGAIN}")
    return manifest


def load_manifest(folder: Path) -> Manifest:
    """The manifest, after checking that every shard is there in its full length.

    Raises:
      UserError: no data set or an unfinished one, a newer schema, or a missing or truncated shard.
    """
    manifest = read_manifest(folder)
    if not manifest.finished:
        raise UserError(
            f"{folder / MANIFEST}: no finished data set here, {manifest.records} records are written so far: "
            "run the same command again to finish it"
        )
    for shard in manifest.shards:
        check_size(folder / shard.file, shard)
    return manifest


def save_manifest(folder: Path, manifest: Manifest) -> None:
    write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())


def remove_manifest(folder: Path) -> None:
    """From here on, also after a power cut, the folder holds no data set."""
    (folder / MANIFEST).unlink(missing_ok=True)
    sync_folder(folder)


def check_size(path: Path, shard: Shard) -> None:
    """Raises UserError when a shard is missing or has another length."""
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise UserError(f"{path}: shard missing: {AGAIN}") from error
    if size != shard.bytes:
        raise UserError(f"{path}: shard has {size} bytes, the manifest says {shard.bytes}: {AGAIN}")


R = TypeVar("R", bound=Record)

SHARD_RECORDS = 1024


def write_dataset(
    folder: Path,
    records: Iterable[Record],
    kind: str,
    provenance: dict[str, Any] | None = None,
    shard_size: int = SHARD_RECORDS,
) -> Manifest:
    """Writes a whole data set; one of other provenance in `folder` is replaced (its images stay).

    Shards that an earlier, perhaps interrupted call with the same provenance wrote are kept where they
    hold just the records given now.

    Args:
      folder: made if missing.
      records: of the type that `KINDS` gives for `kind`; consumed once, a shard at a time.
      shard_size: records a shard.

    Raises:
      UserError: there are no records, or a shard could not be written whole.
      TypeError: a record of another type.
    """
    type_ = KINDS[kind]
    make_folder(folder)
    build = _Build(folder, kind, provenance or {})
    stream = iter(records)
    while chunk := list(itertools.islice(stream, shard_size)):
        wrong = next((record for record in chunk if not isinstance(record, type_)), None)
        if wrong is not None:
            raise TypeError(f"{kind} holds {type_.__name__}, not {type(wrong).__name__}")
        build.add([record.model_dump_json().encode() for record in chunk])
    return build.finish()


def read_dataset(folder: Path | str, type_: type[R] | None = None) -> Iterator[R]:
    """Reads all records in order; verifies each shard's checksum before it gives out the shard's records.

    Args:
      type_: the expected record type; None reads any kind of data set.

    Raises:
      UserError: as `load_manifest`; also another kind of data set, a changed shard, no records.
    """
    folder = Path(folder)
    manifest = load_manifest(folder)
    if type_ is not None and KINDS[manifest.kind] is not type_:
        raise UserError(f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder")
    if not manifest.records:
        raise UserError(f"{folder}: the data set is empty: {AGAIN}")
    return cast(Iterator[R], iter_records(folder, manifest))


def iter_records(folder: Path, manifest: Manifest) -> Iterator[Record]:
    """The records of a data set of any kind, as `read_dataset` gives them."""
    for shard in manifest.shards:
        for number, entry in enumerate(read_shard(folder, shard)):
            yield decode_entry(folder, manifest, shard, number, entry)


def sample_dataset(folder: Path, number: int, seed: int) -> list[tuple[int, Record]]:
    """Up to `number` records drawn without repetition, with their places (0-based), in order.

    Raises:
      UserError: as `read_dataset`.
    """
    manifest = load_manifest(folder)
    places = sorted(random.Random(seed).sample(range(manifest.records), min(number, manifest.records)))
    sampled, first = [], 0
    for shard in manifest.shards:
        wanted = [place - first for place in places if first <= place < first + shard.records]
        entries = read_shard(folder, shard) if wanted else []
        sampled += [(first + at, decode_entry(folder, manifest, shard, at, entries[at])) for at in wanted]
        first += shard.records
    return sampled


def decode_entry(folder: Path, manifest: Manifest, shard: Shard, number: int, entry: bytes) -> Record:
    """Record `number` of a shard from its bytes.

    Raises:
      UserError: it does not fit the manifest's schema version.
    """
    try:
        return KINDS[manifest.kind].model_validate_json(entry)
    except ValueError as error:
        raise UserError(
            f"{folder / shard.file}: record {number} does not fit schema version {manifest.schema_version}: "
            f"{AGAIN}"
        ) from error


def dataset_size(folder: Path) -> int:
    """Number of records, by the manifest."""
    return load_manifest(folder).records


def strays(folder: Path, manifest: Manifest | None) -> list[Path]:
    """What a stopped writer left: shards that the manifest does not name, and temporary files."""
    named = {shard.file for shard in manifest.shards} if manifest else set()
    shards = [path for path in sorted(folder.glob("*.array_record")) if path.name not in named]
    temporary = [*folder.glob(".*.array_record.*.tmp"), *folder.glob(f".{MANIFEST}.*.tmp")]
    return shards + [path for path in sorted(temporary) if is_temporary(path)]


def remove_strays(folder: Path, manifest: Manifest | None) -> None:
    for path in strays(folder, manifest):
        path.unlink()


class _Build:
    """A data set that grows by a shard at a time, from where an earlier build has come."""

    def __init__(self, folder: Path, kind: str, provenance: dict[str, Any]):
        self._folder = folder
        empty = Manifest(
            schema_version=SCHEMA_VERSION,
            kind=kind,
            finished=False,
            records=0,
            shards=(),
            provenance=provenance,
        )
        # As it comes back from the file, so that the two can be compared.
        self._manifest = Manifest.model_validate_json(empty.model_dump_json())
        self._earlier = self._resume()

    def add(self, entries: list[bytes]) -> None:
        number = len(self._manifest.shards)
        if number < len(self._earlier):
            shard = self._earlier[number]
            if shard.content == content_sha256(entries) and is_intact(self._folder, shard):
                self._enter(shard)
                return
        name = f"{self._manifest.kind}-{number:05d}.array_record"
        self._enter(write_shard(self._folder / name, entries))
        save_manifest(self._folder, self._manifest)

    def finish(self) -> Manifest:
        if not self._manifest.shards:
            remove_manifest(self._folder)
            remove_strays(self._folder, None)
            raise UserError(
                f"{self._folder}: no records to write ({self._manifest.kind}): nothing came through the "
                "stage's filters"
            )
        # Its records name screenshots, perhaps linked just now.
        ImageStore(self._folder).sync()
        self._manifest = self._manifest.model_copy(update={"finished": True})
        save_manifest(self._folder, self._manifest)
        remove_strays(self._folder, self._manifest)
        return self._manifest

    def _resume(self) -> tuple[Shard, ...]:
        """The shards of an earlier build of the same data set; removes anything else."""
        try:
            earlier = read_manifest(self._folder)
        except UserError:
            earlier = None
        begun = {"finished": False, "records": 0, "shards": ()}
        if earlier is None or earlier.model_copy(update=begun) != self._manifest:
            remove_manifest(self._folder)
            remove_strays(self._folder, None)
            return ()
        if earlier.finished:
            # Its shards may be replaced from now on.
            save_manifest(self._folder, earlier.model_copy(update={"finished": False}))
        remove_strays(self._folder, earlier)
        return earlier.shards

    def _enter(self, shard: Shard) -> None:
        records = self._manifest.records + shard.records
        shards = (*self._manifest.shards, shard)
        self._manifest = self._manifest.model_copy(update={"records": records, "shards": shards})


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
