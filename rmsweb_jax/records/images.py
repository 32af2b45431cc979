"""Screenshots, stored once by the SHA-256 of their bytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, sync_folder, write_atomic
from rmsweb_jax.records.schema import ImagePart, Message

_SHA256 = re.compile(r"[0-9a-f]{64}")
# File systems without hard links, or with the source on another one.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class ImageStore:
    """The PNG files of a data set folder, at `folder/images/ab/abcdef….png`.

    Several processes may put images at the same time: equal bytes have the same file.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._root = Path(folder) / "images"

    def path(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r}")
        return self._root / sha256[:2] / f"{sha256}.png"

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
        # Verified on every read: a damaged screenshot would otherwise be trained on.
        path = self.path(sha256)
        try:
            png = path.read_bytes()
        except FileNotFoundError as error:
            raise UserError(f"{path}: missing screenshot: make this data set again") from error
        if hashlib.sha256(png).hexdigest() != sha256:
            raise UserError(f"{path}: damaged screenshot (its bytes have changed): make this data set again")
        return png

    def __contains__(self, sha256: str) -> bool:
        return self.path(sha256).exists()

    def link_from(self, other: ImageStore, sha256: str) -> None:
        """Adds an image of another store, by a hard link if possible, else by a copy.

        A link is durable only after `sync`, which `write_dataset` calls.

        Raises:
          UserError: `other` lacks the image.
        """
        path, source = self.path(sha256), other.path(sha256)
        if path.exists():
            return
        make_folder(path.parent)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(source, path)
        except FileNotFoundError as error:
            raise UserError(f"{source}: missing screenshot: make that data set again") from error
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self.put(other.get(sha256))

    def sync(self) -> None:
        """Makes all links durable at once, because a data set may have very many."""
        if self._root.is_dir():
            for folder in (self._root, *self._root.iterdir()):
                sync_folder(folder)


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
