"""Choice of the correct next move from the page text and the agent's own history."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from collection.llm.scripted.plan import (
    Expand,
    Find,
    Focus,
    Part,
    Pick,
    Plan,
    Press,
    SearchResult,
    Suggest,
    Tick,
    Type,
)
from collection.llm.scripted.state import ParsedState, StateElement

_RESULTS_PER_PAGE = 3
_MAX_REPEATS = 3  # The agent gives up when the same goal had no effect this many times.
_OPENER = re.compile(r"(Tab|Section) #\d+")


@dataclasses.dataclass(frozen=True)
class Move:
    """One decision: the goal in words, the action, and the target element."""

    goal: str
    action: dict[str, dict[str, Any]]
    target: StateElement | None = None


def click(element: StateElement) -> Move:
    return Move(f"Click '{element.label}'", {"click_element_by_index": {"index": element.index}}, element)


def type_into(element: StateElement, text: str) -> Move:
    action = {"input_text": {"index": element.index, "text": text}}
    return Move(f"Type '{text}' into '{element.label}'", action, element)


def select(element: StateElement, option: str) -> Move:
    action = {"select_dropdown_option": {"index": element.index, "text": option}}
    return Move(f"Select '{option}' in '{element.label}'", action, element)


def scroll(down: bool) -> Move:
    return Move("Scroll down" if down else "Scroll up", {"scroll": {"down": down, "num_pages": 1.0}})


def finish(success: bool) -> Move:
    text = "done" if success else "The page does not offer what was asked"
    return Move("Finish", {"done": {"text": text, "success": success}})


def next_move(state: ParsedState, plan: Plan | None, skipped: int | None = None) -> Move:
    """Returns the move for the first part of `plan` that is not done.

    Args:
      skipped: position of a part that is passed over, for a deliberate mistake.
    """
    if state.covered:
        return finish(True)
    if plan is None or state.done_only:
        return finish(False)
    for position, part in enumerate(plan):
        if position == skipped or _is_done(part, state):
            continue
        move = _move(part, state) or _scroll_or_finish(state)
        return finish(False) if state.goals.count(move.goal) >= _MAX_REPEATS else move
    return finish(False)


def _scroll_or_finish(state: ParsedState) -> Move:
    # The threshold of the state message, whose numbers have one decimal.
    return scroll(down=True) if state.pages_below >= 0.05 else finish(False)


@functools.singledispatch
def _is_done(part: Part, state: ParsedState) -> bool:
    """Returns True if the history or the page shows `part` as done; parts that end the episode never are."""
    return False


@_is_done.register
def _(part: Type, state: ParsedState) -> bool:
    return sum(goal.startswith(f"Type '{part.text}' into ") for goal in state.goals) >= part.nth


@_is_done.register
def _(part: Tick, state: ParsedState) -> bool:
    boxes = [element for element in state.elements if element.is_box]
    ticked = any(box.ticked for box in boxes if box.after == part.name)
    # The first `Tick` part of the plan also clears boxes that must not be ticked.
    return ticked and not any(box.ticked and box.after not in part.names for box in boxes)


@_is_done.register
def _(part: Pick, state: ParsedState) -> bool:
    return any(goal.startswith(f"Select '{part.option}' in ") for goal in state.goals)


@_is_done.register
def _(part: Press, state: ParsedState) -> bool:
    # Pages with several buttons continue after the first; the last one is clicked again if nothing happened.
    return part.label in ("ONE", "Search") and f"Click '{part.label}'" in state.goals


@_is_done.register
def _(part: Expand, state: ParsedState) -> bool:
    return any(goal.startswith("Click 'Section #") for goal in state.goals)


@_is_done.register
def _(part: Suggest, state: ParsedState) -> bool:
    typed = [
        number for number, goal in enumerate(state.goals) if goal.startswith(f"Type '{part.prefix}' into ")
    ]
    return bool(typed) and any(goal.startswith("Click '") for goal in state.goals[typed[0] :])


@functools.singledispatch
def _move(part: Part, state: ParsedState) -> Move | None:
    """Returns the move that does `part` on this page; None if the page does not show its element."""
    raise TypeError(part)


@_move.register
def _(part: Type, state: ParsedState) -> Move | None:
    fields = [element for element in state.elements if element.is_field]
    named = [field for field in fields if part.field in _names(field)]
    target = next(iter(named or (fields if not part.field else [])), None)
    return type_into(target, part.text) if target else None


def _names(element: StateElement) -> set[str]:
    values = (*element.attributes.values(), element.before)
    return {word.casefold() for value in values for word in (value, *value.split())}


@_move.register
def _(part: Tick, state: ParsedState) -> Move | None:
    boxes = [element for element in state.elements if element.is_box]
    wrong = (box for box in boxes if box.ticked and box.after not in part.names)
    wanted = (box for box in boxes if box.after == part.name)
    return _click_first(wrong) or _click_first(wanted)


@_move.register
def _(part: Pick, state: ParsedState) -> Move | None:
    lists = [element for element in state.elements if element.tag == "select"]
    return select(lists[0], part.option) if lists else None


@_move.register
def _(part: Press, state: ParsedState) -> Move | None:
    exact = [element for element in state.elements if element.text == part.label]
    alike = [element for element in state.elements if _same(element, part.label)]
    return _click_first(element for element in exact + alike if part.tag in ("", element.tag))


def _same(element: StateElement, label: str) -> bool:
    wanted = {"x": ("x", "close")}.get(label, (label.casefold(),))
    shown = (element.text, *(element.attributes.get(name, "") for name in ("aria-label", "value", "title")))
    return any(text.casefold() in wanted for text in shown)


@_move.register
def _(part: Find, state: ParsedState) -> Move | None:
    exact = (element for element in state.elements if element.text == part.label)
    return _click_first(exact) or _click_first(_openers(state))


def _openers(state: ParsedState) -> Iterator[StateElement]:
    """Yields tabs, sections and folders that are not open yet, in page order."""
    opened = Counter(state.goals)
    for element in state.elements:
        # A folder's name follows the icon that opens it; a file has no such icon.
        if _OPENER.fullmatch(element.text) or (element.tag == "span" and element.follows == "div"):
            goal = f"Click '{element.label}'"
            if not opened[goal]:
                yield element
            opened[goal] -= 1


@_move.register
def _(part: Focus, state: ParsedState) -> Move | None:
    fields = [element for element in state.elements if element.is_field]
    return click(fields[part.nth - 1]) if len(fields) >= part.nth else None


@_move.register
def _(part: Expand, state: ParsedState) -> Move | None:
    return _click_first(element for element in state.elements if _OPENER.fullmatch(element.text))


@_move.register
def _(part: Suggest, state: ParsedState) -> Move | None:
    fields = [element for element in state.elements if element.is_field]
    typed = any(goal.startswith(f"Type '{part.prefix}' into ") for goal in state.goals)
    if not typed:
        return type_into(fields[0], part.prefix) if fields else None
    return _click_first(
        element
        for element in state.elements
        if element not in fields
        and element.tag != "button"
        and element.text.startswith(part.prefix)
        and element.text.endswith(part.suffix)
    )


@_move.register
def _(part: SearchResult, state: ParsedState) -> Move | None:
    page, place = divmod(part.nth - 1, _RESULTS_PER_PAGE)
    links = [element for element in state.elements if element.tag == "a"]
    pager = [link for link in links if link.text == str(page + 1)]
    if page and f"Click '{page + 1}'" not in state.goals:
        return _click_first(iter(pager))
    titles = [link for link in links if not _is_pager(link)]
    return click(titles[place]) if len(titles) > place else None


def _is_pager(link: StateElement) -> bool:
    return link.text.isdigit() or link.text in (
        "First",
        "Last",
        "<",
        ">",
        "<<",
        ">>",
        "«",
        "»",
        "Previous",
        "Next",
    )


def _click_first(elements: Iterator[StateElement]) -> Move | None:
    element = next(elements, None)
    return click(element) if element else None
