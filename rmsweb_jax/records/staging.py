"""A run's folder in a bucket: the stage works in a folder on disk, and what it made is copied there.

Journals, locks, links and databases stay on the disk, where they work. Nothing is in the bucket before the
stage has finished, and `report.json` comes last. A stopped run continues on the machine that began it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from rmsweb_jax.records.dataset import MANIFEST
from rmsweb_jax.records.files import is_temporary, make_folder, write_atomic
from rmsweb_jax.records.publish import LEASE, REPORT, publish_dataset, side_files
from rmsweb_jax.storage import AnyPath, Lease, StorePath
from rmsweb_jax.storage.cache import cache_folder

# What `workdir` needs to see that a stage has finished, and with which settings.
_STATE = ("config.json", REPORT)
# They are of this machine, or published as a data set.
_FOLDERS = ("images", "journal", "files")
_FILES = (".lock", "progress.json", "elapsed.json", "log.txt", MANIFEST, REPORT)
_SUFFIXES = (".array_record", ".sqlite", ".sqlite-wal", ".sqlite-shm")


@contextlib.contextmanager
def staged(workdir: AnyPath) -> Iterator[Path]:
    """Yields the folder in which a stage works: the workdir itself, or one on disk for a bucket's.

    Raises:
      UserError: the bucket cannot be used, another process writes to the workdir, or this one lost the right
        to do so.
    """
    if isinstance(workdir, Path):
        yield workdir
        return
    workdir.store.check()
    folder = cache_folder() / "workdirs" / hashlib.sha256(str(workdir).encode()).hexdigest()[:16]
    make_folder(folder)
    with Lease(workdir.store, (workdir / LEASE).key, str(workdir), on_lost=_stop) as lease:
        _fetch_state(workdir, folder)
        yield folder
        lease.check()
        publish_folder(folder, workdir, lease)


def publish_folder(folder: Path, target: StorePath, lease: Lease) -> None:
    """Copies what a finished stage wrote: data sets as such, then all other files, then the report."""
    datasets = [path.parent for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    for dataset in datasets:
        publish_dataset(dataset, target / dataset.name, lease)
    own = (folder / MANIFEST).exists()
    with_records = side_files(folder) if own else []
    for path in _files(folder, datasets):
        if path not in with_records:
            (target / path.relative_to(folder).as_posix()).upload(path)
    lease.check()
    if own:
        publish_dataset(folder, target, lease)
    elif (folder / REPORT).exists():
        (target / REPORT).write_bytes((folder / REPORT).read_bytes())


def _files(folder: Path, datasets: list[Path]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or is_temporary(path) or any(path.is_relative_to(one) for one in datasets):
            continue
        if parts[0] in _FOLDERS or path.suffix in _SUFFIXES or (len(parts) == 1 and parts[0] in _FILES):
            continue
        yield path


def _fetch_state(workdir: StorePath, folder: Path) -> None:
    """Brings a run that has finished elsewhere, so far that its stage finds it finished."""
    if (folder / REPORT).exists():
        return
    with contextlib.suppress(FileNotFoundError):
        report = (workdir / REPORT).read_bytes()
        for name in _STATE:
            data = report if name == REPORT else (workdir / name).read_bytes()
            write_atomic(folder / name, data)


def _stop() -> None:
    # As if the machine were reclaimed: what runs saves its state, and nothing is published.
    os.kill(os.getpid(), signal.SIGTERM)
