"""Screenshots in packs: files of about 8 MB, and one index that says where each image is.

Object storage is slow and dear by the object, not by the byte: a thousand screenshots are four packs. An
image is found by its SHA-256 in the index, and its pack is read whole, since those next to it belong to the
same run.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import orjson
from pydantic import ConfigDict

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Record
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.storage.cache import on_disk, open_cache

PACK_BYTES = 8_000_000
# A row of the index: SHA-256, number of the pack, and the image's place and length in it. Rows are sorted.
_ROW = struct.Struct(">32sIQI")


class StoredFile(Record):
    """A file of a data set with its checksum; its name is relative to the folder."""

    file: str
    bytes: int
    sha256: str


def describe_file(name: str, data: bytes) -> StoredFile:
    return StoredFile(file=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class Packs(Record):
    """The packed screenshots of a data set.

    Attributes:
      images: number of different images.
    """

    # Those of earlier versions have more keys.
    model_config = ConfigDict(extra="ignore")

    index: StoredFile
    packs: tuple[StoredFile, ...]
    images: int


class Span(NamedTuple):
    """Where an image is."""

    pack: StoredFile
    start: int
    length: int


def write_packs(
    names: Iterable[str],
    get: Callable[[str], bytes],
    write: Callable[[StoredFile, bytes], None],
    pack_bytes: int = PACK_BYTES,
) -> Packs:
    """Writes packs and then their index; the same images in the same order make the same files.

    Args:
      names: SHA-256 of each image once, in the order in which they will be read.
      get: reads an image.
      write: writes a file of a data set whole. Its name has a hash of its bytes, so that it never replaces
        one that an earlier manifest names.
    """
    rows: list[bytes] = []
    packs: list[StoredFile] = []
    for images in _groups(names, get, pack_bytes):
        start = 0
        for name, png in images:
            rows.append(_ROW.pack(bytes.fromhex(name), len(packs), start, len(png)))
            start += len(png)
        packs.append(_write("pack", b"".join(png for _, png in images), write))
    index = _write("index", b"".join(sorted(rows)), write)
    return Packs(index=index, packs=tuple(packs), images=len(rows))


def _groups(
    names: Iterable[str], get: Callable[[str], bytes], pack_bytes: int
) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = 0
    for name in names:
        png = get(name)
        if group and size + len(png) > pack_bytes:
            yield group
            group, size = [], 0
        group.append((name, png))
        size += len(png)
    if group:
        yield group


def _write(kind: str, data: bytes, write: Callable[[StoredFile, bytes], None]) -> StoredFile:
    file = describe_file(f"images/{hashlib.sha256(data).hexdigest()[:16]}.{kind}", data)
    write(file, data)
    return file


def read_packs(folder: AnyPath) -> Packs | None:
    """Reads what a data set's manifest says about packs; None if there are none.

    Raises:
      UserError: it is damaged.
    """
    path = folder / "manifest.json"
    try:
        content = orjson.loads(path.read_bytes()).get("images")
        return None if content is None else Packs.model_validate(content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path}: not a manifest: {_AGAIN}") from error


class PackReader:
    """Reads single images of a data set's packs; threads may share it.

    Raises:
      UserError: the index is missing or damaged.
    """

    def __init__(self, folder: AnyPath, packs: Packs):
        self._folder, self.packs = folder, packs
        self._fetched: set[str] = set()
        self._index = _read_whole(folder, packs.index)
        if len(self._index) != packs.images * _ROW.size:
            raise UserError(f"{folder / packs.index.file}: not the index of {packs.images} images: {_AGAIN}")

    def find(self, sha256: str) -> Span | None:
        """Returns the place of an image; None if there is none."""
        key, index, size, count = bytes.fromhex(sha256), self._index, _ROW.size, self.packs.images
        row = bisect.bisect_left(range(count), key, key=lambda row: index[row * size : row * size + 32])
        if row == count or index[row * size : row * size + 32] != key:
            return None
        _, number, start, length = _ROW.unpack_from(index, row * size)
        return Span(self.packs.packs[number], start, length)

    def fetch_ahead(self, names: Iterable[str]) -> None:
        """Begins to fetch the packs of images from a bucket, unless this reader has done so before."""
        spans = (self.find(name) for name in names)
        packs = {span.pack.file: span.pack for span in spans if span and span.pack.file not in self._fetched}
        self._fetched.update(packs)
        paths = ((self._folder / pack.file, pack) for pack in packs.values())
        open_cache().fetch_ahead(
            [(path, pack.bytes, pack.sha256) for path, pack in paths if isinstance(path, StorePath)]
        )

    def read(self, span: Span) -> bytes:
        """Reads an image, without checking its bytes.

        Raises:
          UserError: the pack is missing; or, in a bucket, its bytes have changed.
        """
        pack = span.pack
        path = self._folder / pack.file
        try:
            with open(on_disk(path, pack.bytes, pack.sha256), "rb") as file:
                file.seek(span.start)
                return file.read(span.length)
        except FileNotFoundError as error:
            raise UserError(f"{path}: missing: {_AGAIN}") from error

    def damaged(self) -> Iterator[str]:
        """Yields a message for each pack that is missing or whose bytes have changed."""
        for pack in self.packs.packs:
            try:
                _read_whole(self._folder, pack)
            except UserError as error:
                yield str(error)


_AGAIN = "make this data set again"


def _read_whole(folder: AnyPath, file: StoredFile) -> bytes:
    path = folder / file.file
    try:
        data = on_disk(path, file.bytes, file.sha256).read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: missing: {_AGAIN}") from error
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise UserError(f"{path}: its bytes have changed since it was written: {_AGAIN}")
    return data
