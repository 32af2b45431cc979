"""A run's folder in a bucket: the stage works in a folder on disk, and what it made is copied there.

Journals, locks, links and databases stay on the disk, where they work. Before the stage has finished only
its settings are in the bucket, and the episodes of a fleet that was stopped (`publish_episodes`);
`report.json` comes last. A stopped run continues on the machine that began it. Training is different: it
saves checkpoints and metrics to the bucket, so that any machine can continue.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.records.dataset import MANIFEST
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.files import is_temporary, make_folder, write_atomic
from rmsweb_jax.records.publish import LEASE, REPORT, publish_dataset, side_files
from rmsweb_jax.records.versions import keep_version
from rmsweb_jax.storage import AnyPath, Lease, StorePath
from rmsweb_jax.storage.cache import cache_folder
from rmsweb_jax.storage.paths import VERSIONS

CONFIG, _NAME = "config.json", ".run"
# They are of this machine, published as a data set, or saved to the bucket while the stage runs.
_FOLDERS = ("images", "files", "live", "checkpoints", VERSIONS)
_FILES = (
    *(_NAME, ".lock", "progress.json", "elapsed.json", EPISODES, "calls.jsonl", "log.txt"),
    *(MANIFEST, REPORT),
)
_THREADS = 8
# The buckets of the stages that run in this process, by the folder in which they work.
_targets: dict[Path, tuple[StorePath, Lease]] = {}


def folder_on_disk(workdir: AnyPath, process: int = 0) -> Path:
    """Returns the folder in which a stage works: the workdir itself, or one on disk for a bucket's.

    Args:
      process: number of the process in a run of several, which may share the disk.
    """
    if isinstance(workdir, Path):
        return workdir
    name = hashlib.sha256(str(workdir).encode()).hexdigest()[:16]
    return cache_folder() / "workdirs" / (f"{name}-{process}" if process else name)


@contextlib.contextmanager
def staged(workdir: AnyPath, process: int = 0, live: bool = False) -> Iterator[Path]:
    """Yields `folder_on_disk`, and afterwards copies it to the bucket.

    Args:
      process: see `folder_on_disk`; only the first one, 0, writes to the bucket.
      live: the stage saves its state to the bucket while it runs, and goes on from that alone.

    Raises:
      UserError: the bucket cannot be used, or another process writes to the workdir.
    """
    folder = folder_on_disk(workdir, process)
    if isinstance(workdir, Path):
        yield folder
        return
    workdir.store.check()
    with contextlib.ExitStack() as stack:
        lease = None
        if process == 0:
            on_lost = functools.partial(_end, workdir) if live else _stop
            lease = stack.enter_context(
                Lease(workdir.store, (workdir / LEASE).key, str(workdir), on_lost=on_lost)
            )
        _begin(workdir, folder, live)
        # The settings last: the report is of the run that they belong to.
        for name in (REPORT, CONFIG):
            if (data := _read(workdir / name)) is not None:
                write_atomic(folder / name, data)
        if lease is not None and not live:
            _targets[folder] = workdir, lease
            stack.callback(_targets.pop, folder)
        yield folder
        if lease is not None:
            lease.check()
            publish_folder(folder, workdir, lease)
        shutil.rmtree(folder)


def publish_episodes(folder: Path) -> None:
    """Copies what a stopped run has played to the stage's bucket, if it has one; a failure is a line."""
    if folder in _targets and (folder / EPISODES).exists():
        try:
            publish_dataset(keep_version(folder), *_targets[folder])
        except (OSError, UserError) as error:
            print(f"not published: {' '.join(str(error).split())}", file=sys.stderr, flush=True)


def publish_folder(folder: Path, target: StorePath, lease: Lease) -> None:
    """Copies what a finished stage wrote: data sets as such, then all other files, then the report."""
    datasets = [path.parent for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    for dataset in datasets:
        publish_dataset(dataset, target / dataset.name, lease)
    own = (folder / MANIFEST).exists()
    with_records = side_files(folder) if own else []
    files = [path for path in _files(folder, datasets) if path not in with_records]
    # Models count with their `config.json`.
    last = [path for path in files if path.name == CONFIG]
    for part in ([path for path in files if path.name != CONFIG], last):
        _upload(part, folder, target)
    lease.check()
    if own:
        publish_dataset(folder, target, lease)
    elif (folder / REPORT).exists():
        (target / REPORT).write_bytes((folder / REPORT).read_bytes())


def _upload(files: list[Path], folder: Path, target: StorePath) -> None:
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for upload in [pool.submit((target / str(path.relative_to(folder))).upload, path) for path in files]:
            upload.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _files(folder: Path, datasets: list[Path]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or is_temporary(path) or any(path.is_relative_to(one) for one in datasets):
            continue
        if parts[0] in _FOLDERS or path.suffix == ".array_record" or (len(parts) == 1 and parts[0] in _FILES):
            continue
        yield path


def _begin(workdir: StorePath, folder: Path, live: bool) -> None:
    """Empties the folder if what it holds is not of the unfinished run in the bucket.

    That run may have been finished by another machine, or deleted and begun again with another random name.
    """
    name = _read(workdir / _NAME)
    same = name is not None and (folder / _NAME).exists() and (folder / _NAME).read_bytes() == name
    if live or not same or (workdir / REPORT).is_file():
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    if name is None:
        name = secrets.token_hex(8).encode()
        (workdir / _NAME).write_bytes(name)
    write_atomic(folder / _NAME, name)


def _read(path: StorePath) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _stop() -> None:
    # As if the machine were reclaimed: what runs saves its state on its disk, and nothing is published.
    os.kill(os.getpid(), signal.SIGTERM)


def _end(workdir: StorePath) -> None:
    # At once: what it would save would mix with what the other process saves.
    os.write(2, f"error: {workdir}: deleted, or another process has taken over this run\n".encode())
    os._exit(StoppedError.exit_code)
