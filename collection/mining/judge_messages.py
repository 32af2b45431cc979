"""Builds the messages to a judge of failure modes, and parses its answers.

The judge gets the task, the last steps of both runs and the rule features. It answers with one JSON object.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import jinja2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collection.agent.prompt import fenced_line, fenced_text
from collection.corpus.steps import StepView
from collection.llm.model import ModelReply
from collection.mining.failure_modes import TAXONOMY
from collection.mining.runs import ParsedRun
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import CallUsage, Message, TextPart

Pass = Literal["judge", "review"]
# Reasons why an answer is unusable: there is none (blocked, refused, cut off or empty); it is prose or broken
# JSON; JSON of another shape; a category that is none of the eleven; a confidence outside [0, 1].
Fault = Literal["no_answer", "not_json", "wrong_shape", "outside_taxonomy", "confidence_out_of_range"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

_MAX_NOTE_CHARS = 200
# Pydantic's error types for a number out of range.
_BOUNDS = ("greater_than_equal", "less_than_equal", "finite_number")
# The Markdown fence that some models put around JSON.
_FENCED = re.compile(r"\A\s*```(?:json)?\s(.*)```\s*\Z", re.DOTALL)


# Maximum lengths in characters. Chosen by hand: the steps of both runs stay within a few thousand tokens.
_MAX_ADDRESS = 300
_MAX_WORDS = 500
_MAX_PARAMS = 300
_MAX_ANSWER = 4_000
_MAX_REQUEST = 8_000
_MAX_FIRST = 2_000


class LabelVerdict(BaseModel):
    """A usable answer. Models write the fields in this order, so that the reason comes before the choice."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    reason: str
    category: str
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False)


@dataclasses.dataclass(frozen=True)
class LabelAnswer:
    """The answer of the judge or of the reviewer.

    Attributes:
      text: unchanged except for lone surrogates; empty or incomplete if the model gave no answer.
      verdict: None for an unusable answer.
      fault: the reason why it is unusable; None for a usable answer.
      note: one line about the fault.
      usage: of the call, also of one that was made earlier.
      cached: the answer was read from the cache and cost nothing.
    """

    asked_for: Pass
    text: str
    verdict: LabelVerdict | None = None
    fault: Fault | None = None
    note: str = ""
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    cached: bool = dataclasses.field(default=False, compare=False)


def label_messages(
    success: ParsedRun,
    localization: ParsedRun,
    features: Mapping[str, float],
    final_steps: int,
    first: LabelAnswer | None = None,
) -> tuple[Message, ...]:
    """Builds the prompt for a label: one user message.

    Args:
      features: pair features in [0, 1]; zeros may be left out.
      final_steps: the number of last steps of each run that are shown.
      first: the answer to be reviewed; None for the first pass.
    """
    task = success.record.task
    text = _template("label.j2" if first is None else "review.j2").render(
        objective=fenced_text(task.objective, _MAX_REQUEST),
        constraints=[fenced_line(constraint) for constraint in task.constraints],
        website=fenced_line(task.website, _MAX_ADDRESS),
        success=_run(success, final_steps),
        other=_run(localization, final_steps),
        features=dict(sorted(features.items())),
        categories={name: mode.explanation for name, mode in TAXONOMY.items()},
        first=first and _first(first),
    )
    return (Message(role="user", content=(TextPart(text=text.rstrip()),)),)


def _first(answer: LabelAnswer) -> dict[str, Any]:
    return {
        "verdict": answer.verdict,
        "reason": fenced_line(answer.verdict.reason, _MAX_WORDS) if answer.verdict else "",
        "note": fenced_line(answer.note, _MAX_WORDS),
        "text": fenced_line(answer.text, _MAX_FIRST),
    }


def _run(run: ParsedRun, final_steps: int) -> dict[str, Any]:
    record, steps = run.record, run.steps
    left_out = max(0, len(steps) - final_steps)
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
    return {
        "number": number,
        "url": fenced_line(observation.url, _MAX_ADDRESS),
        "title": fenced_line(observation.title, _MAX_ADDRESS),
        "usable": reply is not None,
        "memory": fenced_line(reply.memory, _MAX_WORDS) if reply else "",
        "goal": fenced_line(reply.next_goal, _MAX_WORDS) if reply else "",
        "actions": [
            fenced_line(f"{action.name} {_params(action.params)}", _MAX_PARAMS) for action in reply.executable
        ]
        if reply
        else [],
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


def _params(params: Any) -> str:
    return json.dumps(params.model_dump(exclude_defaults=True), ensure_ascii=False)


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


def verdict_schema() -> dict[str, Any]:
    """Returns the JSON schema of a verdict."""
    schema = plain_schema(LabelVerdict.model_json_schema())
    del schema["description"]  # For developers, not for the model.
    schema["properties"]["category"]["enum"] = list(TAXONOMY)
    return schema


def read_answer(asked_for: Pass, reply: ModelReply, cached: bool = False) -> LabelAnswer:
    """Parses a reply strictly: anything but one JSON object of the schema is a fault."""
    text = reply.text.encode(errors="replace").decode()
    if reply.problem:
        verdict, fault, note = None, "no_answer", reply.problem
    else:
        verdict, fault, note = _parse(text)
    return LabelAnswer(asked_for, text, verdict, fault, _one_line(note), reply.usage, cached)


def _parse(text: str) -> tuple[LabelVerdict | None, Fault | None, str]:
    fenced = _FENCED.match(text)
    try:
        verdict = LabelVerdict.model_validate_json(fenced[1] if fenced else text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        note = f"{where}: {first['msg']}" if where else first["msg"]
        return None, _fault(first["type"], where), note
    if verdict.category not in TAXONOMY:
        return None, "outside_taxonomy", f"category: {verdict.category!r} is none of the eleven"
    return verdict, None, ""


def _fault(kind: str, where: str) -> Fault:
    if kind == "json_invalid":
        return "not_json"
    return "confidence_out_of_range" if where == "confidence" and kind in _BOUNDS else "wrong_shape"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_NOTE_CHARS]
