"""Copies a data set folder from a disk to a bucket, where readers see all of it or what was there before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import (
    MANIFEST,
    Manifest,
    Shard,
    check_lengths,
    check_shard,
    decode_entry,
    iter_shard,
    read_manifest,
    version_name,
)
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.packs import PackReader, Packs, StoredFile, describe_file, write_packs
from rmsweb_jax.records.sealing import REPORT, read_side_file, side_files
from rmsweb_jax.storage import Lease, StorePath

LEASE = ".lease"
# Also next to the newest manifest: they say that a stage has finished, and with which settings.
STATE = ("config.json", REPORT)
_THREADS = 8
# Uploads that wait in memory, of about 8 MB each.
_WAITING = 2 * _THREADS


def publish_dataset(folder: Path, target: StorePath, lease: Lease | None = None) -> Manifest:
    """Publishes a data set; publishing it again uploads only what is new.

    Each publish is a version, which stays readable as `FOLDER@VERSION`: shards and packs have names with a
    hash of their bytes, and the manifest and the side files are kept in `versions/VERSION`. The newest one is
    also `manifest.json`. `report.json` follows it, since it says that a stage has finished. One process may
    publish to a target at a time. What follows a growing data set keeps its packs.

    Args:
      lease: of the target, where the caller holds it.

    Raises:
      UserError: the data set is unfinished or damaged; or the target is in use, holds another kind, or is a
        version.
    """
    manifest = check_lengths(folder)
    target.store.check()
    mine = Lease(target.store, (target / LEASE).key, str(target)) if lease is None else None
    with mine or contextlib.nullcontext():
        held = lease or mine
        assert held is not None
        path = target / MANIFEST
        try:
            before, version = target.store.read_version(path.key)
        except FileNotFoundError:
            before, version = b"", ""
        there = read_manifest(target) if before else None
        if there is not None and there.kind != manifest.kind:
            raise UserError(f"{target}: holds another kind of data set than {folder}: give another folder")
        with _Uploads(target) as uploads:
            shards, reflections = (
                tuple(_upload_shard(folder, shard, uploads, manifest.growing) for shard in some)
                for some in (manifest.shards, manifest.reflections)
            )
            images = _upload_images(folder, manifest, target, there, uploads)
        files = _read_side_files(folder, manifest)
        published = manifest.model_copy(
            update={"shards": shards, "reflections": reflections, "images": images, "files": tuple(files)}
        )
        data = published.encode()
        held.check()
        # Whole before it is the newest; its manifest last, so that an unfinished version cannot be read.
        frozen = target.at(version_name(data))
        with _Uploads(target) as uploads:
            for file, content in files.items():
                uploads.replace(frozen / file.file, content)
        (frozen / MANIFEST).write_bytes(data)
        for name in STATE:
            if name != REPORT and (folder / name).exists():
                (target / name).write_bytes((folder / name).read_bytes())
        if data != before:
            store = target.store
            written = store.replace(path.key, data, version) if version else store.create(path.key, data)
            if not written:
                raise UserError(f"{path}: another process has published there: run the same command again")
        if (folder / REPORT).exists():
            (target / REPORT).write_bytes((folder / REPORT).read_bytes())
    return published


class _Uploads:
    """Uploads files in threads; objects that are there already are left as they are.

    Leaving the block waits for all of them, and raises the first error.
    """

    def __init__(self, target: StorePath):
        self._target = target
        self._there = {entry.key: entry.size for entry in target.entries()}
        self._pool = ThreadPoolExecutor(_THREADS)
        self._waiting: list[Future[None]] = []

    def add(self, file: StoredFile, data: bytes) -> None:
        """Uploads a file whose name has a hash of its bytes."""
        if not self.has(file):
            path = self._target / file.file
            self._there[path.key] = file.bytes
            self.replace(path, data)

    def has(self, file: StoredFile) -> bool:
        """Returns whether a file whose name has a hash of its bytes is there."""
        return self._there.get((self._target / file.file).key) == file.bytes

    def replace(self, path: StorePath, data: bytes) -> None:
        if len(self._waiting) >= _WAITING:
            self._waiting.pop(0).result()
        self._waiting.append(self._pool.submit(path.write_bytes, data))

    def __enter__(self) -> _Uploads:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for upload in self._waiting:
                upload.result()


def _upload_shard(folder: Path, shard: Shard, uploads: _Uploads, growing: bool) -> Shard:
    name = Path(shard.file)
    file = f"{name.stem}-{shard.sha256[:16]}{name.suffix}"
    stored = StoredFile(file=file, bytes=shard.bytes, sha256=shard.sha256)
    # A growing one is published often, and what was checked before is not read again.
    if not (growing and uploads.has(stored)):
        uploads.add(stored, check_shard(folder, shard).read_bytes())
    return shard.model_copy(update={"file": file})


def _upload_images(
    folder: Path, manifest: Manifest, target: StorePath, there: Manifest | None, uploads: _Uploads
) -> Packs | None:
    """Uploads the screenshots in packs; after a growing data set only those that its packs lack."""
    before, known = None, set()
    if there is not None and there.growing:
        before = PackReader(target, there.images) if there.images else None
        known = {shard.sha256 for shard in there.shards}
    names = _image_names(folder, [shard for shard in manifest.shards if shard.sha256 not in known], manifest)
    images = write_packs(names, ImageStore(folder).get, uploads.add, before=before, growing=manifest.growing)
    return images if images.images else None


def _read_side_files(folder: Path, manifest: Manifest) -> dict[StoredFile, bytes]:
    """Reads all side files: those that the manifest names, checked, and those written since.

    Those of a growing data set are not final, except for the settings.
    """
    files = {file: read_side_file(folder, file) for file in manifest.files}
    named = {file.file for file in files}
    for path in side_files(folder):
        if path.name not in named and (path.name in STATE or not manifest.growing):
            data = path.read_bytes()
            files[describe_file(path.name, data)] = data
    return files


def _image_names(folder: Path, shards: Sequence[Shard], manifest: Manifest) -> Iterator[str]:
    """Yields each image that a record of these shards names once, in the order of the records."""
    seen: set[bytes] = set()
    for shard in shards:
        for number, entry in enumerate(iter_shard(folder, shard)):
            for name in record_images(decode_entry(folder, manifest, shard, number, entry)):
                if (key := bytes.fromhex(name)) not in seen:
                    seen.add(key)
                    yield name
