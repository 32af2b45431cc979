"""What a judge of failure modes is to answer, and how its answers are read."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collection.llm.model import ModelReply
from collection.mining.labels import PAPER_SHARES
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import CallUsage

Pass = Literal["judge", "review"]
# Why an answer is not used: the model gave none (blocked, refused, cut off, empty); prose, or JSON that
# breaks off; JSON of another shape; a category that is none of the eleven; a confidence outside [0, 1].
Fault = Literal["no_answer", "not_json", "wrong_shape", "outside_taxonomy", "confidence_out_of_range"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

_MAX_NOTE_CHARS = 200
_BOUNDS = ("greater_than_equal", "less_than_equal", "finite_number")
# The Markdown fence that some models put around JSON.
_FENCED = re.compile(r"\A\s*```(?:json)?\s(.*)```\s*\Z", re.DOTALL)


class Verdict(BaseModel):
    """A usable answer. The order is the order in which a model writes: reasons come before the choice."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    reason: str
    category: str
    confidence: float = Field(ge=0, le=1, allow_inf_nan=False)


@dataclasses.dataclass(frozen=True)
class Answer:
    """One pass's answer.

    Attributes:
      text: as it came, with half surrogate pairs replaced; empty, or a beginning, where there was none.
      verdict: None when it cannot be used.
      fault: why not; None when it can.
      note: the fault in words, one line.
      usage: of the call, whenever it was made.
      cached: the call was made before, so this time it cost nothing.
    """

    asked_for: Pass
    text: str
    verdict: Verdict | None = None
    fault: Fault | None = None
    note: str = ""
    usage: CallUsage = dataclasses.field(default_factory=CallUsage)
    cached: bool = dataclasses.field(default=False, compare=False)


def verdict_schema() -> dict[str, Any]:
    """JSON schema of a verdict."""
    schema = plain_schema(Verdict.model_json_schema())
    del schema["description"]  # Is for us.
    schema["properties"]["category"]["enum"] = list(PAPER_SHARES)
    return schema


def read_answer(asked_for: Pass, reply: ModelReply, cached: bool = False) -> Answer:
    """Reads a reply; anything but one JSON object that keeps to the schema is a fault, never a guess."""
    text = reply.text.encode(errors="replace").decode()
    if reply.problem:
        verdict, fault, note = None, "no_answer", reply.problem
    else:
        verdict, fault, note = _parse(text)
    return Answer(asked_for, text, verdict, fault, _one_line(note), reply.usage, cached)


def _parse(text: str) -> tuple[Verdict | None, Fault | None, str]:
    fenced = _FENCED.match(text)
    try:
        verdict = Verdict.model_validate_json(fenced[1] if fenced else text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        note = f"{where}: {first['msg']}" if where else first["msg"]
        return None, _fault(first["type"], where), note
    if verdict.category not in PAPER_SHARES:
        return None, "outside_taxonomy", f"category: {verdict.category!r} is none of the eleven"
    return verdict, None, ""


def _fault(kind: str, where: str) -> Fault:
    if kind == "json_invalid":
        return "not_json"
    return "confidence_out_of_range" if where == "confidence" and kind in _BOUNDS else "wrong_shape"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_NOTE_CHARS]
