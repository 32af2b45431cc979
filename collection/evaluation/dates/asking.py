"""Asks a model if a prompt is date-bound, for prompts with dates that the rules do not classify as such."""

from __future__ import annotations

import functools
from typing import Any

import jinja2
from pydantic import BaseModel, ConfigDict, ValidationError

from collection.evaluation.dates.writing import find_mentions
from collection.llm.model import Model, ModelRequest, call_seed
from rmsweb_jax.actions.json_schema import plain_schema
from rmsweb_jax.records.schema import Message, TextPart

# One retry if the answer does not follow the schema.
_ASKS = 2


class _BoundAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str
    bound: bool


def ask_bound(text: str, model: Model) -> bool:
    """Returns True if a prompt is bound to its dates; without a valid answer it is not, and stays unchanged.

    The model decides only this. The procedure (`collection.evaluation.dates.moving`) decides which dates
    move, where to and how they are written, so no answer can change anything else in a prompt.

    Raises:
      UserError: the model cannot be reached, or the budget is spent.
    """
    for ask in range(_ASKS):
        reply = model.complete(_request(text, ask))
        if reply.problem:
            continue
        try:
            return _BoundAnswer.model_validate_json(
                reply.text.strip().removeprefix("```json").strip("`\n ")
            ).bound
        except ValidationError:
            continue
    return False


def answer_schema() -> dict[str, Any]:
    """Returns the JSON schema of the model's answer."""
    return plain_schema(_BoundAnswer.model_json_schema())


def _request(text: str, ask: int) -> ModelRequest:
    dates = [text[mention.start : mention.end] for mention in find_mentions(text)]
    message = Message(role="user", content=(TextPart(text=_template().render(text=text, dates=dates)),))
    return ModelRequest((message,), "task", call_seed("task", text, ask), schema=answer_schema())


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.evaluation.dates", "prompts")
    # Chat text, not HTML: escaping would change quoted text.
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template("bound.j2")
