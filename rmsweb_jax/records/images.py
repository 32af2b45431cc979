"""Screenshots, stored once by the SHA-256 of their bytes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import link_or_copy, make_folder, sync_folder, write_atomic
from rmsweb_jax.records.packs import PackReader, read_packs
from rmsweb_jax.records.schema import ImagePart, Message
from rmsweb_jax.storage import StorePath, parse_path

_SHA256 = re.compile(r"[0-9a-f]{64}")


class ImageStore:
    """The screenshots of a data set folder: files `folder/images/ab/abcdef….png`, or packs of its manifest.

    Several processes may put images at the same time: equal bytes have the same file. In a bucket there are
    packs only, and nothing can be put.
    """

    def __init__(self, folder: str | os.PathLike[str] | StorePath):
        self._folder = folder if isinstance(folder, StorePath) else parse_path(os.fspath(folder), "folder")
        self._root = self._folder / "images" if isinstance(self._folder, Path) else None

    def path(self, sha256: str) -> Path:
        """The file of an image that is in no pack, whether it exists or not."""
        _check_name(sha256)
        if self._root is None:
            raise ValueError(f"{self._folder}: screenshots in a bucket are in packs")
        return self._root / sha256[:2] / f"{sha256}.png"

    def where(self, sha256: str) -> str:
        """Says for people where an image is."""
        if self._root is not None and ((path := self.path(sha256)).exists() or self._packed is None):
            return str(path)
        place = self._packed.find(sha256) if self._packed else None
        if place is None:
            return f"{self._folder}: {sha256}"
        return f"{self._folder / place.pack.file} (byte {place.start})"

    @functools.cached_property
    def _packed(self) -> PackReader | None:
        packs = read_packs(self._folder)
        return PackReader(self._folder, packs) if packs else None

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
          UserError: the file is missing or its bytes have changed.
        """
        png = self._read(sha256)
        if png is None:
            raise UserError(f"{self.where(sha256)}: missing screenshot: make this data set again")
        # Verified on every read: a damaged screenshot would otherwise be trained on.
        if hashlib.sha256(png).hexdigest() != sha256:
            raise UserError(
                f"{self.where(sha256)}: damaged screenshot (its bytes have changed): make this data set again"
            )
        return png

    def open(self, sha256: str) -> BinaryIO:
        """Opens an image, of which a part may be read, and whose bytes are not checked.

        Raises:
          UserError: it is missing.
        """
        _check_name(sha256)
        if self._root is not None:
            with contextlib.suppress(FileNotFoundError):
                return open(self.path(sha256), "rb")
        return io.BytesIO(self.get(sha256))

    def fetch_ahead(self, names: Iterable[str]) -> None:
        """Begins to fetch images that will be needed from a bucket; on disk it does nothing."""
        if self._root is None and self._packed is not None:
            self._packed.fetch_ahead(names)

    def _read(self, sha256: str) -> bytes | None:
        _check_name(sha256)
        if self._root is not None:
            with contextlib.suppress(FileNotFoundError):
                return self.path(sha256).read_bytes()
        if self._packed is None or (place := self._packed.find(sha256)) is None:
            return None
        return self._packed.read(place)

    def __contains__(self, sha256: str) -> bool:
        _check_name(sha256)
        if self._root is not None and self.path(sha256).exists():
            return True
        return self._packed is not None and self._packed.find(sha256) is not None

    def missing(self, names: Iterable[str]) -> list[str]:
        """Returns which of these images are not here, each once; looks for their names alone."""
        files = () if self._root is None else self._root.glob("[0-9a-f][0-9a-f]/*.png")
        here, packed = {path.stem for path in files}, self._packed
        return [
            name
            for name in dict.fromkeys(names)
            if name not in here and (packed is None or packed.find(name) is None)
        ]

    def link_from(self, other: ImageStore, sha256: str) -> None:
        """Adds an image of another store, by a hard link if possible, else by a copy.

        A link is durable only after `sync`, which `write_dataset` calls.

        Raises:
          UserError: `other` lacks the image.
        """
        path = self.path(sha256)
        if path.exists():
            return
        if other._root is None or not other.path(sha256).exists():
            self.put(other.get(sha256))
            return
        make_folder(path.parent)
        link_or_copy(other.path(sha256), path)

    def sync(self) -> None:
        """Makes all links durable at once, because a data set may have very many."""
        if self._root is not None and self._root.is_dir():
            for folder in (self._root, *self._root.iterdir()):
                sync_folder(folder)


def _check_name(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a SHA-256: {sha256!r}")


def image_names(messages: Iterable[Message]) -> list[str]:
    """Returns the SHA-256 of the images in messages, in order."""
    return [part.sha256 for message in messages for part in message.content if isinstance(part, ImagePart)]


def record_images(record: BaseModel) -> list[str]:
    """Returns the SHA-256 of all images of a record, also of its observations, in order and each once."""
    # A dictionary keeps the order, unlike a set.
    return list(dict.fromkeys(_images(record)))


R = TypeVar("R", bound=BaseModel)
_AHEAD = 16  # Records whose images are fetched while earlier ones are used.


def read_ahead(records: Iterable[R], images: ImageStore) -> Iterator[R]:
    """Yields the records, and begins to fetch the images of the next ones from a bucket."""
    stream, ahead = iter(records), deque[R]()
    while True:
        for record in itertools.islice(stream, _AHEAD + 1 - len(ahead)):
            images.fetch_ahead(record_images(record))
            ahead.append(record)
        if not ahead:
            return
        yield ahead.popleft()


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
