"""Failure modes named by a model: a first judgment, a review of unsure ones, the rules where both fail.

RMSWeb, section 3.3 and its appendix; below which confidence the rules decide is this project's choice.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from collection.llm.base import call_seed
from collection.llm.cached import Cached
from collection.llm.model import Model, ModelRequest
from collection.mining.branch import Branch
from collection.mining.judge_answer import FAULTS, Answer, Pass, Verdict, read_answer, verdict_schema
from collection.mining.judge_prompt import label_messages
from collection.mining.labels import Label, rule_label
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage

# Its usual name in a run's workdir.
ANSWERS = "answers.sqlite"
SOURCES = ("judge", "review", "rule")


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """When a label is settled.

    Attributes:
      review_below: a first judgment of less confidence is reviewed.
      rule_below: after a review of less confidence the rules' category is taken.
      final_steps: how many last steps of each run the model reads.
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
class JudgedLabel(Label):
    """A label with what the model said on the way to it.

    Attributes:
      answers: the first judgment and, where there was one, the review; also those that were not used.
    """

    answers: tuple[Answer, ...] = ()

    @property
    def usage(self) -> CallUsage:
        """What this label cost now; answers that were known before cost nothing."""
        paid = [answer.usage for answer in self.answers if not answer.cached]
        return CallUsage(**{name: sum(getattr(one, name) for one in paid) for name in CallUsage.model_fields})

    @property
    def notes(self) -> tuple[str, ...]:
        """For the audit: each answer as it came, with what was wrong with it."""
        return tuple(
            f"{answer.asked_for} answered{f' ({answer.fault}: {answer.note})' if answer.fault else ''}: "
            f"{answer.text}"
            for answer in self.answers
        )


class Pair(Protocol):
    """A success and the run it is held against, as `collection.mining.pairs.RunPair`."""

    @property
    def success(self) -> Branch: ...

    @property
    def localization(self) -> Branch: ...


class JudgedLabels:
    """Labels pairs of runs by a model. Threads may share it; processes make one each.

    Args:
      cache: file of all answers (`ANSWERS` in a workdir), which processes may share: what it holds is not
        asked again. None: kept in memory alone.

    Raises:
      UserError: the cache is none, or of another version.
    """

    def __init__(self, model: Model, cache: Path | None, config: JudgeConfig | None = None):
        self._model, self._config = Cached(model, cache), config or JudgeConfig()

    @property
    def name(self) -> str:
        """Of the model."""
        return self._model.name

    @property
    def requests(self) -> dict[str, int]:
        """So far: questions that the model answered, and those that were answered from the cache."""
        return {"asked": self._model.asked, "cache_hits": self._model.hits}

    def close(self) -> None:
        self._model.close()

    def __enter__(self) -> JudgedLabels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def label(self, success: Branch, localization: Branch) -> JudgedLabel:
        """The failure mode of a pair. `source` says who decided: judge, review or rule.

        An answer that cannot be used counts as one of no confidence: after the first the review decides,
        after the second the rules.

        Raises:
          BudgetError: the money cap is reached.
          UserError: the model cannot be reached.
        """
        rule = rule_label(success, localization)
        first = self._ask("judge", success, localization, rule)
        if _holds(first.verdict, self._config.review_below):
            return _judged(first, rule, (first,))
        review = self._ask("review", success, localization, rule, first)
        if _holds(review.verdict, self._config.rule_below):
            return _judged(review, rule, (first, review))
        return JudgedLabel(rule.category, rule.confidence, "rule", rule.features, (first, review))

    def label_many(
        self,
        pairs: Iterable[Pair],
        workers: int = 1,
        on_label: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[JudgedLabel]:
        """Labels of all pairs, in their order.

        Args:
          workers: pairs at once; the model's limits hold for all of them together.
          on_label: called with the number of pairs done and of all.

        Raises:
          BudgetError, UserError: as `label`. No pair is begun after the first error; the calls that are
            under way end, and everything answered is in the cache.
        """
        if workers < 1:
            raise UserError(f"config.workers={workers}: use at least 1")
        stopped = threading.Event()

        def one(pair: Pair) -> JudgedLabel | None:
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
                # Also after an interrupt, which comes to this thread alone.
                stopped.set()
        return labels

    def _ask(
        self, asked_for: Pass, success: Branch, localization: Branch, rule: Label, first: Answer | None = None
    ) -> Answer:
        messages = label_messages(success, localization, rule.features, self._config.final_steps, first)
        ids = (success.run.trajectory_id, localization.run.trajectory_id)
        seed = call_seed("label", asked_for, *ids)
        reply, cached = self._model.ask(ModelRequest(messages, "judge", seed, schema=verdict_schema()))
        return read_answer(asked_for, reply, cached)


def summarize_labels(labels: Sequence[Label]) -> dict[str, Any]:
    """Counts for a report: who decided how surely, and which answers could not be used."""
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


def mean_confidence(labels: Sequence[Label]) -> float | None:
    """Rounded to four places; None without labels."""
    return round(sum(label.confidence for label in labels) / len(labels), 4) if labels else None


def _holds(verdict: Verdict | None, least: float) -> bool:
    return verdict is not None and verdict.confidence >= least


def _judged(answer: Answer, rule: Label, answers: tuple[Answer, ...]) -> JudgedLabel:
    assert answer.verdict is not None
    verdict = answer.verdict
    return JudgedLabel(verdict.category, verdict.confidence, answer.asked_for, rule.features, answers)
