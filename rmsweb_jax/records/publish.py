"""Copies a data set folder from a disk to a bucket, where readers see all of it or what was there before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import (
    MANIFEST,
    Manifest,
    Shard,
    check_shard,
    decode_entry,
    iter_shard,
    load_manifest,
    read_manifest,
    version_name,
)
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.packs import StoredFile, describe_file, write_packs
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
    publish to a target at a time.

    Args:
      lease: of the target, where the caller holds it.

    Raises:
      UserError: the data set is unfinished or damaged; or the target is in use, holds another kind, or is a
        version.
    """
    manifest = load_manifest(folder)
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
            shards = tuple(_upload_shard(folder, shard, uploads) for shard in manifest.shards)
            packs = write_packs(_image_names(folder, manifest), ImageStore(folder).get, uploads.add)
        images = packs if packs.images else None
        files = _read_side_files(folder, manifest)
        published = manifest.model_copy(update={"shards": shards, "images": images, "files": tuple(files)})
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
        path = self._target / file.file
        if self._there.get(path.key) != file.bytes:
            self._there[path.key] = file.bytes
            self.replace(path, data)

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


def _upload_shard(folder: Path, shard: Shard, uploads: _Uploads) -> Shard:
    name = Path(shard.file)
    file = f"{name.stem}-{shard.sha256[:16]}{name.suffix}"
    stored = StoredFile(file=file, bytes=shard.bytes, sha256=shard.sha256)
    uploads.add(stored, check_shard(folder, shard).read_bytes())
    return shard.model_copy(update={"file": file})


def _read_side_files(folder: Path, manifest: Manifest) -> dict[StoredFile, bytes]:
    """Reads all side files: those that the manifest names, checked, and those written since."""
    files = {file: read_side_file(folder, file) for file in manifest.files}
    named = {file.file for file in files}
    for path in side_files(folder):
        if path.name not in named:
            data = path.read_bytes()
            files[describe_file(path.name, data)] = data
    return files


def _image_names(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yields each image that a record names once, in the order of the records."""
    seen: set[bytes] = set()
    for shard in manifest.shards:
        for number, entry in enumerate(iter_shard(folder, shard)):
            for name in record_images(decode_entry(folder, manifest, shard, number, entry)):
                if (key := bytes.fromhex(name)) not in seen:
                    seen.add(key)
                    yield name
