"""Screenshots of a data set, found by the SHA-256 of their bytes."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import orjson
from pydantic import BaseModel

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, sync_folder, write_atomic
from rmsweb_jax.records.schema import ImagePart, Message
from rmsweb_jax.records.shards import AGAIN, MANIFEST, parse_manifest, read_rows, shards_folder
from rmsweb_jax.storage import AnyPath, StorePath, parse_path

_SHA256 = re.compile(r"[0-9a-f]{64}")


class ImageStore:
    """The screenshots of data set folders; threads and processes may share it.

    While a run goes on, they are files `FOLDER/images/ab/abcdef….png`, and equal bytes have the same file.
    `write_dataset` moves them into shards.

    Args:
      folders: where screenshots are looked for, in this order; new ones are put into the first.
    """

    def __init__(self, *folders: str | os.PathLike[str] | StorePath):
        self._folders: list[AnyPath] = [
            folder if isinstance(folder, StorePath) else parse_path(os.fspath(folder), "folder")
            for folder in folders
        ]
        # Of each folder the manifest that has been read, and where its images are.
        self._read: dict[AnyPath, bytes] = {}
        self._rows: dict[str, tuple[Path, int]] = {}

    def path(self, sha256: str) -> Path:
        """The file of an image that is in no shard, whether it exists or not."""
        return _file(self._folders[0], sha256)

    def where(self, sha256: str) -> str:
        """Says for people where an image is."""
        for place in self._find(sha256):
            return str(place) if isinstance(place, Path) else f"{place[0]} (row {place[1]})"
        return f"{self._folders[0]}: {sha256}"

    def put(self, png: bytes) -> str:
        """Stores the bytes durably, unless they are stored already; returns their SHA-256."""
        sha256 = hashlib.sha256(png).hexdigest()
        path = self.path(sha256)
        if path.exists():
            # Another process may have renamed the file, but not synced the folder yet.
            sync_folder(path.parent)
        else:
            make_folder(path.parent)
            write_atomic(path, png)
        return sha256

    def get(self, sha256: str) -> bytes:
        """Reads the bytes of an image.

        Raises:
          UserError: it is missing or damaged.
        """
        for place in self._find(sha256):
            if not isinstance(place, Path):
                return read_rows(place[0], [place[1]])[0]
            try:
                png = place.read_bytes()
            except FileNotFoundError:  # Moved into a shard.
                continue
            if hashlib.sha256(png).hexdigest() != sha256:
                raise UserError(f"{place}: damaged screenshot (its bytes have changed): {AGAIN}")
            return png
        raise UserError(f"{self._folders[0]}: missing screenshot {sha256}: {AGAIN}")

    def open(self, sha256: str) -> BinaryIO:
        """Opens an image; raises as `get`."""
        return io.BytesIO(self.get(sha256))

    def __contains__(self, sha256: str) -> bool:
        return bool(_SHA256.fullmatch(sha256)) and next(self._find(sha256), None) is not None

    def missing(self, names: Iterable[str]) -> list[str]:
        """Returns which of these images are not here, each once."""
        return [name for name in dict.fromkeys(names) if name not in self]

    def _find(self, sha256: str) -> Iterator[Path | tuple[Path, int]]:
        """Yields the places of an image: files, or rows of shards."""
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r}")
        yield from self._row(sha256)
        for folder in self._folders:
            if isinstance(folder, Path) and (path := _file(folder, sha256)).exists():
                yield path
        self._index()
        # Also of a manifest that another thread has read meanwhile.
        yield from self._row(sha256)

    def _row(self, sha256: str) -> Iterator[tuple[Path, int]]:
        """Yields the row of an image, unless its shard was replaced."""
        if (row := self._rows.get(sha256)) and row[0].exists():
            yield row

    def _index(self) -> None:
        """Reads where the images of new manifests are."""
        for folder in self._folders:
            if isinstance(folder, StorePath) and folder in self._read:
                continue
            try:
                text = (folder / MANIFEST).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if text == self._read.get(folder):
                continue
            manifest = parse_manifest(text, folder / MANIFEST)
            place = shards_folder(folder, manifest)
            for path in [place / shard.images for shard in manifest.shards if shard.images]:
                rows = orjson.loads(read_rows(path, [0])[0])
                self._rows |= {name: (path, row) for name, row in rows.items()}
            self._read[folder] = text


def _file(folder: AnyPath, sha256: str) -> Path:
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a SHA-256: {sha256!r}")
    if not isinstance(folder, Path):
        raise ValueError(f"{folder}: screenshots in a bucket are in shards")
    return folder / "images" / sha256[:2] / f"{sha256}.png"


def image_names(messages: Iterable[Message]) -> list[str]:
    """Returns the SHA-256 of the images in messages, in order."""
    return [part.sha256 for message in messages for part in message.content if isinstance(part, ImagePart)]


def record_images(record: BaseModel) -> list[str]:
    """Returns the SHA-256 of all images of a record, also of its observations, in order and each once."""
    # A dictionary keeps the order, unlike a set.
    return list(dict.fromkeys(_images(record)))


def is_image_field(model: type[BaseModel], field: str) -> bool:
    """Returns True if a field of a record holds the SHA-256 of an image (or None)."""
    return (
        (issubclass(model, ImagePart) and field == "sha256")
        or field == "screenshot"
        or field.endswith("_screenshot")
    )


def _images(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        for field, item in value:
            if not is_image_field(type(value), field):
                yield from _images(item)
            elif item is not None:
                yield item
    elif isinstance(value, tuple):
        for item in value:
            yield from _images(item)
