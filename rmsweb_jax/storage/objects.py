"""Buckets of Google Cloud Storage and S3, through fsspec's calls for whole objects.

fsspec's file objects are not used: they publish half a file when the writer raises, and replace instead of
appending. Its listings are not cached: other processes' objects would stay invisible.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rmsweb_jax.errors import UnreachableError, UserError
from rmsweb_jax.records.files import replacing

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


class _Client(Protocol):
    """What differs between the services: conditional writes, and the names of errors."""

    fs: Any

    def version(self, bucket: str, key: str) -> str:
        """Returns the version of an object; raises FileNotFoundError."""
        ...

    def write_if(self, bucket: str, key: str, data: bytes, version: str) -> bool:
        """Writes if the object has this version ("": does not exist); False if it has not."""
        ...

    def is_missing_bucket(self, bucket: str) -> bool: ...


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
        self._client = _CLIENTS[scheme]()

    def read(self, key: str) -> bytes:
        return self._call(key, lambda: self._client.fs.cat_file(self._path(key)))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Reads the bytes [start, stop); fewer where the object ends before."""
        return self._call(key, lambda: self._client.fs.cat_file(self._path(key), start=start, end=stop))

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Reads an object and its version, for `replace`."""
        # The version first: if a writer comes in between, `replace` refuses this version.
        version = self._call(key, lambda: self._client.version(self._bucket, key))
        return self.read(key), version

    def write(self, key: str, data: bytes) -> None:
        self._call(key, lambda: self._client.fs.pipe_file(self._path(key), data))

    def upload(self, key: str, file: Path) -> None:
        """Writes an object with the bytes of a file, which need not fit into memory."""
        self._call(key, lambda: self._client.fs.put_file(str(file), self._path(key)))

    def download(self, key: str, file: Path) -> None:
        """Writes the bytes of an object to a file, whole or not at all."""
        with replacing(file) as temporary:
            self._call(key, lambda: self._client.fs.get_file(self._path(key), str(temporary)))

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object that does not exist yet.

        Returns:
          False if there is one with other bytes. Writers that must not mistake each other's objects for
          their own put something random into them: equal bytes count as one's own write, whose reply may
          have been lost.
        """
        return self._write_if(key, data, "")

    def replace(self, key: str, data: bytes, version: str) -> bool:
        """Writes an object if it still has a version that `read_version` returned; False if it has not."""
        return self._write_if(key, data, version)

    def entries(self, prefix: str) -> list[Entry]:
        """Lists all objects whose keys begin with `prefix`, sorted by key."""
        # `find` takes a folder and a prefix of the names in it, at any depth.
        folder, _, start = prefix.rpartition("/")
        try:
            found = self._call(
                prefix, lambda: self._client.fs.find(self._path(folder), prefix=start, detail=True)
            )
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
            self._call(key, lambda: self._client.fs.rm_file(self._path(key)))

    def size(self, key: str) -> int | None:
        """Returns the bytes of an object; None if there is none."""
        try:
            info = self._call(key, lambda: self._client.fs.info(self._path(key)))
        except FileNotFoundError:
            return None
        return int(info["size"] or 0) if info["type"] == "file" else None

    def check(self) -> None:
        """Raises UserError if the bucket does not exist, or may not be listed."""
        if self._call("", lambda: self._client.is_missing_bucket(self._bucket)):
            raise UserError(f"{self._url}: there is no such bucket: make it, or correct the name")

    def _path(self, key: str) -> str:
        return f"{self._bucket}/{key}"

    def _write_if(self, key: str, data: bytes, version: str) -> bool:
        if self._call(key, lambda: self._client.write_if(self._bucket, key, data, version)):
            return True
        # The clients repeat a request whose reply was lost, and the second one meets the first one's object.
        with contextlib.suppress(FileNotFoundError):
            return self.read(key) == data
        return False

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


class _Gcs:
    def __init__(self) -> None:
        import aiohttp
        import gcsfs
        from google.cloud import storage

        # They tell of every read.
        for name in ("gcsfs", "fsspec"):
            logging.getLogger(name).setLevel(logging.WARNING)
        endpoint = os.environ.get("STORAGE_EMULATOR_HOST")
        # Emulators have no accounts.
        token = "anon" if endpoint else None
        self.fs = gcsfs.GCSFileSystem(
            token=token,
            use_listings_cache=False,
            skip_instance_cache=True,
            # It waits for ever by default.
            requests_timeout=aiohttp.ClientTimeout(sock_connect=SILENCE_S, sock_read=SILENCE_S),
        )
        self._client = storage.Client.create_anonymous_client() if endpoint else storage.Client()

    def version(self, bucket: str, key: str) -> str:
        # By gcsfs: the other client takes a response that was cut in its head for one without a body.
        found: Any = self.fs.call("GET", "b/{}/o/{}", bucket, key, json_out=True)
        return str(found["generation"])

    def write_if(self, bucket: str, key: str, data: bytes, version: str) -> bool:
        from google.api_core.exceptions import PreconditionFailed
        from google.cloud.storage.retry import DEFAULT_RETRY

        # Bytes below 8 MB go in one multipart request, which has the condition.
        try:
            self._client.bucket(bucket).blob(key).upload_from_string(
                data,
                content_type="application/octet-stream",
                if_generation_match=int(version or 0),
                retry=DEFAULT_RETRY,
                timeout=SILENCE_S,
            )
        except PreconditionFailed:
            return False
        return True

    def is_missing_bucket(self, bucket: str) -> bool:
        try:
            self.fs.call("GET", "b/{}/o", bucket, maxResults=1)
        except FileNotFoundError:
            return True
        return False


class _S3:
    def __init__(self) -> None:
        import s3fs

        # They tell where they found the account.
        for name in ("botocore", "aiobotocore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        silence = {"connect_timeout": SILENCE_S, "read_timeout": SILENCE_S}
        self.fs = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True, config_kwargs=silence)

    def version(self, bucket: str, key: str) -> str:
        head: Any = self.fs.call_s3("head_object", Bucket=bucket, Key=key)
        return head["ETag"]

    def write_if(self, bucket: str, key: str, data: bytes, version: str) -> bool:
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            self.fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
        except OSError as error:
            response = getattr(error.__cause__, "response", None) or {}
            # 409: another conditional write is under way. 404: the object to replace is gone.
            if response.get("ResponseMetadata", {}).get("HTTPStatusCode") not in (404, 409, 412):
                raise
            if response["Error"].get("Code") == "NoSuchBucket":
                raise
            return False
        return True

    def is_missing_bucket(self, bucket: str) -> bool:
        try:
            self.fs.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1)
        except FileNotFoundError:
            return True
        return False


def _is_refusal(error: BaseException) -> bool:
    """Whether the service knows neither the account nor its rights."""
    if isinstance(error, PermissionError) or str(error).startswith("Forbidden"):
        return True
    code = getattr(error, "code", None)
    names = ("NoCredentialsError", "DefaultCredentialsError", "RefreshError")
    return code in (401, 403, "401", "403") or type(error).__name__ in names


_CLIENTS: dict[str, Callable[[], _Client]] = {"gs": _Gcs, "s3": _S3}
# The packages of each scheme, and the extra that installs them.
_PACKAGES = {"gs": (("gcsfs", "google.cloud.storage"), "gcs"), "s3": (("s3fs",), "s3")}
SCHEMES = tuple(_PACKAGES)


def require_package(scheme: str) -> None:
    """Raises UserError if the packages of a known scheme are not installed."""
    names, extra = _PACKAGES[scheme]
    if missing := [name for name in names if not _is_installed(name)]:
        raise UserError(f"{scheme}:// needs {missing[0]}: pip install 'rmsweb-jax[{extra}]'")


def _is_installed(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # Of a package around it.
        return False


@functools.cache
def bucket_of_process(scheme: str, bucket: str, process: int) -> ObjectStore:
    """Returns the client that `open_bucket` shares in a process. It stays bound to the service's address."""
    return ObjectStore(scheme, bucket)


def open_bucket(scheme: str, bucket: str) -> ObjectStore:
    """Returns this process's client of a bucket. A forked child gets its own: connections are not shared."""
    return bucket_of_process(scheme, bucket, os.getpid())
