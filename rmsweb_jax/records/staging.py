"""A run's folder in a bucket: the stage works in a folder on disk, and what it made is copied there.

Journals, locks, links and databases stay on the disk, where they work. Before the stage has finished only
its settings are in the bucket, and the episodes of a fleet that was stopped (`publish_episodes`);
`report.json` comes last. A stopped run continues on the machine that began it. Training is different: it
saves checkpoints and metrics to the bucket, so that any machine can continue.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import FROZEN, REPORT, publish_dataset, side_files
from rmsweb_jax.records.episodes import EPISODES, write_episodes
from rmsweb_jax.records.files import is_temporary, make_folder, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.shards import MANIFEST
from rmsweb_jax.storage import AnyPath, Owner, StorePath, folder_on_disk

CONFIG, _NAME = "config.json", ".run"
# They are of this machine, published as a data set, or saved to the bucket while the stage runs.
_FOLDERS = ("images", "files", "live", "checkpoints", FROZEN)
_FILES = (
    *(_NAME, ".lock", "progress.json", "elapsed.json", EPISODES, "calls.jsonl", "log.txt"),
    *(MANIFEST, REPORT),
)
_THREADS = 8
# The buckets of the stages that run in this process, by the folder in which they work.
_targets: dict[Path, Owner] = {}


@contextlib.contextmanager
def lock_workdir(workdir: AnyPath, file: Path | None = None) -> Iterator[None]:
    """Locks a workdir against a second run; the system releases the lock when this process ends in any way.

    Args:
      file: of the lock; by default it is in the workdir.

    Raises:
      UserError: another run holds the lock.
    """
    path = file or workdir / ".lock"
    assert isinstance(path, Path)
    with open(path, "a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{workdir}: in use by another run; wait for it or use another --workdir"
            raise UserError(message) from None
        yield


@contextlib.contextmanager
def staged(workdir: AnyPath, process: int = 0, live: bool = False) -> Iterator[Path]:
    """Yields `folder_on_disk`, and afterwards copies it to the bucket.

    Args:
      process: see `folder_on_disk`; only the first one, 0, writes to the bucket.
      live: the stage saves its state to the bucket while it runs, and goes on from that alone.

    Raises:
      UserError: the bucket cannot be used, or another run on this machine uses the workdir.
      TakenOverError: another process has begun to write to the workdir.
    """
    folder = folder_on_disk(workdir, process)
    if isinstance(workdir, Path):
        yield folder
        return
    workdir.store.check()
    with contextlib.ExitStack() as stack:
        owner = None
        if process == 0:
            # Before it owns the workdir: a second call here must not stop the first.
            make_folder(folder.parent)
            stack.enter_context(lock_workdir(workdir, folder.with_name(f"{folder.name}.lock")))
            owner = stack.enter_context(Owner(workdir))
        _begin(workdir, folder, live, owner.run if owner else "")
        # The settings last: the report is of the run that they belong to.
        for name in (REPORT, CONFIG):
            if (workdir / name).is_file():
                (workdir / name).download(folder / name)
        if owner and not live:
            _targets[folder] = owner
            stack.callback(_targets.pop, folder)
        yield folder
        if owner:
            publish_folder(folder, owner)
        shutil.rmtree(folder)


def publish_episodes(folder: Path) -> None:
    """Copies what a stopped run has played to the stage's bucket, if it has one; a failure is a line."""
    if folder in _targets and (folder / EPISODES).exists():
        try:
            played = folder / FROZEN / "played"
            write_episodes(folder / EPISODES, played, {}, images=ImageStore(folder))
            _targets[folder].check()
            publish_dataset(played, _targets[folder].folder)
        except (OSError, UserError) as error:
            print(f"not published: {' '.join(str(error).split())}", file=sys.stderr, flush=True)


def publish_folder(folder: Path, owner: Owner) -> None:
    """Copies what a finished stage wrote: data sets as such, then all other files, then the report."""
    owner.check()
    target = owner.folder
    datasets = [path.parent for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    for dataset in datasets:
        publish_dataset(dataset, target / dataset.name)
    own = (folder / MANIFEST).exists()
    with_records = side_files(folder) if own else []
    files = [path for path in _files(folder, datasets) if path not in with_records]
    # Models count with their `config.json`.
    last = [path for path in files if path.name == CONFIG]
    for part in ([path for path in files if path.name != CONFIG], last):
        _upload(part, folder, target)
    owner.check()
    if own:
        publish_dataset(folder, target)
    elif (folder / REPORT).exists():
        (target / REPORT).write_bytes((folder / REPORT).read_bytes())


def _upload(files: list[Path], folder: Path, target: StorePath) -> None:
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda path: (target / str(path.relative_to(folder))).upload(path), files))


def _files(folder: Path, datasets: list[Path]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or is_temporary(path) or any(path.is_relative_to(one) for one in datasets):
            continue
        if parts[0] in _FOLDERS or path.suffix == ".array_record" or (len(parts) == 1 and parts[0] in _FILES):
            continue
        yield path


def _begin(workdir: StorePath, folder: Path, live: bool, run: str) -> None:
    """Empties the folder if what it holds is not of the unfinished run in the bucket.

    That run may have been finished by another machine, or deleted and begun again with another random name.
    """
    same = bool(run) and (folder / _NAME).exists() and (folder / _NAME).read_text() == run
    if live or not same or (workdir / REPORT).is_file():
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    write_atomic(folder / _NAME, run.encode())
