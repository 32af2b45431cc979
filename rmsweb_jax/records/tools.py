"""What `experiments.records` does: finds data sets, verifies them, writes them as text, upgrades old ones."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from PIL import Image
from pydantic import BaseModel, ValidationError

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import FROZEN, REPORT, side_files
from rmsweb_jax.records.dataset import decode_entry, iter_records, write_dataset
from rmsweb_jax.records.episodes import EPISODES, find_episodes, has_not_ended
from rmsweb_jax.records.files import make_folder, replacing
from rmsweb_jax.records.images import ImageStore, is_image_field, record_images
from rmsweb_jax.records.journal import Journal, iter_journal, read_record
from rmsweb_jax.records.schema import KINDS, Record, Trajectory
from rmsweb_jax.records.shards import (
    AGAIN,
    MANIFEST,
    iter_shard,
    read_manifest,
    read_rows,
    shards_folder,
)
from rmsweb_jax.storage import AnyPath, StorePath


@dataclasses.dataclass
class Check:
    """Result of checking a folder.

    Attributes:
      goes_on: it is of a run that has not ended; the records are the episodes in its journal.
      records: number of readable records.
      images: number of different images that they name.
      without_screenshot: steps whose screenshot could not be taken; not a defect of the data set.
      problems: one line per problem: what is wrong, where, what to do.
    """

    goes_on: bool = False
    records: int = 0
    images: int = 0
    without_screenshot: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


def check_dataset(folder: AnyPath) -> Check:
    """Reads a whole data set folder, or that of a run that goes on: records, screenshots, journals if any."""
    check = Check()
    if isinstance(folder, Path):
        check.problems += _check_journals(folder)
        check.goes_on = has_not_ended(folder)
    images, seen = ImageStore(folder), set[str]()
    try:
        for record in _journaled(folder / EPISODES, check) if check.goes_on else _readable(folder, check):
            check.records += 1
            if isinstance(record, Trajectory):
                check.without_screenshot += sum(step.observation.screenshot is None for step in record.steps)
            for name in set(record_images(record)) - seen:
                seen.add(name)
                _check_image(images, name, check)
    except UserError as error:
        check.problems.append(str(error))
    check.images = len(seen)
    return check


def _readable(folder: AnyPath, check: Check) -> Iterator[Record]:
    manifest = read_manifest(folder)
    place = shards_folder(folder, manifest)
    for shard in manifest.shards:
        # ArrayRecord finds damage by itself; one damaged shard does not hide another.
        try:
            for number, entry in enumerate(iter_shard(place, shard)):
                yield decode_entry(place, manifest, shard, number, entry)
        except UserError as error:
            check.problems.append(str(error))


def _journaled(journal: AnyPath, check: Check) -> Iterator[Record]:
    assert isinstance(journal, Path)
    if any(problem.startswith(str(journal)) for problem in check.problems):
        return  # What it holds cannot be known.
    for _, place in find_episodes(journal)[0].values():
        try:
            yield Trajectory.model_validate_json(read_record(journal, place))
        except ValidationError as error:
            raise UserError(
                f"{journal}: the episode at byte {place} is damaged, or of another version: restore the "
                "file, or use another --workdir"
            ) from error


def _check_image(images: ImageStore, name: str, check: Check) -> None:
    try:
        png = images.get(name)
        if hashlib.sha256(png).hexdigest() != name:
            check.problems.append(f"{images.where(name)}: another image than its name says: {AGAIN}")
        Image.open(io.BytesIO(png)).load()
    except UserError as error:
        if str(error) not in check.problems:  # A damaged shard has one line.
            check.problems.append(str(error))
    # Pillow reports broken files with any of these.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split())
        check.problems.append(f"{name[:80]!r}: unreadable image ({reason}): {AGAIN}")


def _check_journals(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.jsonl")):
        for number, (_, line) in enumerate(iter_journal(path), 1):
            try:
                orjson.loads(line)
            except ValueError:
                yield f"{path}: line {number} is damaged: restore the file, or use another --workdir"
                break


def dataset_folders(root: AnyPath) -> Iterator[AnyPath]:
    """Yields the folders with a data set, or with the episodes of a run: this one and those below it."""
    if isinstance(root, StorePath):
        paths = (StorePath(root.scheme, root.bucket, entry.key) for entry in root.entries())
        found = (path.parent for path in paths if path.name == MANIFEST)
        yield from (folder for folder in found if folder.parent.name != FROZEN)
        return
    for path, below, files in os.walk(root):
        skipped = ("images", FROZEN)  # Screenshots may be very many.
        below[:] = sorted(name for name in below if name not in skipped and not name.startswith("."))
        if MANIFEST in files or EPISODES in files:
            yield Path(path)


def export_jsonl(folder: AnyPath, output: Path) -> int:
    """Writes one JSON record per line; `output` is replaced as a whole or not at all.

    Returns:
      The number of records.

    Raises:
      UserError: as `read_dataset`.
    """
    manifest = read_manifest(folder)
    with replacing(output) as temporary, open(temporary, "xb") as file:
        for record in iter_records(folder, manifest):
            file.write(record.model_dump_json().encode() + b"\n")
    return manifest.records


def readable(value: Any, show: Callable[[str], str]) -> Any:
    """Converts a record (or a part of one) to plain JSON values.

    Args:
      show: converts the names of images.
    """
    if isinstance(value, tuple):
        return [readable(item, show) for item in value]
    if not isinstance(value, BaseModel):
        return value
    fields = {}
    for name, item in value:
        if item is not None and is_image_field(type(value), name):
            fields["path" if name == "sha256" else name] = show(item)
        else:
            fields[name] = readable(item, show)
    return fields


_CALLS = "calls.jsonl"
# A row of the index of packed images in version 4: SHA-256, number of the pack, place and length in it.
_PACK_ROW = struct.Struct(">32sIQI")


def upgrade(old: Path, new: Path) -> int:
    """Writes a data set of version 4, as it was on disk or in a bucket, to a new folder in today's layout.

    Its side files, calls and report are copied, and a journal is written as JSON lines.

    Returns:
      The number of records.

    Raises:
      UserError: `new` is not empty; or `old` is no finished data set of version 4, or damaged.
    """
    try:
        text = (old / MANIFEST).read_bytes()
        manifest = orjson.loads(text)
        if manifest["schema_version"] != 4 or not manifest["finished"]:
            raise ValueError("not a finished data set of version 4")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{old}: no finished data set of version 4 ({error}): give its folder") from error
    if new.exists() and any(new.iterdir()):
        raise UserError(f"{new}: not empty: give a new folder")
    make_folder(new)
    # Buckets had the side files of each version in a folder.
    version = old / "versions" / hashlib.sha256(text).hexdigest()[:12]
    sides = [path for folder in (version, old) if folder.is_dir() for path in side_files(folder)]
    try:
        for path in (*sides, old / _CALLS):
            if path.exists() and not path.name.startswith("sizes-"):
                shutil.copyfile(path, new / path.name)
        written = _upgrade_records(old, new, manifest)
        if (old / EPISODES).exists():
            with Journal(new / EPISODES) as journal:
                for _, line in iter_journal(old / EPISODES):
                    journal.append(line.split(b" ", 2)[2])
        if (old / REPORT).exists():
            shutil.copyfile(old / REPORT, new / REPORT)
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        raise UserError(f"{old}: cannot be read ({' '.join(str(error).split())}): {AGAIN}") from error
    return written


def _upgrade_records(old: Path, new: Path, manifest: dict[str, Any]) -> int:
    kind, shards, packs = KINDS[manifest["kind"]], manifest["shards"], manifest.get("images")
    images, spans = ImageStore(new), dict[str, tuple[str, int, int]]()
    if packs:
        for name, pack, start, length in _PACK_ROW.iter_unpack((old / packs["index"]["file"]).read_bytes()):
            spans[name.hex()] = packs["packs"][pack]["file"], start, length

    def with_images(record: Record) -> Record:
        for name in record_images(record):
            if name in spans:
                file, start, length = spans[name]
                with open(old / file, "rb") as pack:
                    pack.seek(start)
                    png = pack.read(length)
            elif (path := old / "images" / name[:2] / f"{name}.png").exists():
                png = path.read_bytes()
            else:  # It was missing before, too.
                continue
            if images.put(png) != name:
                raise UserError(f"{old}: damaged screenshot {name}: {AGAIN}")
        return record

    def records() -> Iterator[Record]:
        for shard in shards:
            for entry in read_rows(old / shard["file"], range(shard["records"])):
                yield with_images(kind.model_validate_json(entry))

    return write_dataset(new, records(), manifest["kind"], manifest["provenance"]).records
