"""Writes and reads data set folders, see `rmsweb_jax.records.shards`.

A stopped writer loses at most the shard that it was writing: the same call goes on after the last whole one.
Until it has finished, readers see what the folder held before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import is_temporary, make_folder, sync_folder, write_atomic
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.schema import KINDS, Record
from rmsweb_jax.records.shards import (
    AGAIN,
    MANIFEST,
    Manifest,
    Shard,
    iter_shard,
    parse_manifest,
    read_manifest,
    read_rows,
    shards_folder,
    write_rows,
)
from rmsweb_jax.storage import AnyPath, local_path, parse_path

R = TypeVar("R", bound=Record)

# The most records and bytes of images in a shard: what a stopped writer may have to write again, and what it
# holds in memory.
SHARD_RECORDS, _SHARD_BYTES = 1024, 64_000_000
# The manifest of a data set that is being written.
UNFINISHED = ".unfinished.json"
Images = ImageStore | AnyPath | str


def write_dataset(
    folder: Path | str,
    records: Iterable[Record],
    kind: str,
    provenance: dict[str, Any] | None = None,
    shard_size: int = SHARD_RECORDS,
    images: Images | None = None,
) -> Manifest:
    """Writes a whole data set; replaces another one in `folder` when it has finished.

    Shards of an earlier, possibly interrupted call with the same provenance are kept if they hold exactly the
    records that are given now.

    Args:
      folder: created if missing. Screenshots that were put into its `ImageStore` are moved into the shards.
      records: records of the type `KINDS[kind]`; consumed once, a shard at a time.
      shard_size: the most records in a shard.
      images: the data set that the records come from, or its `ImageStore`, whose screenshots are taken
        along. Without it those that are not in `folder` are counted in a line on standard error.

    Raises:
      UserError: there are no records, `images` lacks a screenshot, or a shard could not be written whole.
      TypeError: a record has another type.
    """
    folder = local_path(str(folder), "folder")
    build = _Build(folder, kind, provenance or {})
    given = images if isinstance(images, ImageStore) or images is None else ImageStore(images)
    own, missing = ImageStore(folder), set[str]()
    chunk: list[bytes] = []
    shown: dict[str, bytes] = {}
    size = 0
    for record in records:
        if not isinstance(record, KINDS[kind]):
            raise TypeError(f"{kind} holds {KINDS[kind].__name__}, not {type(record).__name__}")
        for name in record_images(record):
            if name in shown or name in missing:
                continue
            if given is not None:
                shown[name] = own.get(name) if name in own else given.get(name)
            elif name in own:
                shown[name] = own.get(name)
            else:
                missing.add(name)
                continue
            size += len(shown[name])
        chunk.append(record.model_dump_json().encode())
        if len(chunk) == shard_size or size > _SHARD_BYTES:
            build.add(chunk, shown)
            chunk, shown, size = [], {}, 0
    if chunk:
        build.add(chunk, shown)
    manifest = build.finish()
    if missing:
        print(
            f"{folder}: {len(missing)} screenshots that its records name are not there: give the data set "
            "that they come from, write_dataset(..., images=FOLDER)",
            file=sys.stderr,
            flush=True,
        )
    return manifest


class _Build:
    """Writes a data set a shard at a time; continues an earlier build."""

    def __init__(self, folder: Path, kind: str, provenance: dict[str, Any]):
        make_folder(folder)
        # JSON changes some types: a manifest that is read is compared with this one.
        self._manifest = Manifest(kind=kind, provenance=orjson.loads(orjson.dumps(provenance)))
        self._folder = folder
        found = (_read(folder / name) for name in (UNFINISHED, MANIFEST))
        same = (
            one.shards for one in found if one and one.model_copy(update={"shards": ()}) == self._manifest
        )
        self._earlier = next(same, ())
        self._names: set[str] = set()

    def add(self, records: Sequence[bytes], images: dict[str, bytes]) -> None:
        number, content = len(self._manifest.shards), _content(records, images)
        shard = self._earlier[number] if number < len(self._earlier) else None
        if shard is None or shard.content != content or not self._is_there(shard):
            suffix = f"{number:05d}-{secrets.token_hex(4)}.array_record"
            rows = {name: row for row, name in enumerate(images, 1)}
            if images:
                write_rows(self._folder / f"images-{suffix}", [orjson.dumps(rows), *images.values()])
            write_rows(self._folder / f"data-{suffix}", records)
            files = (f"data-{suffix}", f"images-{suffix}" if images else "")
            shard = Shard(
                data=files[0],
                images=files[1],
                records=len(records),
                bytes=sum((self._folder / name).stat().st_size for name in files if name),
                content=content,
            )
        self._names.update(images)
        self._manifest = self._manifest.model_copy(update={"shards": (*self._manifest.shards, shard)})
        write_atomic(self._folder / UNFINISHED, self._manifest.encode())

    def finish(self) -> Manifest:
        if not self._manifest.shards:
            (self._folder / MANIFEST).unlink(missing_ok=True)
            sync_folder(self._folder)
            self._clear()
            raise UserError(
                f"{self._folder}: no records to write ({self._manifest.kind}): nothing came through the "
                "stage's filters"
            )
        os.replace(self._folder / UNFINISHED, self._folder / MANIFEST)
        sync_folder(self._folder)
        self._clear()
        store, files = ImageStore(self._folder), self._folder / "images"
        for path in [*map(store.path, self._names), *filter(is_temporary, files.glob("*/.*.tmp"))]:
            path.unlink(missing_ok=True)
        for folder in (*files.glob("*"), files):
            with contextlib.suppress(OSError):  # Others are in it.
                folder.rmdir()
        return self._manifest

    def _is_there(self, shard: Shard) -> bool:
        try:
            for name in shard.files:
                read_rows(self._folder / name, [0])
        except UserError:
            return False
        return True

    def _clear(self) -> None:
        """Removes what stopped writers left, and shards of the data set that was here before."""
        named = {name for shard in self._manifest.shards for name in shard.files}
        shards = [path for path in self._folder.glob("*.array_record") if path.name not in named]
        (self._folder / UNFINISHED).unlink(missing_ok=True)
        temporary = (path for name in (MANIFEST, UNFINISHED) for path in self._folder.glob(f".{name}.*.tmp"))
        for path in [*shards, *filter(is_temporary, temporary)]:
            path.unlink(missing_ok=True)


def _read(path: Path) -> Manifest | None:
    try:
        return parse_manifest(path.read_bytes(), path)
    except (OSError, UserError):
        return None


def _content(records: Sequence[bytes], images: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in (*records, *(name.encode() for name in images)):
        # With its length, so that moving a boundary between records changes the digest.
        digest.update(b"%d " % len(part))
        digest.update(part)
    return digest.hexdigest()


def read_dataset(folder: AnyPath | str, type_: type[R] | None = None) -> Iterator[R]:
    """Reads all records in order.

    Args:
      type_: the expected record type; None reads any kind of data set.

    Raises:
      UserError: as `read_manifest`; or the data set is of another kind, or a shard is missing or damaged.
    """
    folder = parse_path(folder, "folder") if isinstance(folder, str) else folder
    manifest = read_manifest(folder)
    if type_ is not None and KINDS[manifest.kind] is not type_:
        raise UserError(f"{folder}: holds {manifest.kind}, not {type_.__name__} records: give another folder")
    return cast(Iterator[R], iter_records(folder, manifest))


def iter_records(folder: AnyPath, manifest: Manifest, at_once: int = 32) -> Iterator[Record]:
    """Yields the records of a data set of any kind; see `iter_shard`."""
    place = shards_folder(folder, manifest)
    for shard in manifest.shards:
        for number, entry in enumerate(iter_shard(place, shard, at_once)):
            yield decode_entry(place, manifest, shard, number, entry)


def sample_dataset(folder: AnyPath, number: int, seed: int) -> list[tuple[int, Record]]:
    """Draws up to `number` different records; returns them in order, each with its index from 0.

    Raises:
      UserError: as `read_dataset`.
    """
    manifest = read_manifest(folder)
    place = shards_folder(folder, manifest)
    drawn = sorted(random.Random(seed).sample(range(manifest.records), min(number, manifest.records)))
    sampled, first = [], 0
    for shard in manifest.shards:
        wanted = [index - first for index in drawn if first <= index < first + shard.records]
        for at, entry in zip(wanted, read_rows(place / shard.data, wanted) if wanted else [], strict=True):
            sampled.append((first + at, decode_entry(place, manifest, shard, at, entry)))
        first += shard.records
    return sampled


def decode_entry(folder: Path, manifest: Manifest, shard: Shard, number: int, entry: bytes) -> Record:
    """Decodes record `number` of a shard.

    Raises:
      UserError: the record does not fit the manifest's schema version.
    """
    try:
        return KINDS[manifest.kind].model_validate_json(entry)
    except ValueError as error:
        raise UserError(
            f"{folder / shard.data}: record {number} does not fit schema version {manifest.schema_version}: "
            f"{AGAIN}"
        ) from error


def dataset_size(folder: AnyPath) -> int:
    """Returns the number of records according to the manifest."""
    return read_manifest(folder).records


def records_digest(manifest: Manifest) -> str:
    """Returns a hash of the records and of the names of their images."""
    return hashlib.sha256("".join(shard.content for shard in manifest.shards).encode()).hexdigest()
