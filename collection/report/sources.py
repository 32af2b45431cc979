"""Reads a run, on disk or in a bucket, stage by stage; a stage that has not finished counts as absent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from collection.evaluation.results import Results, load_results
from rmsweb_jax.errors import UserError
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

    def curves(self, stage: str) -> list[dict[str, Any]]:
        """Returns the metrics of a finished training, of RL with the evaluation after its last update.

        Each row describes the policy that sampled in that step, so the trained policy gets the next step.
        """
        report = self.report(stage)
        if report is None:
            return []
        final = report.get("final", {})
        evaluation = {key: value for key, value in final.items() if key.startswith("eval/")}
        return [*self.metrics(stage), *([{"step": final["step"] + 1, **evaluation}] if evaluation else [])]

    def results(self, label: str) -> Results | None:
        """Reads the outcomes of an evaluation; None if it has not finished."""
        stage = f"evaluate/{label}"
        return load_results(self.root / stage) if self.report(stage) else None

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
