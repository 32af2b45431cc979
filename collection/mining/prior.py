"""Frequencies of the failure modes on a development split (RMSWeb, "Validation-derived failure prior").

They are reported only: mining does not read them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from collection.mining.label import SOURCES, JudgedLabel, mean_confidence, summarize_labels
from collection.mining.runs import RunPair, by_task, run_pairs
from collection.mining.taxonomy import PAPER_SHARES, FailureLabel
from collection.tasks.contamination import BenchmarkIndex, find_overlap
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task, Trajectory


def read_split(runs: Iterable[Trajectory]) -> tuple[list[Task], list[RunPair]]:
    """Reads the tasks of a split and all pairs of their runs.

    Raises:
      UserError: there is no pair.
    """
    runs_by_task = by_task(runs)
    tasks = [
        Task(
            task_id=task.task_id,
            website=task.website,
            objective=task.objective,
            constraints=task.constraints,
            site=task.site,
        )
        for task in (some[0].record.task for some in runs_by_task.values())
    ]
    pairs = [pair for some in runs_by_task.values() for pair in run_pairs(some)]
    if not pairs:
        raise UserError(
            f"config.pools: none of the {len(tasks)} tasks has a success and another run; "
            "add runs that fail where others succeed"
        )
    return tasks, pairs


def refuse_benchmark_tasks(tasks: Iterable[Task], index: BenchmarkIndex) -> None:
    """Refuses benchmark tasks: a prior derived from them would leak them into training.

    Raises:
      UserError: a task repeats a question; the message names both.
    """
    for task in tasks:
        overlap = find_overlap(index, task)
        if overlap is not None:
            question = overlap.question
            raise UserError(
                f"config.pools: task {task.task_id} repeats {question.benchmark} {question.task_id} "
                f"({overlap.test} {overlap.value:.2f}, from {overlap.threshold:.2f}: "
                f"{question.text[:80]!r}); "
                "a development split must not contain benchmark tasks: remove its runs from the pools"
            )


def summarize_prior(pairs: Sequence[RunPair], labels: Sequence[FailureLabel]) -> dict[str, Any]:
    """Returns the distribution for the report; shares are percent of all pairs, as in the paper."""
    kinds = Counter(pair.kind for pair in pairs)
    categories = {name: [label for label in labels if label.category == name] for name in PAPER_SHARES}
    return {
        "pairs": len(pairs),
        "pair_kinds": dict(sorted(kinds.items())),
        "categories": {
            name: {
                "pairs": len(some),
                "share": round(100 * len(some) / max(len(labels), 1), 2),
                "paper_share": PAPER_SHARES[name],
                "mean_confidence": mean_confidence(some),
                "sources": {source: sum(label.source == source for label in some) for source in SOURCES},
            }
            for name, some in categories.items()
        },
        **summarize_labels(labels),
    }


def label_lines(pairs: Sequence[RunPair], labels: Sequence[FailureLabel]) -> Iterator[str]:
    """Yields one JSON object per pair: its runs, its label, and all answers of the model."""
    for pair, label in zip(pairs, labels, strict=True):
        answers = label.answers if isinstance(label, JudgedLabel) else ()
        yield json.dumps(
            {
                "task_id": pair.success.record.task.task_id,
                "success_id": pair.success.record.trajectory_id,
                "localization_id": pair.localization.record.trajectory_id,
                "kind": pair.kind,
                "category": label.category,
                "confidence": label.confidence,
                "source": label.source,
                "cues": label.cues,
                "answers": [
                    {
                        "pass": answer.asked_for,
                        "text": answer.text,
                        "verdict": answer.verdict.model_dump() if answer.verdict else None,
                        "fault": answer.fault,
                        "usage": answer.usage.model_dump(),
                    }
                    for answer in answers
                ],
            },
            ensure_ascii=False,
        )


def prior_table(report: dict[str, Any]) -> str:
    """Formats the distribution as a text table, most frequent category first."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    head = f"{'category':<24}{'pairs':>7}{'share %':>9}{'paper %':>9}{'confidence':>12}"
    lines = [head + "".join(f"{source:>8}" for source in SOURCES)]
    for name, row in sorted(report["categories"].items(), key=lambda item: -item[1]["pairs"]):
        lines.append(
            f"{name:<24}{row['pairs']:>7}{row['share']:>9.2f}{row['paper_share']:>9.2f}"
            f"{number(row['mean_confidence']):>12}"
            + "".join(f"{row['sources'][source]:>8}" for source in SOURCES)
        )
    labels = [report["sources"][source]["labels"] for source in SOURCES]
    lines.append(
        f"{'all':<24}{report['pairs']:>7}{'':>18}{number(report['mean_confidence']):>12}"
        + "".join(f"{count:>8}" for count in labels)
    )
    return "\n".join(lines)
