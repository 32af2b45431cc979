"""Finds and removes leftovers of stopped writers.

Continuing after a crash does not need this, because readers ignore leftovers. It frees their space, and saves
the whole records of a damaged journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import BaseModel

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import (
    AGAIN,
    MANIFEST,
    Manifest,
    decode_entry,
    iter_records,
    load_manifest,
    read_manifest,
    read_shard,
    strays,
)
from rmsweb_jax.records.files import is_temporary, replacing, write_atomic
from rmsweb_jax.records.images import ImageStore, is_image_field, record_images
from rmsweb_jax.records.journal import is_journal, scan_journal
from rmsweb_jax.records.packs import PackReader
from rmsweb_jax.records.publish import STATE
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.sealing import damaged_side_files
from rmsweb_jax.records.versions import pinned
from rmsweb_jax.storage import AnyPath, StorePath
from rmsweb_jax.storage.cache import empty_cache
from rmsweb_jax.storage.paths import VERSIONS

JOURNALS = "journal"  # The folder of a collecting stage's journals.


@dataclasses.dataclass
class Check:
    """Result of checking a folder.

    Attributes:
      records: number of readable records.
      images: number of different images that they name.
      without_screenshot: steps whose screenshot could not be taken; not a defect of the data set.
      problems: one line per problem: what is wrong, where, what to do.
    """

    records: int = 0
    images: int = 0
    without_screenshot: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


def check_dataset(folder: AnyPath) -> Check:
    """Reads a whole data set folder: shards, records, screenshots, side files, and journals if any."""
    # Objects that this machine has in its cache may have changed in the bucket since.
    with empty_cache() if isinstance(folder, StorePath) else contextlib.nullcontext():
        return _check_dataset(folder)


def _check_dataset(folder: AnyPath) -> Check:
    check = Check(problems=check_journals(folder) if isinstance(folder, Path) else [])
    try:
        manifest = read_manifest(folder)
        if (frozen := pinned(folder)) != folder:
            check.problems += _check_state(folder, manifest)
            folder, manifest = frozen, read_manifest(frozen)
    except UserError as error:
        check.problems.append(str(error))
        return check
    if not manifest.finished:
        check.problems.append(
            f"{folder / MANIFEST}: unfinished: run the command that makes it again to finish it"
        )
    named = _check_records(folder, manifest, check)
    check.problems += _check_files(folder, manifest)
    images = ImageStore(folder)
    check.images = len(named)
    for sha256, where in named.items():
        try:
            _check_image(images, sha256)
        except UserError as error:
            # A damaged pack has its line already.
            if str(error) not in check.problems:
                check.problems.append(f"{error} (it is named by {where})")
    return check


def _check_state(folder: AnyPath, manifest: Manifest) -> Iterator[str]:
    """Yields a problem for each side file that is not also next to the newest manifest, as it should be."""
    state = tuple(file for file in manifest.files if file.file in STATE)
    return damaged_side_files(folder, manifest.model_copy(update={"files": state}))


def _check_files(folder: AnyPath, manifest: Manifest) -> Iterator[str]:
    """Yields a problem for each side file and pack that is not as it was written."""
    yield from damaged_side_files(folder, manifest)
    if manifest.images is not None:
        try:
            yield from PackReader(folder, manifest.images).damaged()
        except UserError as error:
            yield str(error)


def check_journals(folder: Path) -> list[str]:
    """Reports each journal of the folder with damage that a stopped writer cannot cause."""
    problems = []
    for path in [*journals(folder), *journals(folder / JOURNALS)]:
        damaged = [line.number for line in scan_journal(path) if line.record is None and not line.torn]
        if damaged:
            problems.append(
                f"{path}: {len(damaged)} damaged lines, the first is line {damaged[0]}: restore the file, or "
                f"continue without them: python -m experiments.records repair --data={folder} --apply"
            )
    return problems


def journals(folder: Path) -> list[Path]:
    """Lists the journals among a folder's JSONL files."""
    paths = sorted(folder.glob("*.jsonl"))
    return [path for path in paths if folder.name == JOURNALS or is_journal(path)]


def _check_records(folder: AnyPath, manifest: Manifest, check: Check) -> dict[str, str]:
    """Checks all records and adds counts and problems to `check`.

    Returns:
      For each image its first record.
    """
    named: dict[str, str] = {}
    for shard in manifest.shards:
        try:
            entries = read_shard(folder, shard)
        except UserError as error:
            check.problems.append(str(error))
            continue
        for number, entry in enumerate(entries):
            try:
                record = decode_entry(folder, manifest, shard, number, entry)
            except UserError as error:
                check.problems.append(str(error))
                continue
            check.records += 1
            for sha256 in record_images(record):
                named.setdefault(sha256, f"record {number} of {shard.file}")
            if isinstance(record, Trajectory):
                check.without_screenshot += sum(step.observation.screenshot is None for step in record.steps)
    if sum(shard.records for shard in manifest.shards) != manifest.records:
        check.problems.append(f"{folder / MANIFEST}: its counts do not add up: {AGAIN}")
    return named


def _check_image(images: ImageStore, sha256: str) -> None:
    try:
        png = images.get(sha256)
    except ValueError as error:
        raise UserError(f"{sha256[:80]!r}: not the name of a screenshot: {AGAIN}") from error
    try:
        Image.open(io.BytesIO(png)).load()
    # Pillow reports broken files with any of these.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{images.where(sha256)}: unreadable image ({reason}): {AGAIN}") from error


_IMAGES = "images"
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


@dataclasses.dataclass(frozen=True)
class Repair:
    """One problem that can be repaired.

    Attributes:
      what: one line: where, what is wrong, and the repair.
      apply: makes the repair; None if only the command that wrote the file can.
    """

    what: str
    apply: Callable[[], None] | None


def find_repairs(root: Path) -> list[Repair]:
    """Finds problems in a folder and those below it; changes nothing.

    No writer may be running there: its unfinished files cannot be distinguished from leftovers.
    """
    return [repair for folder in folders(root) for repair in _find(folder)]


def dataset_folders(root: AnyPath) -> Iterator[AnyPath]:
    """Yields the folders with a manifest: this one and those below it."""
    if isinstance(root, StorePath):
        paths = (StorePath(root.scheme, root.bucket, entry.key) for entry in root.entries())
        yield from (
            path.parent for path in paths if path.name == MANIFEST and path.parent.parent.name != VERSIONS
        )
    else:
        yield from (folder for folder in folders(root) if (folder / MANIFEST).exists())


def folders(root: Path) -> Iterator[Path]:
    """Yields a folder and those below it, except for screenshots, which may be very many, and versions."""
    for path, below, files in os.walk(root):
        skipped = (_IMAGES, VERSIONS) if MANIFEST in files else (_IMAGES,)
        below[:] = sorted(name for name in below if name not in skipped and not name.startswith("."))
        yield Path(path)


def _find(folder: Path) -> Iterator[Repair]:
    temporary = [*folder.glob(".*.tmp"), *(folder / _IMAGES).glob("*/.*.tmp")]
    for path in sorted(filter(is_temporary, temporary)):
        yield Repair(f"{path}: temporary file of a stopped writer: remove it", path.unlink)
    for path in journals(folder):
        yield from _find_in_journal(path)
    if not (folder / MANIFEST).exists():
        return
    try:
        manifest = read_manifest(folder)
    except UserError as error:
        # Without a manifest, good shards cannot be distinguished from bad ones.
        yield Repair(str(error), None)
        return
    for path in strays(folder, manifest):
        if not is_temporary(path):
            yield Repair(f"{path}: shard that the manifest does not name: remove it", path.unlink)
    if not manifest.finished:
        yield Repair(
            f"{folder / MANIFEST}: unfinished: run the command that makes it again to finish it", None
        )
        return
    yield from _find_orphans(folder, manifest)


def _find_in_journal(path: Path) -> Iterator[Repair]:
    damaged, whole_records = [], 0
    for line in scan_journal(path):
        if line.record is None:
            damaged.append(line)
        else:
            whole_records += 1
    if not damaged:
        return
    whole = f"{whole_records} whole records stay"
    if all(line.torn for line in damaged):
        yield Repair(
            f"{path}: last line of a stopped writer, never finished: cut it off; {whole}",
            lambda: _keep_whole_lines(path),
        )
    else:
        yield Repair(
            f"{path}: {len(damaged)} damaged lines, the first is line {damaged[0].number}: keep the file as "
            f"{path.name}.damaged and continue without them; {whole}",
            lambda: _quarantine(path),
        )


def _quarantine(path: Path) -> None:
    target = path.with_name(f"{path.name}.damaged")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{number}")
    # The damaged file is kept before its journal is rewritten, so that nothing is lost in between.
    with replacing(target) as temporary:
        shutil.copyfile(path, temporary)
    _keep_whole_lines(path)


def _keep_whole_lines(path: Path) -> None:
    write_atomic(path, b"".join(line.data for line in scan_journal(path) if line.record is not None))


def _find_orphans(folder: Path, manifest: Manifest) -> Iterator[Repair]:
    named = _named_images(folder, manifest)
    # Without all names, an image that a damaged shard refers to could be taken for an orphan.
    if named is None:
        return
    orphans = [path for path in sorted((folder / _IMAGES).glob("*/*.png")) if path.stem not in named]
    if orphans:
        size = sum(path.stat().st_size for path in orphans)

        def remove() -> None:
            for path in orphans:
                path.unlink()

        yield Repair(
            f"{folder / _IMAGES}: {len(orphans)} screenshots that no record names ({size} bytes): remove",
            remove,
        )


def _named_images(folder: Path, manifest: Manifest) -> set[str] | None:
    """Finds everything in the folder that looks like the name of an image; None if a shard cannot be read."""
    # By pattern, not by field: an image that any file may refer to must not be removed.
    named: set[str] = set()
    try:
        for shard in manifest.shards:
            for entry in read_shard(folder, shard):
                named |= {name.decode() for name in _SHA256.findall(entry)}
    except UserError:
        return None
    for path in [*folder.glob("*.json*"), *(folder / JOURNALS).glob("*")]:
        with open(path, "rb") as file:
            for line in file:
                named |= {name.decode() for name in _SHA256.findall(line)}
    return named


def export_jsonl(folder: AnyPath, output: Path) -> int:
    """Writes one JSON record per line; `output` is replaced as a whole or not at all.

    Returns:
      The number of records.

    Raises:
      UserError: as `read_dataset`.
    """
    manifest = load_manifest(folder)
    with replacing(output) as temporary, open(temporary, "xb") as file:
        for record in iter_records(folder, manifest):
            file.write(record.model_dump_json().encode() + b"\n")
    return manifest.records


def readable(value: Any, images: ImageStore) -> Any:
    """Converts a record (or a part of one) to plain JSON values, with image names replaced by paths."""
    if isinstance(value, tuple):
        return [readable(item, images) for item in value]
    if not isinstance(value, BaseModel):
        return value
    fields = {}
    for name, item in value:
        if item is not None and is_image_field(type(value), name):
            fields["path" if name == "sha256" else name] = images.where(item)
        else:
            fields[name] = readable(item, images)
    return fields
