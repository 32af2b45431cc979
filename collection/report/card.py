"""The model card of a release: YAML for the hub, then what was done, with what, and what it came to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from collection.report.evaluations import Evaluation, benchmark_title
from collection.report.paper_tables import details_table
from collection.report.tables import template


@dataclasses.dataclass(frozen=True)
class CardStage:
    """A training that the model came through.

    Attributes:
      title: for people.
      facts: sentences about its size.
      data: a line for each data set, indented by how far back it stands.
      settings: dotted key -> value, without places on anyone's disk.
      metrics: at its end.
    """

    title: str
    facts: Sequence[str]
    data: Sequence[str]
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Card:
    """All that a card tells.

    Attributes:
      license: identifier of the hub, such as `apache-2.0`.
      license_source: who says so.
      base_model: hub name of the base, or "" when it has none.
      base: what the base is called in the text.
      format: "merged" or "adapter".
      rank: of the adapters.
      stages: latest last.
      contamination: sentences about training tasks and benchmarks.
      teachers: kinds of teachers whose replies were learned from.
      files: names of what is in the folder.
    """

    name: str
    license: str
    license_source: str
    base_model: str
    base: str
    format: str
    rank: int
    stages: Sequence[CardStage]
    evaluations: Sequence[Evaluation]
    contamination: Sequence[str]
    teachers: Sequence[str]
    files: Sequence[str]


def render_card(card: Card) -> str:
    """The `README.md` of the release."""
    return template("model_card.md.j2").render(
        card=card,
        header=_header(card),
        table=details_table(card.evaluations) if card.evaluations else None,
    )


def _header(card: Card) -> str:
    """The front matter's lines; every value is JSON, which YAML reads as it is."""
    values: dict[str, Any] = {
        "license": card.license,
        "library_name": "transformers" if card.format == "merged" else "peft",
        "pipeline_tag": "image-text-to-text",
        "tags": ["qwen3_vl", "web-agent", "rmsweb", *(["lora"] if card.format == "adapter" else [])],
        "metrics": ["pass@1"],
    }
    if card.base_model:
        values["base_model"] = card.base_model
        values["base_model_relation"] = "finetune" if card.format == "merged" else "adapter"
    if card.evaluations:
        values["model-index"] = [{"name": card.name, "results": _results(card.evaluations)}]
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())


def _results(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """As the hub's model index wants them; rates in percent."""
    return [
        {
            "task": {"type": "image-text-to-text", "name": "Web agent"},
            "dataset": {"type": one.benchmark, "name": benchmark_title(one.benchmark)},
            "metrics": [
                {
                    "type": f"pass@{k}",
                    "value": round(100 * one.score[f"pass_at_{k}"]["mean"], 2),
                    "name": f"pass@{k} of {one.label} in %, {len(one.results.tasks)} tasks",
                }
                for k in sorted({1, one.results.runs})
            ],
        }
        for one in evaluations
    ]
