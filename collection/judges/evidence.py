"""Evidence for judges from a recorded run. Text from outside stays inside its fence."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.meta

from collection.agent.prompt import fenced_line, fenced_text
from collection.corpus.elements import name_of, role_of
from collection.corpus.steps import StepView, view
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import Element, Step, Trajectory

# Limits on untrusted text in a prompt, in characters (about 4 per token).
MAX_REQUEST_CHARS = 8_000
MAX_ANSWER_CHARS = 30_000
MAX_PAGE_CHARS = 8_000
# Limits on one line of the history, an element's words in it, one action's result, and what it gave to read.
_MAX_LINE_CHARS = 300
_MAX_ELEMENT_CHARS = 100
_MAX_RESULT_CHARS = 600
_MAX_OUTPUT_CHARS = 3_000
# For the record of what a judge saw.
TEXT_LIMITS = (
    ("page_chars", MAX_PAGE_CHARS),
    ("answer_chars", MAX_ANSWER_CHARS),
    ("output_chars", _MAX_OUTPUT_CHARS),
)


def render(template: str, trajectory: Trajectory, **values: Any) -> str:
    """Renders a prompt with the request and final answer of a run, and `values`."""
    task = trajectory.task
    return (
        _environment()
        .get_template(template)
        .render(
            objective=fenced_text(task.objective, MAX_REQUEST_CHARS),
            constraints=[fenced_line(constraint) for constraint in task.constraints],
            answer=fenced_text(trajectory.final_text, MAX_ANSWER_CHARS),
            **values,
        )
        .strip()
    )


def screenshots(trajectory: Trajectory) -> list[tuple[int, str]]:
    """Returns step number and SHA-256 of each distinct screenshot at its last occurrence, in order."""
    last = {shot: step.number for step in trajectory.steps if (shot := step.observation.screenshot)}
    return sorted((number, shot) for shot, number in last.items())


def page(step: Step, limit: int = MAX_PAGE_CHARS) -> dict[str, Any]:
    """Renders the text of a page as the agent read it."""
    observation = step.observation
    return {
        "step": step.number,
        "url": fenced_line(observation.url),
        "title": fenced_line(observation.title),
        "text": fenced_text(observation.page_text, limit),
    }


def history(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Renders the agent's actions, with the words of their elements, and what came of them, step by step."""
    return [_past(view(step), bool(trajectory.source)) for step in trajectory.steps]


def _past(one: StepView[Step], imported: bool) -> dict[str, Any]:
    step = one.step
    return {
        "number": step.number,
        "url": fenced_line(step.observation.url, _MAX_LINE_CHARS),
        "actions": [fenced_line(action, _MAX_LINE_CHARS) for action in _actions(one, imported)],
        "results": [
            {
                "error": result.error,
                "text": fenced_line(result.text, _MAX_RESULT_CHARS),
                "output": fenced_line(result.output, _MAX_OUTPUT_CHARS),
            }
            for result in step.results
        ],
    }


def _actions(one: StepView[Step], imported: bool) -> list[str]:
    """Renders a step's actions; None if the reply was unusable. Imported actions may be plain text."""
    if one.reply is not None:
        elements = {element.index: element for element in one.step.observation.elements}
        return [_action(action, elements) for action in one.reply.executable]
    return [one.step.response] if imported else []


def _action(action: Action, elements: Mapping[int | None, Element]) -> str:
    """Renders an action; an index alone says nothing about what was clicked or typed into."""
    params = action.params.model_dump(exclude_defaults=True)
    indices = [value for name, value in params.items() if name.endswith("index")]
    words = [words for index in indices if index in elements and (words := _words(elements[index]))]
    onto = f" on {', '.join(words)}" if words else ""
    return f"{action.name}{onto} {json.dumps(params, ensure_ascii=False)}"


def _words(element: Element) -> str:
    """Returns the role of an element and its text or name: `button "Add to cart"`."""
    role, name = role_of(element.tag, element.attributes), name_of(element.text, element.attributes)
    name = name or element.attributes.get("value", "")
    shown = f' "{fenced_line(name, _MAX_ELEMENT_CHARS)}"' if name else ""
    return f"{role}{shown}"


@functools.cache
def prompt_sha256(templates: Sequence[str]) -> str:
    """Returns the SHA-256 of prompt templates and of those that they include.

    Args:
      templates: file names, as a tuple.
    """
    environment, sources = _environment(), {}
    waiting = list(templates)
    while waiting:
        name = waiting.pop()
        if name not in sources:
            assert environment.loader is not None
            sources[name], *_ = environment.loader.get_source(environment, name)
            included = jinja2.meta.find_referenced_templates(environment.parse(sources[name]))
            waiting += filter(None, included)
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("collection.judges", "prompts"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Chat text, not HTML: escaping would change what is quoted.
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
