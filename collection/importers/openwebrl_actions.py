"""Maps tool calls of OpenWebRL's agent to our actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from collection.importers.common import UnmappedError, to_action
from collection.importers.coordinates import Screen, chord, key_sequence, press, scrolled, typed, wait
from rmsweb_jax.actions import Action

_PLANE = 1000
# What `scroll` moves without an amount, and the most that it moves, in heights of the window.
_SCROLL, _MOST = 0.5, 1.0
_MOST_PRESSES = 8


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


def is_end(call: Call) -> bool:
    return call.name == "done"


def map_calls(calls: Sequence[Call], screen: Screen, tab: str) -> list[Action]:
    """Maps the calls of one reply.

    Args:
      tab: id of the current tab; empty if it is unknown.

    Raises:
      UnmappedError: one has no counterpart (a drag, a question to the user, ...).
    """
    return [action for call in calls for action in _map(call, screen, tab)]


def _map(call: Call, screen: Screen, tab: str) -> list[Action]:
    name, given = call.name, call.arguments
    if name == "click":
        if given.get("clicks", 1) != 1 or given.get("button", "left") != "left":
            raise UnmappedError(name, "not one click with the left button")
        return [screen.point(given.get("point_2d"), name, _PLANE, _PLANE)]
    if name == "write":
        return typed(given.get("message"), clear=True, enter=False)
    if name == "scroll":
        return [_scroll(given, name)]
    if name == "press_keys":
        return _press(given, name)
    if name == "wait":
        return [wait(given.get("seconds", 3), name)]
    if name == "goto_url":
        return [to_action({"go_to_url": {"url": given.get("url")}})]
    if name == "go_back":
        return [to_action({"go_back": {}})]
    if name == "new_tab":
        return [to_action({"go_to_url": {"url": "about:blank", "new_tab": True}})]
    if name == "switch_tab":
        return [to_action({"switch_tab": {"page_id": given.get("tab_index")}})]
    if name == "close_tab" and tab:
        return [to_action({"close_tab": {"tab_id": tab}})]
    if name == "done":
        return [to_action({"done": {"text": given.get("response", "")}})]
    raise UnmappedError(name, "our action space has no such action")


def _scroll(given: dict[str, Any], name: str) -> Action:
    if given.get("point_2d"):
        raise UnmappedError(name, "a scroll at a point names no element")
    direction, amount = given.get("direction", "down"), given.get("amount", _SCROLL)
    if direction not in ("up", "down"):
        raise UnmappedError(name, "sideways")
    if not isinstance(amount, int | float) or isinstance(amount, bool):
        raise UnmappedError(name, f"not a number: {str(amount)[:40]!r}")
    pages = min(max(float(amount), 0.0), _MOST)
    return scrolled(pages if direction == "down" else -pages, name)


def _press(given: dict[str, Any], name: str) -> list[Action]:
    keys, presses = given.get("keys"), given.get("presses", 1)
    if not given.get("is_hotkey"):
        return key_sequence(keys, presses, name)
    times = presses if isinstance(presses, int) and 0 < presses <= _MOST_PRESSES else 1
    return [press(chord(keys, name))] * times
