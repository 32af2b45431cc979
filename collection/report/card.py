"""Model card of an export: metadata for the hub, training stages, data, settings and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from collection.report.evaluations import Evaluation, benchmark_title
from collection.report.paper_tables import details_table
from collection.report.tables import table_markdown, template


@dataclasses.dataclass(frozen=True)
class CardStage:
    """One training stage of the model's history.

    Attributes:
      title: display name.
      facts: sentences about the stage's size.
      data: one line per data set, indented by its depth in the lineage.
      settings: dotted key -> value, without local paths.
      metrics: final values.
    """

    title: str
    facts: Sequence[str]
    data: Sequence[str]
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Card:
    """Contents of a model card.

    Attributes:
      license: hub identifier, such as `apache-2.0`.
      license_source: origin of that statement.
      base_model: hub name of the base model, or "".
      base: name of the base model in the text.
      format: "merged" or "adapter".
      rank: LoRA rank of the adapters.
      stages: in order of training.
      contamination: sentences about overlap of training tasks and benchmarks.
      teachers: kinds of teacher models whose replies are in the training data.
      files: names of the files in the folder.
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
    """Renders the `README.md` of an export."""
    table = details_table(card.evaluations) if card.evaluations else None
    return template("model_card.md.j2").render(
        card=card,
        header=_header(card),
        table=table,
        rows=table and table_markdown(table),
    )


def _header(card: Card) -> str:
    """Returns the YAML front matter for the hub."""
    merged = card.format == "merged"
    relation: dict[str, Any] = {}
    if card.base_model:
        relation["base_model_relation"] = "finetune" if merged else "adapter"
    return (
        ModelCardData(
            license=card.license,
            library_name="transformers" if merged else "peft",
            pipeline_tag="image-text-to-text",
            tags=["web-agent", "rmsweb", *([] if merged else ["lora"])],
            metrics=["pass@1"],
            base_model=card.base_model or None,
            model_name=card.name,
            eval_results=[result for one in card.evaluations for result in _results(one)] or None,
            **relation,
        ).to_yaml()
        + "\n"
    )


def _results(evaluation: Evaluation) -> list[EvalResult]:
    """Returns pass@1 and pass@n in percent, for the hub's model index; none if no run has a result."""
    tasks, missing = len(evaluation.results.tasks), evaluation.results.missing
    size = f"{tasks} tasks" + (f", {missing} runs without a result left out" if missing else "")
    return [
        EvalResult(
            task_type="image-text-to-text",
            task_name="Web agent",
            dataset_type=evaluation.benchmark,
            dataset_name=benchmark_title(evaluation.benchmark),
            metric_type=f"pass@{k}",
            metric_value=round(100 * rate["mean"], 2),
            metric_name=f"pass@{k} of {evaluation.label} in %, {size}",
        )
        for k in sorted({1, evaluation.results.runs})
        if (rate := evaluation.score[f"pass_at_{k}"])
    ]
