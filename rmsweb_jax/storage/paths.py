"""Paths that users give: of a disk, or of a bucket (`gs://BUCKET/FOLDER`, `s3://BUCKET/FOLDER`)."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rmsweb_jax.errors import UserError
from rmsweb_jax.storage.objects import SCHEMES, Entry, ObjectStore, open_bucket, require_package

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_VERSION = re.compile(r"[0-9a-f]{12}")
# What the folder of a published data set holds.
VERSIONS, IMAGES, SHARD_SUFFIX = "versions", "images", ".array_record"
_URL = re.compile(r"([a-z0-9]+)://([A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9])(/.*)?")


@dataclasses.dataclass(frozen=True, order=True)
class StorePath:
    """An object of a bucket, or a folder, which is the part of the keys before a `/`.

    It joins and reads like `pathlib.Path`. It is no `os.PathLike`, and nothing opens it for writing: code
    that needs a file on disk raises TypeError instead of making a local folder named `gs:`.

    Attributes:
      key: without a slash at either end.
      version: of the published data set in this folder; "" is the newest.
    """

    scheme: str
    bucket: str
    key: str
    version: str = ""

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/") + version

    def __truediv__(self, part: str | PurePosixPath) -> StorePath:
        if self.version:
            return self._in_version(PurePosixPath(part))
        key = str(PurePosixPath(self.key, part))
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{part!s}: not a path below {self}")
        return dataclasses.replace(self, key="" if key == "." else key)

    def at(self, version: str) -> StorePath:
        """Returns this folder as it was published in a version."""
        return dataclasses.replace(self, version=version)

    def _in_version(self, part: PurePosixPath) -> StorePath:
        """Joins a file's name to a folder with a version."""
        folder = self.at("")
        if part.name.startswith("."):  # A writer begins with its lease.
            raise UserError(f"{self}: a version can only be read: give {folder}")
        # Shards and packs have names of their own in every version, and are shared.
        is_shared = part.suffix == SHARD_SUFFIX or part.parts[0] == IMAGES
        return folder / part if is_shared else folder / VERSIONS / self.version / part

    @property
    def store(self) -> ObjectStore:
        return open_bucket(self.scheme, self.bucket)

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> StorePath:
        return dataclasses.replace(self, key=self.key.rpartition("/")[0], version="")

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def read_bytes(self) -> bytes:
        return self.store.read(self.key)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, data: bytes) -> None:
        """Writes the object whole: a reader sees all of it or what was there before."""
        self.store.write(self.key, data)

    def upload(self, file: Path) -> None:
        """Writes the object with the bytes of a file."""
        self.store.upload(self.key, file)

    def download(self, file: Path) -> None:
        """Writes the bytes of the object to a file, whole or not at all."""
        self.store.download(self.key, file)

    def size(self) -> int | None:
        """Returns the bytes of the object; None if there is none."""
        return self.store.size(self.key)

    def exists(self) -> bool:
        """Returns whether there is an object, or a folder with one."""
        return self.size() is not None or self.is_dir()

    def is_file(self) -> bool:
        return self.size() is not None

    def is_dir(self) -> bool:
        return bool(self.entries())

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok and self.size() is None:
            raise FileNotFoundError(str(self))
        self.store.delete(self.key)

    def entries(self) -> list[Entry]:
        """Lists all objects of this folder and below it, with their whole keys."""
        return self.store.entries(f"{self.key}/" if self.key else "")

    def iterdir(self) -> Iterator[StorePath]:
        """Yields the objects and folders in this folder."""
        skip = len(self.key) + 1 if self.key else 0
        for name in dict.fromkeys(entry.key[skip:].partition("/")[0] for entry in self.entries()):
            yield self / name

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """Yields the objects in this folder whose names match; the pattern has no `/`."""
        assert "/" not in pattern, pattern
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))


AnyPath = Path | StorePath


def parse_path(text: str, flag: str) -> AnyPath:
    """Converts the value of a flag or setting; `@VERSION` after a bucket's folder is a data set's version.

    Args:
      flag: its name, for error messages.

    Raises:
      UserError: it names no bucket, has an unknown scheme, or needs a package that is missing.
    """
    if not (found := _SCHEME.match(text)):
        return Path(text)
    scheme, known = found[1], ", ".join(f"{scheme}://" for scheme in SCHEMES)
    if scheme not in SCHEMES:
        raise UserError(f"{flag}={text}: unknown scheme {scheme}: give a path on disk or one of {known}")
    url = _URL.fullmatch(text)
    if url is None or ".." in text.split("/"):
        raise UserError(f"{flag}={text}: not the address of a bucket: give {scheme}://BUCKET/FOLDER")
    require_package(scheme)
    folder, at, version = (url[3] or "").strip("/").rpartition("@")
    if not at or "/" in version:
        folder, version = (url[3] or "").strip("/"), ""
    elif not _VERSION.fullmatch(version):
        raise UserError(
            f"{flag}={text}: no version of a data set: give {scheme}://{url[2]}/{folder}@ and 12 hexadecimal "
            "digits, which python -m experiments.records versions prints"
        )
    return (StorePath(scheme, url[2], "") / folder).at(version)


def local_path(text: str, flag: str) -> Path:
    """Converts the value of a flag or setting that must be on disk.

    Raises:
      UserError: as `parse_path`; or it names a bucket.
    """
    path = parse_path(text, flag)
    if isinstance(path, StorePath):
        raise UserError(f"{flag}={text}: this does not work with a bucket: give a path on disk")
    return path
