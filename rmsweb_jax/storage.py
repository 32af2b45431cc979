"""Files in buckets of Google Cloud Storage and S3, by paths like those on disk (`gs://BUCKET/FOLDER`).

Only fsspec's calls for whole objects are used: its file objects publish half a file when the writer raises,
and replace instead of appending.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import fnmatch
import functools
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from rmsweb_jax.errors import TakenOverError, UnreachableError, UserError
from rmsweb_jax.records.files import make_folder, replacing

_FOLDER, _THREADS = "RMSWEB_CACHE", 8
T = TypeVar("T")
# A request fails, and is repeated, when nothing arrives for so long: a router may drop a connection and tell
# neither side.
SILENCE_S = 60


class Entry(NamedTuple):
    """An object in a listing.

    Attributes:
      size: in bytes.
      version: every write changes it.
    """

    key: str
    size: int
    version: str = ""


class ObjectStore:
    """The objects of a bucket, under keys such as `runs/a/report.json`.

    There is no append, rename, link or lock, since buckets have none. A write is visible whole or not at all.
    Reads raise FileNotFoundError for a key that does not exist, and all methods raise UserError when the
    service cannot be reached or refuses the request.

    Args:
      scheme: `gs` or `s3`.

    Raises:
      UserError: the service's package is not installed.
    """

    def __init__(self, scheme: str, bucket: str):
        require_package(scheme)
        self._url, self._bucket = f"{scheme}://{bucket}", bucket
        self._scheme, self._fs = scheme, _filesystem(scheme)

    def read(self, key: str) -> bytes:
        return self._call(key, lambda: self._fs.cat_file(self._path(key)))

    def write(self, key: str, data: bytes) -> None:
        self._call(key, lambda: self._fs.pipe_file(self._path(key), data))

    def upload(self, key: str, file: Path) -> None:
        """Writes an object with the bytes of a file, which need not fit into memory."""
        self._call(key, lambda: self._fs.put_file(str(file), self._path(key)))

    def download(self, key: str, file: Path) -> None:
        """Writes the bytes of an object to a file, whole or not at all."""
        with replacing(file) as temporary:
            self._call(key, lambda: self._fs.get_file(self._path(key), str(temporary)))

    def entries(self, prefix: str) -> list[Entry]:
        """Lists all objects whose keys begin with `prefix`, sorted by key."""
        # `find` takes a folder and a prefix of the names in it, at any depth.
        folder, _, start = prefix.rpartition("/")
        try:
            found = self._call(prefix, lambda: self._fs.find(self._path(folder), prefix=start, detail=True))
        except FileNotFoundError:
            self.check()
            return []
        skip = len(self._bucket) + 1
        entries = [
            Entry(path[skip:], int(info["size"] or 0), str(info.get("etag") or info.get("ETag")))
            for path, info in found.items()
        ]
        # Folders made by hand in a web console are empty objects.
        return sorted(entry for entry in entries if entry.key.startswith(prefix) and entry.key[-1:] != "/")

    def delete(self, key: str) -> None:
        """Deletes an object, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._call(key, lambda: self._fs.rm_file(self._path(key)))

    def size(self, key: str) -> int | None:
        """Returns the bytes of an object; None if there is none."""
        try:
            info = self._call(key, lambda: self._fs.info(self._path(key)))
        except FileNotFoundError:
            return None
        return int(info["size"] or 0) if info["type"] == "file" else None

    def check(self) -> None:
        """Raises UserError if the bucket does not exist, or may not be listed."""

        def request() -> None:
            if self._scheme == "gs":
                self._fs.call("GET", "b/{}/o", self._bucket, maxResults=1)
            else:
                self._fs.call_s3("list_objects_v2", Bucket=self._bucket, MaxKeys=1)

        try:
            self._call("", request)
        except FileNotFoundError:
            raise UserError(f"{self._url}: there is no such bucket: make it, or correct the name") from None

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{key}"

    def _call(self, key: str, function: Callable[[], T]) -> T:
        """Calls a client; turns all errors but a missing object into one line."""
        try:
            return function()
        except (FileNotFoundError, TypeError, AttributeError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # Of the disk to which an object is downloaded.
            where = f"{self._url}/{key}"
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            if _is_refusal(error):
                raise UserError(f"{where}: no rights: give this account access ({reason})") from error
            # Both clients have repeated the request several times by now.
            raise UnreachableError(
                f"{where}: the store did not answer as it should ({reason}): try again"
            ) from error


def _filesystem(scheme: str) -> Any:
    """Opens the client of a service. Listings are not cached: other processes' objects would stay unseen."""
    import fsspec  # Comes with both services' packages.

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme == "gs":
        import aiohttp

        # It waits for ever by default.
        options["requests_timeout"] = aiohttp.ClientTimeout(sock_connect=SILENCE_S, sock_read=SILENCE_S)
        if os.environ.get("STORAGE_EMULATOR_HOST"):  # Emulators have no accounts.
            options["token"] = "anon"
    else:
        options["config_kwargs"] = {"connect_timeout": SILENCE_S, "read_timeout": SILENCE_S}
    # They log every read, and where they found the account.
    for name in ("gcsfs", "fsspec", "botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return fsspec.filesystem(scheme, **options)


def _is_refusal(error: BaseException) -> bool:
    """Whether the service knows neither the account nor its rights."""
    if isinstance(error, PermissionError) or str(error).startswith("Forbidden"):
        return True
    code = getattr(error, "code", None)
    names = ("NoCredentialsError", "DefaultCredentialsError", "RefreshError")
    return code in (401, 403, "401", "403") or type(error).__name__ in names


# The packages of each scheme, and the extra that installs them.
_PACKAGES = {"gs": ("gcsfs", "gcs"), "s3": ("s3fs", "s3")}
SCHEMES = tuple(_PACKAGES)


def require_package(scheme: str) -> None:
    """Raises UserError if the packages of a known scheme are not installed."""
    name, extra = _PACKAGES[scheme]
    if util.find_spec(name) is None:
        raise UserError(f"{scheme}:// needs {name}: pip install '.[{extra}]' in the checkout")


@functools.cache
def bucket_of_process(scheme: str, bucket: str, process: int) -> ObjectStore:
    """Returns the client that `open_bucket` shares in a process. It stays bound to the service's address."""
    return ObjectStore(scheme, bucket)


def open_bucket(scheme: str, bucket: str) -> ObjectStore:
    """Returns this process's client of a bucket. A forked child gets its own: connections are not shared."""
    return bucket_of_process(scheme, bucket, os.getpid())


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_URL = re.compile(r"([a-z0-9]+)://([A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9])(/.*)?")


@dataclasses.dataclass(frozen=True, order=True)
class StorePath:
    """An object of a bucket, or a folder, which is the part of the keys before a `/`.

    It joins and reads like `pathlib.Path`. It is no `os.PathLike`, and nothing opens it for writing: code
    that needs a file on disk raises TypeError instead of making a local folder named `gs:`.

    Attributes:
      key: without a slash at either end.
    """

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, part: str | PurePosixPath) -> StorePath:
        key = str(PurePosixPath(self.key, part))
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{part!s}: not a path below {self}")
        return dataclasses.replace(self, key="" if key == "." else key)

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
        return dataclasses.replace(self, key=self.key.rpartition("/")[0])

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
    """Converts the value of a flag or setting.

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
    return StorePath(scheme, url[2], "") / (url[3] or "").strip("/")


def local_path(text: str, flag: str) -> Path:
    """Converts the value of a flag or setting that must be on disk.

    Raises:
      UserError: as `parse_path`; or it names a bucket.
    """
    path = parse_path(text, flag)
    if isinstance(path, StorePath):
        raise UserError(f"{flag}={text}: this does not work with a bucket: give a path on disk")
    return path


def cache_folder() -> Path:
    """Returns the machine's folder for what belongs in buckets: RMSWEB_CACHE, or `~/.cache/rmsweb-jax`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(_FOLDER) or Path(home) / "rmsweb-jax")


def fetch_folder(folder: StorePath) -> Path:
    """Returns a copy on disk of a folder with all its objects, such as a model; each version is fetched once.

    Raises:
      UserError: the store does not answer, or the disk is full.
    """
    place = cache_folder() / "folders" / hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    make_folder(place)
    with open(place / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            entries = folder.entries()
            version = hashlib.sha256("\n".join(map(str, entries)).encode()).hexdigest()[:16]
            copy, unfinished = place / version, place / f"{version}.part"
            if copy.exists():
                return copy
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(functools.partial(_download, folder, unfinished), entries))
            # Of a folder that was written meanwhile, old and new objects may be here.
            if folder.entries() == entries:
                os.rename(unfinished, copy)
                return copy
            shutil.rmtree(unfinished)


def _download(folder: StorePath, target: Path, entry: Entry) -> None:
    file = target / entry.key.removeprefix(f"{folder.key}/")
    # What an interrupted call has fetched is whole.
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        folder.store.download(entry.key, file)


def folder_on_disk(workdir: AnyPath, process: int = 0) -> Path:
    """Returns the folder in which a stage works: the workdir itself, or one on disk for a bucket's.

    Args:
      process: number of the process in a run of several, which may share the disk.
    """
    if isinstance(workdir, Path):
        return workdir
    name = hashlib.sha256(str(workdir).encode()).hexdigest()[:16]
    return cache_folder() / "workdirs" / (f"{name}-{process}" if process else name)


_OWNER = ".owner"
_owned: dict[StorePath, Owner] = {}


class Owner(contextlib.AbstractContextManager["Owner"]):
    """The process that writes to a folder of a bucket: the one that has started last.

    It writes a random name into the folder when it starts, and reads it before it publishes anything. The
    process before it, on a machine that was given up, finds another name than its own and stops.

    Attributes:
      folder: in the bucket.
      run: a random name, which all owners of a folder share until it is deleted.
    """

    def __init__(self, folder: StorePath):
        self.folder, self._name = folder, secrets.token_hex(8)
        self.run = (self._read() or {}).get("run", secrets.token_hex(8))
        (folder / _OWNER).write_bytes(json.dumps({"run": self.run, "owner": self._name}).encode())

    def check(self) -> None:
        """Raises TakenOverError if another process has started to write there, or the folder was deleted."""
        if (self._read() or {}).get("owner") != self._name:
            raise TakenOverError(
                f"{self.folder}: deleted, or another process has taken over this run; this one has stopped"
            )

    def _read(self) -> dict[str, str] | None:
        try:
            return json.loads((self.folder / _OWNER).read_bytes())
        except FileNotFoundError:
            return None

    def __enter__(self) -> Owner:
        _owned[self.folder] = self
        return self

    def __exit__(self, *_: object) -> None:
        _owned.pop(self.folder, None)


def check_owner(folder: AnyPath) -> None:
    """Raises as `Owner.check` where this process owns a folder."""
    if isinstance(folder, StorePath) and folder in _owned:
        _owned[folder].check()
