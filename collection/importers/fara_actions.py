"""Maps actions of Fara's two agents, Fara-7B and Fara-1.5, to ours."""

from __future__ import annotations

from typing import Any

from collection.importers.common import UnmappedError, to_action
from collection.importers.coordinates import Screen, chord, press, scrolled, typed, wait
from rmsweb_jax.actions import Action

Arguments = dict[str, Any]
# Fara-7B sees the screenshot with sides that are multiples of this, and names points of that image.
_PATCH = 28
# Fara-1.5 names points, and distances, in thousandths of the window.
_PLANE = 1000
# Fara-7B's scroll turns the wheel by this many pixels, whatever distance the model names.
_WHEEL = 400
_PROTOCOLS = ("https://", "http://", "file://", "about:")


def map_action(arguments: Arguments, screen: Screen, newer: bool) -> list[Action]:
    """Maps the arguments of one `computer_use` call.

    Args:
      arguments: with the name of the action in `action`.
      newer: it is of Fara-1.5.

    Raises:
      UnmappedError: no counterpart (a right click, a drag, a question to the user, ...).
    """
    name = str(arguments.get("action"))
    if name in ("left_click", "click"):
        return [_click(arguments, name, screen, newer)]
    if name in ("type", "input_text"):
        text = arguments.get("text", arguments.get("text_value"))
        if newer:  # It types into the focused element.
            return typed(text, clear=False, enter=False)
        clear, enter = arguments.get("delete_existing_text", False), arguments.get("press_enter", True)
        return [_click(arguments, name, screen, newer), *typed(text, clear is True, enter is not False)]
    if name in ("key", "keypress"):
        return [press(chord(arguments.get("keys"), name))]
    if name == "scroll":
        return [_scroll(arguments, name, screen, newer)]
    if name == "visit_url":
        return [_visit(arguments.get("url"), name)]
    if name == "web_search":
        return [to_action({"search_engine": {"query": arguments.get("query"), "engine": "bing"}})]
    if name == "history_back":
        return [to_action({"go_back": {}})]
    if name in ("wait", "sleep"):
        return [wait(arguments.get("time", arguments.get("duration", 3.0)), name)]
    if name == "read_page_answer_question":
        return [to_action({"extract_structured_data": {"query": arguments.get("question")}})]
    if name in ("terminate", "stop"):
        return [to_action({"done": {"text": answer(arguments, newer), "success": declared(arguments)}})]
    raise UnmappedError(name, "our action space has no such action")


def is_end(arguments: Arguments) -> bool:
    return arguments.get("action") in ("terminate", "stop")


def answer(arguments: Arguments, newer: bool) -> str:
    """Returns the final answer of a `terminate`: Fara-7B's is its last thought."""
    return str(arguments.get("answer" if newer else "thoughts") or "")


def declared(arguments: Arguments) -> bool | None:
    """Returns the agent's own word on its success, which Fara-1.5 does not give."""
    return {"success": True, "failure": False}.get(str(arguments.get("status")))


def _click(arguments: Arguments, name: str, screen: Screen, newer: bool) -> Action:
    if newer or screen.width is None or screen.height is None:
        return screen.point(arguments.get("coordinate"), name, _PLANE, _PLANE)
    sides = [max(_PATCH, round(side / _PATCH) * _PATCH) for side in (screen.width, screen.height)]
    return screen.point(arguments.get("coordinate"), name, *sides)


def _scroll(arguments: Arguments, name: str, screen: Screen, newer: bool) -> Action:
    """Positive distances are upwards."""
    pixels = arguments.get("pixels", 0)
    if not isinstance(pixels, int | float) or isinstance(pixels, bool):
        raise UnmappedError(name, f"not a number: {str(pixels)[:40]!r}")
    if newer:
        return scrolled(-pixels / _PLANE, name)
    if screen.height is None:
        raise UnmappedError(name, "no screenshot gives the size of the page")
    return scrolled(-_WHEEL / screen.height if pixels > 0 else _WHEEL / screen.height if pixels else 0, name)


def _visit(url: Any, name: str) -> Action:
    if not isinstance(url, str) or not url:
        raise UnmappedError(name, "it names no address")
    if url.startswith(_PROTOCOLS):
        return to_action({"go_to_url": {"url": url}})
    if " " in url:
        return to_action({"search_engine": {"query": url, "engine": "bing"}})
    return to_action({"go_to_url": {"url": f"https://{url}"}})
