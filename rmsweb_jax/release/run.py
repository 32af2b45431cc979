"""What a training left in its folder, and which trainings its model came through before."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rmsweb_jax.errors import UserError

SFT, RL = "train_sft", "train_rl"


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A finished run of experiments.train_sft or experiments.train_rl.

    Attributes:
      stage: `SFT` or `RL`.
      config: its settings, as nested dictionaries.
      report: its `report.json`.
    """

    folder: Path
    stage: str
    config: dict[str, Any]
    report: dict[str, Any]

    @property
    def export(self) -> Path:
        """The model folder it ended with, adapters merged."""
        return self.folder / "export"

    @property
    def data(self) -> Path:
        """The data set it was trained on."""
        return Path(self.config["corpus" if self.stage == SFT else "prompts"])

    @property
    def exported_step(self) -> int:
        """The checkpoint that `export` holds."""
        return self.report["exported_step" if self.stage == SFT else "iterations"]


def read_run(folder: Path) -> TrainingRun:
    """Reads a training's folder.

    Raises:
      UserError: it is none, has not finished, is damaged, or its export is gone.
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
    if not (run.export / "config.json").exists():
        raise UserError(f"{run.export}: the exported model is gone: train again in another --workdir")
    return run


def lineage(run: TrainingRun) -> list[TrainingRun]:
    """This run and those before it, as far as each began with the export of another that is still there."""
    runs = [run]
    while True:
        model = Path(runs[-1].config["model"])
        if model.name != "export" or not (model.parent / "report.json").exists():
            return runs
        runs.append(read_run(model.parent))


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); restore it, or train again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object; restore it, or train again")
    return content
