"""Provenance of a training run's data, read from the manifests of each stage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import address
from rmsweb_jax.records.dataset import iter_records
from rmsweb_jax.records.shards import MANIFEST, home, read_manifest
from rmsweb_jax.storage import AnyPath, StorePath, fetch_folder, parse_path

# Provenance keys that name source data sets.
_SOURCES = ("trajectories", "pools")
# Provenance keys with local paths, which are private and meaningless on other machines.
_PLACES = ("source", "tasks_file", "folder", "path")


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set, described by its manifest.

    Attributes:
      name: name of its folder.
      kind: kind of its records (a key of `rmsweb_jax.records.schema.KINDS`).
      manifest_sha256: identifies the data set.
      facts: plain values of its provenance, such as the actor's name.
      sources: data sets that it was made from.
      contamination: report of the contamination check of its tasks, by `make_tasks`; None if there is none.
    """

    name: str
    kind: str
    records: int
    manifest_sha256: str
    facts: dict[str, Any]
    sources: tuple[DataSet, ...]
    contamination: dict[str, Any] | None

    def checks(self) -> list[dict[str, Any]]:
        """Returns the contamination checks of this set and of all its sources."""
        own = [] if self.contamination is None else [self.contamination]
        return own + [check for source in self.sources for check in source.checks()]


def describe(folder: AnyPath) -> DataSet | None:
    """Describes the data set in `folder` with its sources; None if it is missing or cannot be read."""
    try:
        manifest = read_manifest(folder)
    except UserError:
        return None
    provenance = manifest.provenance
    # Recursively: a corpus names its trajectories, mined prompts name their pools.
    sources = [
        describe(parse_path(name, "provenance")) for key in _SOURCES for name in provenance.get(key, ())
    ]
    return DataSet(
        name=_name(folder),
        kind=manifest.kind,
        records=manifest.records,
        manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
        facts={
            key: value
            for key, value in provenance.items()
            if isinstance(value, str | int | float) and key not in _PLACES and value != ""
        },
        sources=tuple(source for source in sources if source is not None),
        contamination=_contamination(home(folder)),
    )


def _name(folder: AnyPath) -> str:
    """The name of a data set's folder, also of one that a run has frozen."""
    place = parse_path(address(folder), "provenance")
    return place.resolve().name if isinstance(place, Path) else place.name


def trained_tasks(folder: AnyPath) -> set[str] | None:
    """Collects the ids of a data set's tasks; None if it is missing or cannot be read."""
    try:
        records = iter_records(folder, read_manifest(folder))
        return {getattr(record, "task_id", "") for record in records}
    except UserError:
        return None


def _contamination(folder: AnyPath) -> dict[str, Any] | None:
    """Reads the report that `make_tasks` wrote next to the tasks of the runs in `folder`."""
    config = _read_optional_json(folder / "config.json")
    if config.get("tasks_from"):
        return _contamination(parse_path(config["tasks_from"], "config.tasks_from"))
    if not config.get("tasks_file"):
        return None
    report = _read_optional_json(parse_path(config["tasks_file"], "config.tasks_file").parent / "report.json")
    keys = ("contamination_checked", "contaminated_by", "questions", "tasks")
    return {key: report[key] for key in keys if key in report} if "contamination_checked" in report else None


def _read_optional_json(path: AnyPath) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


SFT, RL = "train_sft", "train_rl"


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A finished run of experiments.train_sft or experiments.train_rl.

    Attributes:
      stage: `SFT` or `RL`.
      config: its settings, as nested dictionaries.
      report: its `report.json`.
    """

    folder: AnyPath
    stage: str
    config: dict[str, Any]
    report: dict[str, Any]

    @property
    def export(self) -> Path:
        """The exported model folder, adapters merged; of a bucket, its copy on disk."""
        return _on_disk(self.folder / "export")

    @property
    def adapters(self) -> Path:
        """The trained adapters, a PEFT folder; of a bucket, its copy on disk."""
        return _on_disk(self.folder / "adapters")

    @property
    def data(self) -> list[AnyPath]:
        """The data sets of its training, as the run has frozen them."""
        name = "corpus" if self.stage == SFT else "prompts"
        folders = [parse_path(self.report.get("data", self.config[name]), f"config.{name}")]
        if replay := self.report.get("replay"):
            folders.append(parse_path(replay["data"], "config.replay"))
        return folders


def _on_disk(folder: AnyPath) -> Path:
    return fetch_folder(folder) if isinstance(folder, StorePath) else folder


def read_run(folder: AnyPath) -> TrainingRun:
    """Reads the workdir of a training run.

    Raises:
      UserError: the folder is not such a workdir, the run has not finished, or a file is damaged or missing.
    """
    config = _read_json(folder / "config.json")
    report = _read_json(folder / "report.json")
    if config is None:
        raise UserError(
            f"{folder}: no training was begun here: give --config.run=DIR, a workdir of train_sft"
        )
    if report is None:
        raise UserError(
            f"{folder}: this training has not finished (no report.json): run its command again, then export"
        )
    run = TrainingRun(folder, report.get("stage", ""), config, report)
    if run.stage not in (SFT, RL):
        raise UserError(f"{folder}: made by {run.stage or 'something else'}, not by train_sft or train_rl")
    if not (folder / "export" / "config.json").exists():
        raise UserError(f"{folder / 'export'}: the exported model is gone: train again in another --workdir")
    return run


def lineage(run: TrainingRun) -> list[TrainingRun]:
    """Returns this run and its predecessors, each of which exported the model that the next one trained."""
    # Ends at a model that is not the export of a run, or whose run is gone.
    runs = [run]
    while True:
        model = parse_path(runs[-1].config["model"], "config.model")
        if model.name != "export" or not (model.parent / "report.json").exists():
            return runs
        runs.append(read_run(model.parent))


def _read_json(path: AnyPath) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); restore it, or train again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object; restore it, or train again")
    return content
