"""Reads a run, on disk or in a bucket, stage by stage; a stage that has not finished counts as absent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from collection.evaluation.results import Results, load_results
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import AuditPair, Trajectory
from rmsweb_jax.storage import AnyPath

LABELS = {"base": "Base", "sft": "SFT", "rl": "SFT + RL"}
# Folder -> display name, in the recipe's order.
STAGES = {
    "collect": "Reflective collection",
    "sft_corpus": "Quality filter",
    "sft": "Supervised fine-tuning",
    "collect_policy": "The SFT policy's own runs",
    "mine": "Failure-mode mining",
    "rl": "Salvage-DS",
    **{f"evaluate/{label}": f"Evaluation of {name}" for label, name in LABELS.items()},
}


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Reads the stages below `root`.

    Raises:
      UserError: from every reader, if an existing file is damaged.
    """

    root: AnyPath

    def report(self, stage: str) -> dict[str, Any] | None:
        """Reads the stage's `report.json`; None if the stage has not finished."""
        path = self.root / stage / "report.json"
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except json.JSONDecodeError as error:
            raise UserError(f"{path}: not JSON ({error}); delete it and run the stage again") from error

    def metrics(self, stage: str) -> list[dict[str, Any]]:
        """Reads the rows of `metrics.jsonl`; a last line truncated by a crash is left out."""
        return list(self._lines(self.root / stage / "metrics.jsonl"))

    def results(self, label: str) -> Results | None:
        """Reads the outcomes of an evaluation; None if it has not finished."""
        stage = f"evaluate/{label}"
        return load_results(self.root / stage) if self.report(stage) else None

    def trajectories(self, stage: str) -> Iterator[Trajectory]:
        """Yields the trajectories of a stage; nothing if it has not finished."""
        if self.report(stage) is None:
            return iter(())
        return read_dataset(self.root / stage, Trajectory)

    def audits(self) -> Iterator[AuditPair]:
        """Yields mining's audit records; nothing if it has not finished."""
        return read_dataset(self.root / "mine/audit", AuditPair) if self.report("mine") else iter(())

    def _lines(self, path: AnyPath) -> Iterator[dict[str, Any]]:
        if not path.exists():
            return
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{path}: line {number} is not JSON ({error}); delete that line") from error

    def images(self, folder: str) -> ImageStore:
        return ImageStore(self.root / folder)
