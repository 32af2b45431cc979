"""Copies on disk of what is in buckets; several processes share them.

Objects of data sets are in one bounded folder, by the SHA-256 of their bytes. A file is there whole or not at
all, and was checked when it was fetched. Models are folders of their own, which stay until the user deletes
them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic
from rmsweb_jax.storage.objects import Entry
from rmsweb_jax.storage.paths import AnyPath, StorePath

_FOLDER, _GIGABYTES = "RMSWEB_CACHE", "RMSWEB_CACHE_GB"
_DEFAULT_GB, _SMALL_GB = 50.0, 1.0
_THREADS = 8


class Cache:
    """Fetches objects and keeps those used last.

    Args:
      folder: created if missing.
      max_bytes: bound on the sum of all files; a single larger object is kept until the next one.
    """

    def __init__(self, folder: Path, max_bytes: int):
        self._folder, self._max_bytes = folder, max_bytes
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch")
        self._fetching: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def fetch(self, path: StorePath, size: int, sha256: str) -> Path:
        """Returns the file with the bytes of an object, which stay until others need the space.

        Raises:
          UserError: the object is missing, or has other bytes than its checksum says; or the disk is full.
        """
        file = self._folder / sha256[:2] / sha256
        if _use(file):
            return file
        # A thread that needs what another one fetches ahead waits for it.
        with self._fetching[sha256]:
            if not _use(file):
                self._fetch(path, size, sha256, file)
        return file

    def _fetch(self, path: StorePath, size: int, sha256: str, file: Path) -> None:
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise UserError(f"{path}: missing: make this data set again") from error
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise UserError(f"{path}: its bytes have changed since it was written: make this data set again")
        self._make_room(size)
        try:
            self._store(file, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._make_room(self._max_bytes)
            try:
                self._store(file, data)
            except OSError as again:
                raise UserError(
                    f"{self._folder}: the cache's disk is full: free space, or set {_FOLDER} to a folder on "
                    f"another disk or {_GIGABYTES} to less than {self._max_bytes / 1e9:g}"
                ) from again

    def fetch_ahead(self, objects: Sequence[tuple[StorePath, int, str]]) -> list[Future[Path]]:
        """Begins to fetch objects that will be needed; errors are raised when they are fetched again."""
        return [self._pool.submit(self.fetch, *one) for one in objects]

    @staticmethod
    def _store(file: Path, data: bytes) -> None:
        make_folder(file.parent)
        write_atomic(file, data)

    def _make_room(self, size: int) -> None:
        """Removes the files that were not used for longest; readers that have one open keep it."""
        used = []
        for file in self._folder.glob("*/*"):
            try:
                stat = file.stat()
            except FileNotFoundError:  # Another process removed it.
                continue
            used.append((stat.st_mtime_ns, stat.st_size, file))
        total = sum(one for _, one, _ in used) + size
        for _, one, file in sorted(used):
            if total <= self._max_bytes:
                return
            file.unlink(missing_ok=True)
            total -= one


def _use(file: Path) -> bool:
    """Marks a file as used now, since those that were not used for longest go first; False: not there."""
    try:
        os.utime(file)
    except FileNotFoundError:
        return False
    return True


@functools.lru_cache(maxsize=1)
def _open(folder: str, gigabytes: str, process: int) -> Cache:
    try:
        max_bytes = int(float(gigabytes) * 1e9)
    except ValueError:
        max_bytes = 0
    if max_bytes <= 0:
        raise UserError(f"{_GIGABYTES}={gigabytes}: give the cache's size in gigabytes, more than 0")
    return Cache(Path(folder), max_bytes)


def cache_folder() -> Path:
    """Returns the machine's folder for what belongs in buckets: RMSWEB_CACHE, or `~/.cache/rmsweb-jax`."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(_FOLDER) or Path(home) / "rmsweb-jax")


def open_cache() -> Cache:
    """Returns the machine's cache of objects, of RMSWEB_CACHE_GB (50)."""
    if _empty:
        return _empty[-1]
    return _open(str(cache_folder() / "objects"), os.environ.get(_GIGABYTES) or str(_DEFAULT_GB), os.getpid())


_empty: list[Cache] = []


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Lets this process use a small cache without anything in it, and removes it when the block ends."""
    home = cache_folder()
    make_folder(home)
    with tempfile.TemporaryDirectory(prefix="verify-", dir=home) as folder:
        _empty.append(Cache(Path(folder), int(_SMALL_GB * 1e9)))
        try:
            yield
        finally:
            _empty.pop()


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


def on_disk(path: AnyPath, size: int, sha256: str) -> Path:
    """Returns a file with the bytes of `path`: itself if it is on disk (unchecked), else a checked copy.

    Raises:
      UserError: as `Cache.fetch`.
    """
    return open_cache().fetch(path, size, sha256) if isinstance(path, StorePath) else path
