"""Where a training's data came from, read off the manifests that each stage left."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.manifest import MANIFEST, load_manifest, read_manifest
from rmsweb_jax.records.shards import iter_records

# Provenance keys that name the data sets something was made of.
_SOURCES = ("trajectories", "pools")
# A file's place is nobody's business and means nothing elsewhere.
_PLACES = ("source", "tasks_file", "folder", "path")


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set as its manifest tells of it.

    Attributes:
      name: of its folder.
      kind: of its records (`rmsweb_jax.records.schema.KINDS`).
      manifest_sha256: tells it apart from any other.
      facts: plain values of its provenance, such as who acted in it.
      sources: what it was made of.
      contamination: the contamination check of its tasks, as `make_tasks` reported it; None where none is
        on record.
    """

    name: str
    kind: str
    records: int
    manifest_sha256: str
    facts: dict[str, Any]
    sources: tuple[DataSet, ...]
    contamination: dict[str, Any] | None

    def checks(self) -> list[dict[str, Any]]:
        """The contamination checks of this set and of all that it was made of."""
        own = [] if self.contamination is None else [self.contamination]
        return own + [check for source in self.sources for check in source.checks()]


def describe(folder: Path) -> DataSet | None:
    """The data set in `folder` with its sources; None when it is no longer there or cannot be read."""
    try:
        manifest = read_manifest(folder)
    except UserError:
        return None
    provenance = manifest.provenance
    sources = [describe(Path(name)) for key in _SOURCES for name in provenance.get(key, ())]
    return DataSet(
        name=folder.resolve().name,
        kind=manifest.kind,
        records=manifest.records,
        manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
        facts={
            key: value
            for key, value in provenance.items()
            if isinstance(value, str | int | float) and key not in _PLACES and value != ""
        },
        sources=tuple(source for source in sources if source is not None),
        contamination=_contamination(folder),
    )


def trained_tasks(folder: Path) -> set[str] | None:
    """Ids of the tasks whose records are in a data set; None when it is no longer there."""
    try:
        records = iter_records(folder, load_manifest(folder))
        return {getattr(record, "task_id", "") for record in records}
    except UserError:
        return None


def _contamination(folder: Path) -> dict[str, Any] | None:
    """What `make_tasks` wrote beside the tasks that were played in `folder`."""
    config = _read_json(folder / "config.json")
    if config.get("tasks_from"):
        return _contamination(Path(config["tasks_from"]))
    if not config.get("tasks_file"):
        return None
    report = _read_json(Path(config["tasks_file"]).parent / "report.json")
    keys = ("contamination_checked", "contaminated_by", "questions", "tasks")
    return {key: report[key] for key in keys if key in report} if "contamination_checked" in report else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
