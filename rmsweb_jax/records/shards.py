"""Data set folders: ArrayRecord shards behind a manifest that is written last.

An ArrayRecord file whose writer was killed is lost as a whole, and a truncated one claims to hold
no records without any error. So a shard is written under a temporary name, closed, read back,
forced to disk and renamed; only then does the manifest list it, and readers trust the manifest alone.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from pydantic import ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import sync_folder, write_atomic
from rmsweb_jax.records.schema import SCHEMA_VERSION, AuditPair, Record, RlPrompt, SftSample, Trajectory

R = TypeVar("R", bound=Record)

SHARD_RECORDS = 1024
KINDS: dict[str, type[Record]] = {
    "trajectories": Trajectory,
    "sft_samples": SftSample,
    "rl_prompts": RlPrompt,
    "audit_pairs": AuditPair,
}
# Grain reads single records in random order: a group of one is decompressed for each.
_WRITER_OPTIONS = "group_size:1"
_AGAIN = "make this data set again"


class Shard(Record):
    """One finished file of the data set; `sha256` is of the whole file."""

    file: str
    records: int
    bytes: int
    sha256: str


class Manifest(Record):
    """What a data set folder holds.

    Attributes:
      provenance: how the records were made: source folders, figures, model names.
    """

    schema_version: int
    kind: str
    records: int
    shards: tuple[Shard, ...]
    provenance: dict[str, Any]


def write_dataset(
    folder: Path,
    records: Iterable[Record],
    kind: str,
    provenance: dict[str, Any] | None = None,
    shard_size: int = SHARD_RECORDS,
) -> Manifest:
    """Writes a whole data set, replacing an earlier one in `folder` (whose images stay).

    Args:
      folder: made if missing.
      records: of the type that `KINDS` gives for `kind`; consumed once, a shard at a time.
      shard_size: records a shard.

    Raises:
      UserError: there are no records, or a shard could not be written whole.
      TypeError: a record of another type.
    """
    type_ = KINDS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    shards, stream = [], iter(records)
    while chunk := list(itertools.islice(stream, shard_size)):
        wrong = next((record for record in chunk if not isinstance(record, type_)), None)
        if wrong is not None:
            raise TypeError(f"{kind} holds {type_.__name__}, not {type(wrong).__name__}")
        name = f"{kind}-{len(shards):05d}.array_record"
        shards.append(_write_shard(folder / name, [record.model_dump_json().encode() for record in chunk]))
    if not shards:
        raise UserError(f"{folder}: no records to write ({kind}): nothing came through the stage's filters")
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        kind=kind,
        records=sum(shard.records for shard in shards),
        shards=tuple(shards),
        provenance=provenance or {},
    )
    sync_folder(folder)
    write_atomic(folder / "manifest.json", manifest.model_dump_json(indent=1).encode())
    return manifest


def load_manifest(folder: Path) -> Manifest:
    """The manifest, after checking that every shard is there in its full length.

    Raises:
      UserError: no data set, a newer schema, or a missing or truncated shard.
    """
    path = folder / "manifest.json"
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path}: no finished data set here: run the stage that makes it first") from error
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise UserError(f"{path}: not a manifest ({error.error_count()} errors): {_AGAIN}") from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise UserError(
            f"{path}: schema version {manifest.schema_version} is newer than {SCHEMA_VERSION}: "
            "update rmsweb-jax"
        )
    for shard in manifest.shards:
        _check_size(folder / shard.file, shard)
    return manifest


def read_dataset(folder: Path, type_: type[R]) -> Iterator[R]:
    """All records in order, each shard checked against its checksum before its records are given out.

    Raises:
      UserError: as `load_manifest`; also another kind of data set, a changed shard, no records.
    """
    manifest = load_manifest(folder)
    if KINDS.get(manifest.kind) is not type_:
        raise UserError(f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder")
    if not manifest.records:
        raise UserError(f"{folder}: the data set is empty: {_AGAIN}")
    return _read_shards(folder, manifest, type_)


def dataset_size(folder: Path) -> int:
    """Number of records, by the manifest."""
    return load_manifest(folder).records


def _clear(folder: Path) -> None:
    # The manifest goes first: from here on the folder holds no data set until the new one is whole.
    (folder / "manifest.json").unlink(missing_ok=True)
    sync_folder(folder)
    for pattern in ("*.array_record", ".*.array_record.*.tmp"):
        for path in folder.glob(pattern):
            path.unlink()


def _write_shard(path: Path, entries: list[bytes]) -> Shard:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        writer = ArrayRecordWriter(str(temporary), _WRITER_OPTIONS)
        for entry in entries:
            writer.write(entry)
        writer.close()
        count = _count(temporary)
    except RuntimeError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: could not be written ({' '.join(str(error).split())}): {_FREE}") from error
    if count != len(entries):
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: could not be written whole: {_FREE}")
    data = temporary.read_bytes()
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return Shard(file=path.name, records=count, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


_FREE = "free disk space and run the same command again"


def _count(path: Path) -> int:
    """Number of records, 0 when the file is not sound."""
    reader = ArrayRecordReader(str(path))
    try:
        return reader.num_records() if reader.ok() else 0
    finally:
        reader.close()


def _check_size(path: Path, shard: Shard) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise UserError(f"{path}: shard missing: {_AGAIN}") from error
    if size != shard.bytes:
        raise UserError(f"{path}: shard has {size} bytes, the manifest says {shard.bytes}: {_AGAIN}")


def _read_shards(folder: Path, manifest: Manifest, type_: type[R]) -> Iterator[R]:
    for shard in manifest.shards:
        path = folder / shard.file
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                raise UserError(f"{path}: shard has changed since it was written: {_AGAIN}")
        reader = ArrayRecordReader(str(path))
        try:
            entries = reader.read_all() if reader.ok() else []
        finally:
            reader.close()
        if len(entries) != shard.records:
            raise UserError(f"{path}: {len(entries)} records, the manifest says {shard.records}: {_AGAIN}")
        for number, entry in enumerate(entries):
            try:
                yield type_.model_validate_json(entry)
            except ValidationError as error:
                raise UserError(
                    f"{path}: record {number} does not fit schema version {manifest.schema_version}: {_AGAIN}"
                ) from error
