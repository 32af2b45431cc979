"""Data set folders: ArrayRecord shards, each entered in a manifest as soon as it is on disk.

A stopped writer loses at most the shard that it was writing: the same call continues after the last one in
the manifest. Readers accept finished data sets, and read only shards that the manifest names.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from pydantic import ConfigDict, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import is_temporary, make_folder, replacing, sync_folder, write_atomic
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.packs import Packs, StoredFile
from rmsweb_jax.records.schema import KINDS, SCHEMA_VERSION, Record
from rmsweb_jax.storage import AnyPath, StorePath, parse_path
from rmsweb_jax.storage.cache import on_disk, open_cache

# The remedy in error messages.
AGAIN = "make this data set again"
MANIFEST = "manifest.json"


class Shard(Record):
    """One finished file of the data set.

    Attributes:
      sha256: SHA-256 of the whole file.
      content: SHA-256 over its records, by which a repeated write recognizes them. The file's own may differ,
        since compression may.
    """

    file: str
    records: int
    bytes: int
    sha256: str
    content: str


class Manifest(Record):
    """Contents of a data set folder.

    Attributes:
      schema_version: schema version of the records in the shards.
      finished: True when all shards are written; until then only the writer reads it.
      provenance: origin of the records: source folders, figures, model names.
      images: the packed screenshots of a published data set; None if they are files of their own.
      files: the files next to the records that belong to the data set, see `rmsweb_jax.records.sealing`.
      digest: SHA-256 of the manifest's bytes with "" in this place.
    """

    # Those of earlier versions have more keys.
    model_config = ConfigDict(extra="ignore")

    schema_version: int
    kind: str
    finished: bool
    records: int
    shards: tuple[Shard, ...]
    provenance: dict[str, Any]
    images: Packs | None = None
    files: tuple[StoredFile, ...] = ()
    digest: str = ""

    def encode(self) -> bytes:
        """Returns the bytes of `manifest.json`, with their digest."""
        unsealed = self.model_copy(update={"digest": ""}).model_dump_json(indent=1).encode()
        return _put_digest(unsealed, "", hashlib.sha256(unsealed).hexdigest())


def _put_digest(text: bytes, old: str, new: str) -> bytes:
    """Replaces the digest in a manifest's bytes, where it is last."""
    before, _, after = text.rpartition(b'"digest": "%s"' % old.encode())
    return before + b'"digest": "%s"' % new.encode() + after


def _is_intact(text: bytes, digest: str) -> bool:
    """Returns False if a byte of a manifest has changed; what was written by hand has no digest."""
    return not digest or hashlib.sha256(_put_digest(text, digest, "")).hexdigest() == digest


def read_manifest(folder: AnyPath) -> Manifest:
    """Reads the manifest, finished or not, without checking the shards.

    Raises:
      UserError: the file is missing or is not a manifest, or has another schema version.
    """
    return read_manifest_bytes(folder)[0]


def read_manifest_bytes(folder: AnyPath) -> tuple[Manifest, bytes]:
    """Reads the manifest and its bytes; see `read_manifest`."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if isinstance(folder, StorePath) and folder.version:
            raise UserError(
                f"{folder}: there is no such version: python -m experiments.records versions "
                f"--data={folder.at('')}"
            ) from error
        if isinstance(folder, Path) and "@" in folder.name:
            raise UserError(
                f"{folder}: no data set here; those on disk have no versions: publish it to a bucket"
            ) from error
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
    if not _is_intact(text, manifest.digest):
        raise UserError(f"{path}: its bytes have changed since it was written: {AGAIN}")
    if isinstance(folder, StorePath) and folder.version and folder.version != version_name(text):
        raise UserError(f"{path}: its bytes have changed since it was written: {AGAIN}")
    return manifest, text


def records_digest(manifest: Manifest) -> str:
    """Returns a hash of the shards' checksums, and so of the records."""
    return hashlib.sha256("".join(shard.sha256 for shard in manifest.shards).encode()).hexdigest()


def version_name(manifest: bytes) -> str:
    """Returns the name of the version that has a manifest with these bytes."""
    return hashlib.sha256(manifest).hexdigest()[:12]


def load_manifest(folder: AnyPath) -> Manifest:
    """Reads the manifest of a finished data set, and checks the length of every shard.

    Raises:
      UserError: there is no data set or an unfinished one, it has another schema version, or a shard is
        missing or truncated.
    """
    manifest = read_manifest(folder)
    if not manifest.finished:
        raise UserError(
            f"{folder / MANIFEST}: no finished data set here, {manifest.records} records are written so far: "
            "run the same command again to finish it"
        )
    if isinstance(folder, StorePath):
        # One listing instead of a request for each shard.
        sizes = {entry.key: entry.size for entry in folder.entries()}
        for shard in manifest.shards:
            path = folder / shard.file
            _compare_size(path, shard, sizes.get(path.key))
    else:
        for shard in manifest.shards:
            check_size(folder / shard.file, shard)
    return manifest


def save_manifest(folder: Path, manifest: Manifest) -> None:
    write_atomic(folder / MANIFEST, manifest.encode())


def remove_manifest(folder: Path) -> None:
    """Removes the manifest durably: from here on, also after a power cut, the folder holds no data set."""
    (folder / MANIFEST).unlink(missing_ok=True)
    sync_folder(folder)


def check_size(path: Path, shard: Shard) -> None:
    """Raises UserError when a shard is missing or has another length."""
    _compare_size(path, shard, path.stat().st_size if path.exists() else None)


def _compare_size(path: AnyPath, shard: Shard, size: int | None) -> None:
    if size is None:
        raise UserError(f"{path}: shard missing: {AGAIN}")
    if size != shard.bytes:
        raise UserError(f"{path}: shard has {size} bytes, the manifest says {shard.bytes}: {AGAIN}")


R = TypeVar("R", bound=Record)

# Records of a shard: what a stopped writer may have to write again, and what `read_shard` holds in memory.
SHARD_RECORDS = 1024


def write_dataset(
    folder: Path,
    records: Iterable[Record],
    kind: str,
    provenance: dict[str, Any] | None = None,
    shard_size: int = SHARD_RECORDS,
    images: AnyPath | str | None = None,
) -> Manifest:
    """Writes a whole data set; replaces one of other provenance in `folder`, except for its images.

    Shards of an earlier, possibly interrupted call with the same provenance are kept if they hold exactly the
    records that are given now.

    Args:
      folder: created if missing.
      records: records of the type `KINDS[kind]`; consumed once, a shard at a time.
      shard_size: number of records in a shard.
      images: the data set that the records come from, whose screenshots are taken along. Without it those
        that are not in `folder` already are counted in a line on standard error.

    Raises:
      UserError: there are no records, `images` lacks a screenshot, or a shard could not be written whole.
      TypeError: a record has another type.
    """
    type_ = KINDS[kind]
    make_folder(folder)
    build = _Build(folder, kind, provenance or {})
    names: set[str] = set()
    source, target = None if images is None else ImageStore(images), ImageStore(folder)
    stream = iter(records)
    while chunk := list(itertools.islice(stream, shard_size)):
        wrong = next((record for record in chunk if not isinstance(record, type_)), None)
        if wrong is not None:
            raise TypeError(f"{kind} holds {type_.__name__}, not {type(wrong).__name__}")
        new = dict.fromkeys(name for record in chunk for name in record_images(record) if name not in names)
        names.update(new)
        if source is not None:
            for name in new:
                target.link_from(source, name)
        build.add([record.model_dump_json().encode() for record in chunk])
    manifest = build.finish()
    if missing := target.missing(names):
        print(
            f"{folder}: {len(missing)} screenshots that its records name are not there: give the data set "
            "that they come from, write_dataset(..., images=FOLDER)",
            file=sys.stderr,
            flush=True,
        )
    return manifest


def read_dataset(folder: AnyPath | str, type_: type[R] | None = None) -> Iterator[R]:
    """Reads all records in order; verifies each shard's checksum before yielding its records.

    Args:
      type_: the expected record type; None reads any kind of data set.

    Raises:
      UserError: as `load_manifest`; or the data set is of another kind or empty, or a shard has changed.
    """
    folder = parse_path(folder, "folder") if isinstance(folder, str) else folder
    manifest = load_manifest(folder)
    if type_ is not None and KINDS[manifest.kind] is not type_:
        raise UserError(f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder")
    if not manifest.records:
        raise UserError(f"{folder}: the data set is empty: {AGAIN}")
    return cast(Iterator[R], iter_records(folder, manifest))


def iter_records(folder: AnyPath, manifest: Manifest) -> Iterator[Record]:
    """Yields the records of a data set of any kind, as `read_dataset` does."""
    for place, shard in enumerate(manifest.shards):
        _fetch_ahead(folder, manifest.shards[place + 1 : place + 1 + _AHEAD])
        for number, entry in enumerate(read_shard(folder, shard)):
            yield decode_entry(folder, manifest, shard, number, entry)


def sample_dataset(folder: AnyPath, number: int, seed: int) -> list[tuple[int, Record]]:
    """Draws up to `number` different records; returns them in order, each with its index from 0.

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


def decode_entry(folder: AnyPath, manifest: Manifest, shard: Shard, number: int, entry: bytes) -> Record:
    """Decodes record `number` of a shard.

    Raises:
      UserError: the record does not fit the manifest's schema version.
    """
    try:
        return KINDS[manifest.kind].model_validate_json(entry)
    except ValueError as error:
        raise UserError(
            f"{folder / shard.file}: record {number} does not fit schema version {manifest.schema_version}: "
            f"{AGAIN}"
        ) from error


def dataset_size(folder: AnyPath) -> int:
    """Returns the number of records according to the manifest."""
    return load_manifest(folder).records


def strays(folder: Path, manifest: Manifest | None) -> list[Path]:
    """Finds leftovers of a stopped writer: shards that the manifest does not name, and temporary files."""
    named = {shard.file for shard in manifest.shards} if manifest else set()
    shards = [path for path in sorted(folder.glob("*.array_record")) if path.name not in named]
    temporary = [*folder.glob(".*.array_record.*.tmp"), *folder.glob(f".{MANIFEST}.*.tmp")]
    return shards + [path for path in sorted(temporary) if is_temporary(path)]


def remove_strays(folder: Path, manifest: Manifest | None, unused_s: float = 0.0) -> None:
    """Removes leftovers that have not been written or marked for so many seconds."""
    for path in strays(folder, manifest):
        if unused_s <= 0 or path.stat().st_mtime < time.time() - unused_s:
            path.unlink()


class _Build:
    """Writes a data set a shard at a time; continues an earlier build."""

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
        # Round-tripped through JSON, which changes some types of `provenance`, so that it can be compared
        # with the manifest of an earlier build.
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
        # Records may name screenshots that were linked just now; these must be durable before the manifest.
        ImageStore(self._folder).sync()
        self._manifest = self._manifest.model_copy(update={"finished": True})
        save_manifest(self._folder, self._manifest)
        remove_strays(self._folder, self._manifest)
        return self._manifest

    def _resume(self) -> tuple[Shard, ...]:
        """Returns the shards of an earlier build of the same data set; removes all other shards."""
        try:
            earlier = read_manifest(self._folder)
        except UserError:
            earlier = None
        # Equal except for its progress, that is of the same kind, schema and provenance.
        begun = {"finished": False, "records": 0, "shards": (), "files": (), "digest": ""}
        if earlier is None or earlier.model_copy(update=begun) != self._manifest:
            remove_manifest(self._folder)
            remove_strays(self._folder, None)
            return ()
        if earlier.finished:
            # No longer finished, because its shards may be replaced from now on.
            save_manifest(self._folder, earlier.model_copy(update={"finished": False, "files": ()}))
        remove_strays(self._folder, earlier)
        return earlier.shards

    def _enter(self, shard: Shard) -> None:
        records = self._manifest.records + shard.records
        shards = (*self._manifest.shards, shard)
        self._manifest = self._manifest.model_copy(update={"records": records, "shards": shards})


# No read-ahead, since records are read in random order.
_RANDOM_READS = "readahead_buffer_size:0"
# A group is compressed as a whole. Grain reads single records in random order, so a group has one record.
_WRITER_OPTIONS = "group_size:1"
_FREE = "free disk space and run the same command again"


def write_shard(path: Path, entries: Iterable[bytes]) -> Shard:
    """Writes one file of records durably, with one of them in memory at a time.

    Raises:
      UserError: the file could not be written whole; it then does not exist.
    """
    digest, count = hashlib.sha256(), 0
    try:
        with replacing(path) as temporary:
            writer = ArrayRecordWriter(str(temporary), _WRITER_OPTIONS)
            try:
                for count, entry in enumerate(entries, start=1):  # noqa: B007
                    writer.write(entry)
                    _add_content(digest, entry)
            except BaseException:
                # It must be closed; what it says of the failed write is known.
                with contextlib.suppress(RuntimeError):
                    writer.close()
                raise
            writer.close()
            # Read back, because the writer does not report every failed write.
            if _count(temporary) != count:
                raise UserError(f"{path}: could not be written whole: {_FREE}")
            size, sha256 = temporary.stat().st_size, _file_sha256(temporary)
    except RuntimeError as error:
        raise UserError(f"{path}: could not be written ({' '.join(str(error).split())}): {_FREE}") from error
    return Shard(file=path.name, records=count, bytes=size, sha256=sha256, content=digest.hexdigest())


def read_shard(folder: AnyPath, shard: Shard) -> list[bytes]:
    """Reads the records of a shard after verifying its checksum.

    Raises:
      UserError: the file is missing, truncated or changed.
    """
    path = check_shard(folder, shard)
    reader = ArrayRecordReader(str(path))
    try:
        entries = reader.read_all() if reader.ok() else []
    finally:
        reader.close()
    if len(entries) != shard.records:
        raise UserError(
            f"{folder / shard.file}: {len(entries)} records, the manifest says {shard.records}: {AGAIN}"
        )
    return entries


def iter_shard(folder: AnyPath, shard: Shard, at_once: int = 32) -> Iterator[bytes]:
    """Yields what `read_shard` returns, with few records in memory at a time.

    Raises:
      UserError: as `read_shard`.
    """
    check_shard(folder, shard)
    for first in range(0, shard.records, at_once):
        yield from read_entries(folder, shard, range(first, min(first + at_once, shard.records)))


def read_entries(folder: AnyPath, shard: Shard, numbers: Sequence[int]) -> list[bytes]:
    """Reads single records of a shard whose checksum has been verified.

    Args:
      numbers: indices of the records in the shard, from 0.

    Raises:
      UserError: the records cannot be read.
    """
    path = shard_path(folder, shard)
    check_size(path, shard)
    # A reader that found damage raises in every call, also in `close`.
    with (
        contextlib.suppress(RuntimeError),
        contextlib.closing(ArrayRecordReader(str(path), _RANDOM_READS)) as reader,
    ):
        if reader.ok() and reader.num_records() == shard.records:
            return reader.read(list(numbers))
    raise UserError(
        f"{folder / shard.file}: does not hold the {shard.records} records of the manifest: {AGAIN}"
    )


def shard_path(folder: AnyPath, shard: Shard) -> Path:
    """Returns the file of a shard; of a bucket, a checked copy of it in the machine's cache.

    Raises:
      UserError: it is missing in the bucket, or has changed there.
    """
    return on_disk(folder / shard.file, shard.bytes, shard.sha256)


# Shards of a bucket that are fetched while one is read.
_AHEAD = 2


def _fetch_ahead(folder: AnyPath, shards: Sequence[Shard]) -> list[Future[Path]]:
    if not isinstance(folder, StorePath):
        return []
    return open_cache().fetch_ahead([(folder / shard.file, shard.bytes, shard.sha256) for shard in shards])


def check_shard(folder: AnyPath, shard: Shard) -> Path:
    """Verifies the size and the checksum of a shard; returns its file, see `shard_path`.

    Raises:
      UserError: the file is missing, truncated or changed.
    """
    path = shard_path(folder, shard)
    check_size(path, shard)
    if _file_sha256(path) != shard.sha256:
        raise UserError(f"{path}: shard has changed since it was written: {AGAIN}")
    return path


def check_shards(folder: AnyPath, manifest: Manifest) -> list[Path]:
    """Verifies all shards, those of a bucket several at a time; returns their files, see `check_shard`."""
    ahead = _fetch_ahead(folder, manifest.shards)
    wait(ahead)
    return [check_shard(folder, shard) for shard in manifest.shards]


def is_intact(folder: Path, shard: Shard) -> bool:
    """Returns True if the file exists and has the right checksum."""
    path = folder / shard.file
    return path.exists() and _file_sha256(path) == shard.sha256


def content_sha256(entries: Iterable[bytes]) -> str:
    """Hashes records independently of their compression."""
    digest = hashlib.sha256()
    for entry in entries:
        _add_content(digest, entry)
    return digest.hexdigest()


def _add_content(digest: hashlib._Hash, entry: bytes) -> None:
    # With its length, so that moving a boundary between records changes the digest.
    digest.update(b"%d " % len(entry))
    digest.update(entry)


def _count(path: Path) -> int:
    """Counts the records of a file; 0 if it is damaged."""
    reader = ArrayRecordReader(str(path))
    try:
        return reader.num_records() if reader.ok() else 0
    finally:
        reader.close()


def _file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
