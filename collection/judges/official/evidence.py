"""A recorded run as official judges expect it: actions with their elements, thoughts and screenshots."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection.corpus.steps import view
from collection.judges.notes import Criterion
from collection.llm.model import ImageSource
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import Element, Step, Trajectory

# Attributes that say what an element is, in the order of Online-Mind2Web's histories.
_ATTRIBUTES = ("id", "type", "name", "value", "href", "placeholder", "title", "alt", "aria-label", "role")
_MAX_CHARS = 200
# Verb and parameter with the value, by action.
_VERBS = {
    "click_element_by_index": ("CLICK", ""),
    "input_text": ("TYPE", "text"),
    "select_dropdown_option": ("SELECT", "text"),
    "send_keys": ("PRESS", "keys"),
    "go_to_url": ("GOTO", "url"),
    "search_engine": ("SEARCH", "query"),
}


def episode(
    trajectory: Trajectory, images: ImageSource, rubric: Sequence[Criterion], folder: Path
) -> dict[str, Any]:
    """Writes a run's screenshots into `folder` and returns all that a judge may see, as JSON.

    Returns:
      `id`, `task`, `start` (its start page), `answer`, `rubric` (as in WebTailBench; None without one),
      `folder`, and `steps`: `url`, `thought`, `action` in words as in Online-Mind2Web's histories, `name` and
      `arguments` as in Fara's, `done`, and `screenshot` of the page before the step (a path, or None).
    """
    task = trajectory.task
    return {
        "id": task.task_id,
        "task": "\n".join((task.objective, *task.constraints)),
        "start": task.website,
        "answer": trajectory.final_text,
        "rubric": {"items": [_item(one) for one in rubric]} if rubric else None,
        "folder": str(folder),
        "steps": [_step(step, images, folder) for step in trajectory.steps],
    }


def _item(criterion: Criterion) -> dict[str, Any]:
    """Returns a line of a rubric without points yet."""
    line = criterion.model_dump(exclude={"condition"}) | {"justification": "", "earned_points": ""}
    return line | {"condition": criterion.condition} if criterion.condition else line


def _step(step: Step, images: ImageSource, folder: Path) -> dict[str, Any]:
    reply = view(step).reply
    shot = step.observation.screenshot
    path = folder / f"screenshot{step.number}.png" if shot else None
    if path is not None and shot is not None:
        path.write_bytes(images.get(shot))
    found = {
        "url": step.observation.url,
        "thought": "",
        # An imported run may have actions in its own words; any other reply without actions did nothing.
        "action": " ".join(step.response.split())[:_MAX_CHARS] if reply is None else "",
        "name": "none",
        "arguments": {},
        "done": False,
        "screenshot": str(path) if path else None,
    }
    if reply is None:
        return found
    elements = {element.index: element for element in step.observation.elements}
    actions = reply.executable
    names = [action.name for action in actions]
    return found | {
        "thought": " ".join((reply.thinking or reply.next_goal).split()),
        "action": "; ".join(action_words(action, elements) for action in actions if action.name != "done"),
        "name": " then ".join(names),
        "arguments": _arguments(actions, elements),
        "done": "done" in names,
    }


def action_words(action: Action, elements: dict[int | None, Element]) -> str:
    """Describes an action as in Online-Mind2Web's histories: `<button type="submit">Go</button> -> CLICK`.

    Args:
      elements: those of the page, by index.
    """
    params = action.params.model_dump(exclude_defaults=True)
    element = elements.get(params.pop("index", params.pop("frame_element_index", None)))
    if action.name in _VERBS:
        verb, name = _VERBS[action.name]
        words = f"{verb}: {params[name]}" if name else verb
    else:
        words = action.name.upper().replace("_", " ")
        words += f": {json.dumps(params, ensure_ascii=False)}" if params else ""
    return f"{element_words(element)} -> {words}" if element else words


def element_words(element: Element) -> str:
    """Describes an element as HTML with its telling attributes and its text."""
    given = [(name, element.attributes[name]) for name in _ATTRIBUTES if element.attributes.get(name)]
    attributes = "".join(f' {name}="{html.escape(_short(value))}"' for name, value in given)
    text = _short(element.text)
    return f"<{element.tag}{attributes}>" + (f"{text}</{element.tag}>" if text else "")


def _arguments(actions: Sequence[Action], elements: dict[int | None, Element]) -> dict[str, Any]:
    """Returns the parameters of a step's actions, with elements in words instead of their indices."""

    def one(action: Action) -> dict[str, Any]:
        params = action.params.model_dump(mode="json", exclude_defaults=True)
        element = elements.get(params.get("index"))
        return params | {"element": element_words(element)} if element else params

    if len(actions) == 1:
        return one(actions[0])
    return {"actions": [{"action": action.name, **one(action)} for action in actions]}


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MAX_CHARS else f"{words[:_MAX_CHARS]}..."
