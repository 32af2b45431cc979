"""Failure labels by a model: a first answer, a review of uncertain ones, the rule label where both fail.

See RMSWeb, section 3.3 and appendix. The confidence below which the rule label is taken is this project's.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from collection.llm.model import Model, ModelRequest, call_seed
from collection.mining.failure_modes import FailureLabel, rule_label
from collection.mining.judge_messages import (
    FAULTS,
    LabelAnswer,
    LabelVerdict,
    Pass,
    label_messages,
    read_answer,
    verdict_schema,
)
from collection.mining.runs import ParsedRun, RunPair
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage

SOURCES = ("judge", "review", "rule")


@dataclasses.dataclass(frozen=True)
class JudgingConfig:
    """Confidences at which a label is reviewed or replaced.

    Attributes:
      review_below: a first answer of less confidence is reviewed (0.70 in RMSWeb).
      rule_below: after a review of less confidence the rule label is taken.
      final_steps: the number of last steps of each run that the model reads.
    """

    review_below: float = 0.70
    rule_below: float = 0.30
    final_steps: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.rule_below <= self.review_below <= 1:
            raise UserError(
                f"rule_below={self.rule_below}, review_below={self.review_below}: "
                "use 0 <= rule_below <= review_below <= 1"
            )
        if self.final_steps < 1:
            raise UserError(f"final_steps={self.final_steps}: use at least 1")


@dataclasses.dataclass(frozen=True)
class JudgedLabel(FailureLabel):
    """A label with the model's answers.

    Attributes:
      answers: the first answer and, if there was one, the review, whether they were used or not.
    """

    answers: tuple[LabelAnswer, ...] = ()

    @property
    def usage(self) -> CallUsage:
        """The usage of this label's calls; cached answers count nothing."""
        paid = [answer.usage for answer in self.answers if not answer.cached]
        return CallUsage(**{name: sum(getattr(one, name) for one in paid) for name in CallUsage.model_fields})

    @property
    def notes(self) -> tuple[str, ...]:
        """For the audit: the text of each answer, with its fault."""
        return tuple(
            f"{answer.asked_for} answered{f' ({answer.fault}: {answer.note})' if answer.fault else ''}: "
            f"{answer.text}"
            for answer in self.answers
        )


class FailureLabeler:
    """Labels pairs of runs with a model. Threads may share a labeler; each process needs its own."""

    def __init__(self, model: Model, config: JudgingConfig | None = None):
        self._model, self._config = model, config or JudgingConfig()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def requests(self) -> dict[str, int]:
        """Numbers of questions that were sent to the model and that had been answered before."""
        return {"asked": self._model.asked, "cache_hits": self._model.hits}

    def label(self, success: ParsedRun, localization: ParsedRun) -> JudgedLabel:
        """Labels a pair; `source` is judge, review or rule.

        An unusable answer counts as confidence 0: it leads to the review, and after the review to the
        rule label.

        Raises:
          BudgetError: the money cap is reached.
          UserError: the model cannot be reached.
        """
        rule = rule_label(success, localization)
        first = self._ask("judge", success, localization, rule)
        if _is_confident(first.verdict, self._config.review_below):
            return _judged(first, rule, (first,))
        review = self._ask("review", success, localization, rule, first)
        if _is_confident(review.verdict, self._config.rule_below):
            return _judged(review, rule, (first, review))
        return JudgedLabel(rule.category, rule.confidence, "rule", rule.features, (first, review))

    def label_many(
        self,
        pairs: Iterable[RunPair],
        workers: int = 1,
        on_label: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[JudgedLabel]:
        """Labels all pairs, in their order.

        Args:
          workers: number of pairs labelled at the same time; they share the model's limits.
          on_label: called with the number of pairs done and the number of all pairs.

        Raises:
          BudgetError, UserError: as `label`. No pair is started after the first error; calls in progress
            end, and all answers are kept.
        """
        if workers < 1:
            raise UserError(f"config.workers={workers}: use at least 1")
        stopped = threading.Event()

        def one(pair: RunPair) -> JudgedLabel | None:
            if stopped.is_set():
                return None
            try:
                return self.label(pair.success, pair.localization)
            except BaseException:
                stopped.set()
                raise

        labels: list[JudgedLabel] = []
        with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="labels") as pool:
            futures = [pool.submit(one, pair) for pair in pairs]
            try:
                for done, future in enumerate(futures, start=1):
                    label = future.result()
                    if label is not None:
                        labels.append(label)
                        on_label(done, len(futures))
            finally:
                # Also after a KeyboardInterrupt, which only this thread gets.
                stopped.set()
        return labels

    def _ask(
        self,
        asked_for: Pass,
        success: ParsedRun,
        localization: ParsedRun,
        rule: FailureLabel,
        first: LabelAnswer | None = None,
    ) -> LabelAnswer:
        messages = label_messages(success, localization, rule.features, self._config.final_steps, first)
        ids = (success.record.trajectory_id, localization.record.trajectory_id)
        seed = call_seed("label", asked_for, *ids)
        reply, cached = self._model.ask(ModelRequest(messages, "judge", seed, schema=verdict_schema()))
        return read_answer(asked_for, reply, cached)


def summarize_labels(labels: Sequence[FailureLabel]) -> dict[str, Any]:
    """Counts for a report: sources of labels, their confidence, and faults of unusable answers."""
    faults = {pass_: Counter() for pass_ in ("judge", "review")}
    for label in labels:
        for answer in label.answers if isinstance(label, JudgedLabel) else ():
            faults[answer.asked_for].update([answer.fault] if answer.fault else [])
    sources = {name: [label for label in labels if label.source == name] for name in SOURCES}
    return {
        "sources": {
            name: {"labels": len(some), "mean_confidence": mean_confidence(some)}
            for name, some in sources.items()
        },
        "mean_confidence": mean_confidence(labels),
        "unusable_answers": {
            pass_: {fault: counts[fault] for fault in FAULTS} for pass_, counts in faults.items()
        },
    }


def mean_confidence(labels: Sequence[FailureLabel]) -> float | None:
    """Returns the mean confidence to four places; None without labels."""
    return round(sum(label.confidence for label in labels) / len(labels), 4) if labels else None


def _is_confident(verdict: LabelVerdict | None, least: float) -> bool:
    return verdict is not None and verdict.confidence >= least


def _judged(answer: LabelAnswer, rule: FailureLabel, answers: tuple[LabelAnswer, ...]) -> JudgedLabel:
    assert answer.verdict is not None
    verdict = answer.verdict
    return JudgedLabel(verdict.category, verdict.confidence, answer.asked_for, rule.features, answers)
