"""Writes a data set of episodes as one file each, with the images that they show in a folder next to them."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collection.config import ExportTracesSettings
from collection.formats.atif import atif_document
from collection.formats.hub import hub_session
from rmsweb_jax.records.files import is_temporary, make_folder, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SLUG_CHARS = 80


# How an episode becomes a file, and the end of its name.
WRITERS = {"atif": (atif_document, ".json"), "hub": (hub_session, ".jsonl")}


@dataclasses.dataclass
class TraceCounts:
    """What was written; `kept` files had the right content already."""

    trajectories: int = 0
    steps: int = 0
    bytes: int = 0
    kept: int = 0
    removed: int = 0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def write_traces(
    runs: Iterable[Trajectory],
    images: ImageStore,
    folder: Path,
    settings: ExportTracesSettings,
    version: str,
    counts: TraceCounts,
) -> None:
    """Writes a file for each run into `folder`, with one run in memory at a time, and removes other files.

    Each file is written whole, after its images. A file that is there with the same content is kept, so a
    stopped call can be repeated.

    Args:
      images: the data set's screenshots; they are copied to `folder/images`.
      version: of this project, for the files.

    Raises:
      UserError: a screenshot is missing.
    """
    (render, suffix), store = WRITERS[settings.format], ImageStore(folder)
    make_folder(folder)
    written = set()

    def image_path(sha256: str) -> str:
        if not store.path(sha256).exists():
            store.put(images.get(sha256))
        return store.path(sha256).relative_to(folder).as_posix()

    for run in runs:
        path = folder / f"{file_stem(run.trajectory_id)}{suffix}"
        data = render(run, image_path, version, settings.page_text)
        if path.exists() and path.read_bytes() == data:
            counts.kept += 1
        else:
            write_atomic(path, data)
        written.add(path.name)
        counts.trajectories += 1
        counts.steps += len(run.steps)
        counts.bytes += len(data)
    for path in sorted(folder.iterdir()):
        stale = path.suffix == suffix and path.name not in written
        if path.is_file() and (stale or is_temporary(path)):
            path.unlink()
            counts.removed += 1


def file_stem(trajectory_id: str) -> str:
    """Returns a name for a file: the id in safe letters, and a hash by which different ids differ."""
    slug = _UNSAFE.sub("-", trajectory_id).strip("-.")[:_SLUG_CHARS]
    return f"{slug}-{hashlib.sha256(trajectory_id.encode()).hexdigest()[:8]}"
