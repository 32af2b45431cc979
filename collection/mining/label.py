"""Failure labels by a model: a first answer, a review of uncertain ones, the cues' label where both fail.

See RMSWeb, section 3.3 and appendix. The model gets the task, the last steps of both runs and the cues. It
answers with one JSON object.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Literal, TypeVar, cast

import jinja2
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from collection.agent.prompt import fenced_line, fenced_text
from collection.corpus.steps import StepView
from collection.llm.model import Model, ModelReply, ModelRequest, call_seed
from collection.mining.runs import ParsedRun
from collection.mining.taxonomy import TAXONOMY, FailureLabel, rule_label
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import CallUsage, Message, TextPart

Item = TypeVar("Item")
Result = TypeVar("Result")
Pass = Literal["judge", "review"]

SOURCES = ("judge", "review", "rule")
# A first answer of less confidence is reviewed (RMSWeb); after a review of less, the cues' label is taken.
# RMSWeb has "very low" there.
REVIEW_BELOW, RULE_BELOW = 0.70, 0.30
# The number of last steps of each run that the model reads.
_FINAL_STEPS = 5
# Maximum lengths in characters. Chosen by hand: the steps of both runs stay within a few thousand tokens.
_MAX_ADDRESS, _MAX_WORDS, _MAX_PARAMS = 300, 500, 300
_MAX_ANSWER, _MAX_REQUEST, _MAX_FIRST, _MAX_NOTE = 4_000, 8_000, 2_000, 200
# The Markdown fence that some models put around JSON.
_FENCED = re.compile(r"\A\s*```(?:json)?\s(.*)```\s*\Z", re.DOTALL)


class LabelVerdict(BaseModel):
    """A usable answer. Models write the fields in this order, so that the reason comes before the choice."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    reason: str
    category: str
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False)

    @field_validator("category")
    @classmethod
    def _known(cls, category: str) -> str:
        if category not in TAXONOMY:
            raise ValueError(f"{category!r} is none of the eleven")
        return category


def verdict_schema() -> dict[str, Any]:
    """Returns the JSON schema of a verdict."""
    schema = plain_schema(LabelVerdict.model_json_schema())
    del schema["description"]  # For developers, not for the model.
    schema["properties"]["category"]["enum"] = list(TAXONOMY)
    return schema


@dataclasses.dataclass(frozen=True)
class LabelAnswer:
    """The answer of the first pass or of the review.

    Attributes:
      text: unchanged except for lone surrogates; empty or incomplete if the model gave no answer.
      verdict: None for an unusable answer.
      fault: one line about why it is unusable; empty for a usable answer.
      usage: of the call, also of one that was made earlier.
    """

    asked_for: Pass
    text: str
    verdict: LabelVerdict | None
    fault: str
    usage: CallUsage

    @property
    def confidence(self) -> float:
        """An unusable answer counts as none."""
        return self.verdict.confidence if self.verdict else -1.0


@dataclasses.dataclass(frozen=True)
class JudgedLabel(FailureLabel):
    """A label with the model's answers: the first and, if there was one, the review, used or not."""

    answers: tuple[LabelAnswer, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """For the audit: the text of each answer, with its fault."""
        return tuple(
            f"{answer.asked_for} answered{f' ({answer.fault})' if answer.fault else ''}: {answer.text}"
            for answer in self.answers
        )


class FailureLabeler:
    """Labels pairs of runs with a model; threads may share it."""

    def __init__(self, model: Model):
        self._model = model

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

        Raises:
          BudgetError: the money cap is reached.
          UserError: the model cannot be reached.
        """
        rule = rule_label(success, localization)
        answers: tuple[LabelAnswer, ...] = (self._ask("judge", success, localization, rule),)
        if answers[0].confidence < REVIEW_BELOW:
            answers += (self._ask("review", success, localization, rule, answers[0]),)
        last = answers[-1]
        if last.verdict is None or last.confidence < RULE_BELOW:
            return JudgedLabel(rule.category, rule.confidence, "rule", rule.cues, answers)
        return JudgedLabel(last.verdict.category, last.confidence, last.asked_for, rule.cues, answers)

    def _ask(
        self,
        asked_for: Pass,
        success: ParsedRun,
        localization: ParsedRun,
        rule: FailureLabel,
        first: LabelAnswer | None = None,
    ) -> LabelAnswer:
        messages = label_messages(success, localization, rule.cues, first)
        ids = (success.record.trajectory_id, localization.record.trajectory_id)
        seed = call_seed("label", asked_for, *ids)
        reply, _ = self._model.ask(ModelRequest(messages, "judge", seed, schema=verdict_schema()))
        return read_answer(asked_for, reply)


def map_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    on_done: Callable[[int], None] = lambda done: None,
) -> list[Result]:
    """Maps in threads, which wait for a model; after the first error no further item is started.

    Args:
      on_done: called with the number of items done.
    """
    failed = threading.Event()

    def one(item: Item) -> Result | None:
        try:
            return None if failed.is_set() else function(item)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(threads, thread_name_prefix="labels") as executor:
        futures = [executor.submit(one, item) for item in items]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                on_done(done)
        finally:
            # Also after a KeyboardInterrupt, which only this thread gets.
            failed.set()
    return [cast(Result, future.result()) for future in futures]


def read_answer(asked_for: Pass, reply: ModelReply) -> LabelAnswer:
    """Parses a reply strictly: anything but one JSON object of the schema is a fault."""
    text, verdict, fault = reply.text.encode(errors="replace").decode(), None, reply.problem
    if not fault:
        fenced = _FENCED.match(text)
        try:
            verdict = LabelVerdict.model_validate_json(fenced[1] if fenced else text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            fault = ": ".join((*map(str, first["loc"]), first["msg"]))
    return LabelAnswer(asked_for, text, verdict, " ".join(fault.split())[:_MAX_NOTE], reply.usage)


def summarize_labels(labels: Sequence[FailureLabel]) -> dict[str, Any]:
    """Counts for a report: sources of labels, their confidence, and unusable answers."""
    sources = {name: [label for label in labels if label.source == name] for name in SOURCES}
    answers = [answer for label in labels if isinstance(label, JudgedLabel) for answer in label.answers]
    return {
        "sources": {
            name: {"labels": len(some), "mean_confidence": mean_confidence(some)}
            for name, some in sources.items()
        },
        "mean_confidence": mean_confidence(labels),
        "unusable_answers": {
            asked_for: sum(answer.asked_for == asked_for and answer.verdict is None for answer in answers)
            for asked_for in ("judge", "review")
        },
    }


def mean_confidence(labels: Sequence[FailureLabel]) -> float | None:
    """Returns the mean confidence to four places; None without labels."""
    return round(sum(label.confidence for label in labels) / len(labels), 4) if labels else None


# --- The prompt ---


def label_messages(
    success: ParsedRun,
    localization: ParsedRun,
    cues: Sequence[str],
    first: LabelAnswer | None = None,
) -> tuple[Message, ...]:
    """Builds the prompt for a label: one user message.

    Args:
      cues: the categories that cues speak for.
      first: the answer to be reviewed; None for the first pass.
    """
    task = success.record.task
    text = _template("label.j2" if first is None else "review.j2").render(
        objective=fenced_text(task.objective, _MAX_REQUEST),
        constraints=[fenced_line(constraint) for constraint in task.constraints],
        website=fenced_line(task.website, _MAX_ADDRESS),
        success=_run(success),
        other=_run(localization),
        cues=cues,
        categories={name: mode.explanation for name, mode in TAXONOMY.items()},
        first=first and _first(first),
    )
    return (Message(role="user", content=(TextPart(text=text.rstrip()),)),)


def _first(answer: LabelAnswer) -> dict[str, Any]:
    return {
        "verdict": answer.verdict,
        "reason": fenced_line(answer.verdict.reason, _MAX_WORDS) if answer.verdict else "",
        "fault": fenced_line(answer.fault, _MAX_WORDS),
        "text": fenced_line(answer.text, _MAX_FIRST),
    }


def _run(run: ParsedRun) -> dict[str, Any]:
    record, steps = run.record, run.steps
    left_out = max(0, len(steps) - _FINAL_STEPS)
    return {
        "success": record.success,
        "outcome": record.outcome,
        "declared_success": record.declared_success,
        "answer": fenced_line(record.final_text, _MAX_ANSWER),
        "left_out": left_out,
        "total": len(steps),
        "steps": [_step(number, step) for number, step in enumerate(steps[left_out:], start=left_out + 1)],
    }


def _step(number: int, view: StepView) -> dict[str, Any]:
    observation, reply = view.step.observation, view.reply
    params = [
        (action.name, json.dumps(action.params.model_dump(exclude_defaults=True), ensure_ascii=False))
        for action in (reply.executable if reply else ())
    ]
    return {
        "number": number,
        "url": fenced_line(observation.url, _MAX_ADDRESS),
        "title": fenced_line(observation.title, _MAX_ADDRESS),
        "usable": reply is not None,
        "memory": fenced_line(reply.memory, _MAX_WORDS) if reply else "",
        "goal": fenced_line(reply.next_goal, _MAX_WORDS) if reply else "",
        "actions": [fenced_line(f"{name} {values}", _MAX_PARAMS) for name, values in params],
        "results": [
            {
                "action": result.action,
                "error": result.error,
                "changed": result.changed,
                "text": fenced_line(result.text, _MAX_WORDS),
            }
            for result in view.step.results
        ],
    }


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection.mining", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Chat text, not HTML: escaping would change quoted text.
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
