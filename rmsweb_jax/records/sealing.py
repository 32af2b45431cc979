"""The side files of a data set: what its stage writes next to the records.

A stage ends with `finish_stage`, which enters their checksums in the manifest. Publishing keeps them, so
that a data set is protected in the same way on a disk and in a bucket. Files of the run are no side files:
journals (whose lines have checksums of their own), databases, logs and progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import AGAIN, MANIFEST, Manifest, read_manifest, save_manifest
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.packs import StoredFile, describe_file
from rmsweb_jax.storage import AnyPath

REPORT = "report.json"
_SUFFIXES = (".json", ".jsonl", ".md")
# They change while a stage runs.
_NOT_SIDE_FILES = (MANIFEST, "calls.jsonl", "progress.json", "elapsed.json", EPISODES)


def side_files(folder: Path) -> list[Path]:
    """Lists the side files that are there."""
    found = (path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    return sorted(path for path in found if path.name not in _NOT_SIDE_FILES and path.name[0] != ".")


def finish_stage(workdir: Path, report: bytes) -> None:
    """Writes `report.json`, which says that the stage has finished, and the checksums of all side files.

    Args:
      workdir: a data set folder, or one that has some in it.
      report: content of the file.
    """
    for path in [workdir / MANIFEST, *sorted(workdir.glob(f"*/{MANIFEST}"))]:
        if path.exists():
            own = path.parent == workdir
            seal_dataset(path.parent, [describe_file(REPORT, report)] if own else [])
    # Last: a stage that was stopped before runs again, and seals again.
    write_atomic(workdir / REPORT, report)


def seal_dataset(folder: Path, expected: list[StoredFile] | None = None) -> None:
    """Enters side files that are new in the manifest; those that it names keep their checksums.

    Args:
      expected: files that will be written.
    """
    manifest = read_manifest(folder)
    files = {file.file: file for file in [*manifest.files, *(expected or [])]}
    for path in side_files(folder):
        if path.name not in files:
            files[path.name] = describe_file(path.name, path.read_bytes())
    sealed = manifest.model_copy(update={"files": tuple(files[name] for name in sorted(files))})
    if sealed.files != manifest.files:
        save_manifest(folder, sealed)


def read_side_file(folder: AnyPath, file: StoredFile) -> bytes:
    """Reads a side file that the manifest names.

    Raises:
      UserError: it is missing, or its bytes have changed.
    """
    path = folder / file.file
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: missing: {AGAIN}") from error
    if describe_file(file.file, data) != file:
        raise UserError(f"{path}: its bytes have changed since it was written: {AGAIN}")
    return data


def damaged_side_files(folder: AnyPath, manifest: Manifest) -> Iterator[str]:
    """Yields a message for each side file that is missing or whose bytes have changed."""
    for file in manifest.files:
        try:
            read_side_file(folder, file)
        except UserError as error:
            yield str(error)
