"""The chat that asks a model to reflect; the scripted teacher has no need of it."""

from __future__ import annotations

import functools

import jinja2

from collection.llm.base import ReflectionRequest
from rmsweb_jax.records.schema import Message, TextPart


def reflection_messages(request: ReflectionRequest) -> tuple[Message, ...]:
    """One user message: what was asked, what was done step by step, how it ended, what was advised."""
    text = _template().render(
        objective=request.objective,
        summary=request.summary,
        outcome=request.outcome,
        guidance=request.guidance,
    )
    return (Message(role="user", content=(TextPart(text=text),)),)


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.agent", "prompts")
    # Chat text, not HTML: escaping would change what is quoted.
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template("reflection.j2")
