"""The chats that ask a model to reflect on a round and to read a page."""

from __future__ import annotations

import functools
import re

import jinja2

from collection.llm.base import ExtractionRequest, ReflectionRequest
from rmsweb_jax.records.schema import Message, TextPart

# What page text stands between; no page can end it.
FENCE = "untrusted_page"
_FENCE_MARK = re.compile(rf"<(?=\s*/?\s*{FENCE})", re.IGNORECASE)


def reflection_messages(request: ReflectionRequest) -> tuple[Message, ...]:
    """One user message: what was asked, what was done step by step, how it ended, what was advised."""
    text = _template("reflection.j2").render(
        objective=request.objective,
        summary=request.summary,
        outcome=request.outcome,
        guidance=request.guidance,
    )
    return (Message(role="user", content=(TextPart(text=text),)),)


def extraction_messages(request: ExtractionRequest) -> tuple[Message, ...]:
    """One user message: the query and the page, fenced as untrusted; it is recorded as it is sent."""
    text = _template("extraction.j2").render(
        query=request.query, text=_FENCE_MARK.sub("&lt;", request.text), fence=FENCE
    )
    return (Message(role="user", content=(TextPart(text=text),)),)


@functools.cache
def _template(name: str) -> jinja2.Template:
    loader = jinja2.PackageLoader("collection.agent", "prompts")
    # Chat text, not HTML: escaping would change what is quoted.
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template(name)
