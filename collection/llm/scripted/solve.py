"""The right next move, from the page as text and the agent's own history."""

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
    Result,
    Suggest,
    Tick,
    Type,
)
from collection.llm.scripted.view import Element, View

_RESULTS_PER_PAGE = 3
_PATIENCE = 3  # The same goal this often without effect: give up.
_OPENER = re.compile(r"(Tab|Section) #\d+")


@dataclasses.dataclass(frozen=True)
class Move:
    """One decision: the goal in words, the action, and the element that the goal names."""

    goal: str
    action: dict[str, dict[str, Any]]
    target: Element | None = None


def click(element: Element) -> Move:
    return Move(f"Click '{element.label}'", {"click_element_by_index": {"index": element.index}}, element)


def type_into(element: Element, text: str) -> Move:
    action = {"input_text": {"index": element.index, "text": text}}
    return Move(f"Type '{text}' into '{element.label}'", action, element)


def select(element: Element, option: str) -> Move:
    action = {"select_dropdown_option": {"index": element.index, "text": option}}
    return Move(f"Select '{option}' in '{element.label}'", action, element)


def scroll(down: bool) -> Move:
    return Move("Scroll down" if down else "Scroll up", {"scroll": {"down": down, "num_pages": 1.0}})


def finish(success: bool) -> Move:
    text = "done" if success else "The page does not offer what was asked"
    return Move("Finish", {"done": {"text": text, "success": success}})


def next_move(view: View, plan: Plan | None, skipped: int | None = None) -> Move:
    """The first thing of `plan` that is still to do.

    Args:
      skipped: position of a part that is passed over, for a deliberate mistake.
    """
    if view.covered:
        return finish(True)
    if plan is None or view.done_only:
        return finish(False)
    for position, part in enumerate(plan):
        if position == skipped or _is_done(part, view):
            continue
        move = _move(part, view) or _look_elsewhere(view)
        return finish(False) if view.goals.count(move.goal) >= _PATIENCE else move
    return finish(False)


def _look_elsewhere(view: View) -> Move:
    return scroll(down=True) if view.pages_below >= 0.05 else finish(False)


@functools.singledispatch
def _is_done(part: Part, view: View) -> bool:
    """Whether the history or the page shows `part` as done; what ends a page's episode never is."""
    return False


@_is_done.register
def _(part: Type, view: View) -> bool:
    return sum(goal.startswith(f"Type '{part.text}' into ") for goal in view.goals) >= part.nth


@_is_done.register
def _(part: Tick, view: View) -> bool:
    boxes = [element for element in view.elements if element.is_box]
    ticked = any(box.ticked for box in boxes if box.after == part.name)
    # A wrong tick is taken back by the first part that sees it.
    return ticked and not any(box.ticked and box.after not in part.names for box in boxes)


@_is_done.register
def _(part: Pick, view: View) -> bool:
    return any(goal.startswith(f"Select '{part.option}' in ") for goal in view.goals)


@_is_done.register
def _(part: Press, view: View) -> bool:
    # Pages with several buttons go on after the first; a last one is clicked again when nothing happened.
    return part.label in ("ONE", "Search") and f"Click '{part.label}'" in view.goals


@_is_done.register
def _(part: Expand, view: View) -> bool:
    return any(goal.startswith("Click 'Section #") for goal in view.goals)


@_is_done.register
def _(part: Suggest, view: View) -> bool:
    typed = [
        number for number, goal in enumerate(view.goals) if goal.startswith(f"Type '{part.prefix}' into ")
    ]
    return bool(typed) and any(goal.startswith("Click '") for goal in view.goals[typed[0] :])


@functools.singledispatch
def _move(part: Part, view: View) -> Move | None:
    """How to do `part` on this page; None when the page does not show it."""
    raise TypeError(part)


@_move.register
def _(part: Type, view: View) -> Move | None:
    fields = [element for element in view.elements if element.is_field]
    named = [field for field in fields if part.field in _names(field)]
    target = next(iter(named or (fields if not part.field else [])), None)
    return type_into(target, part.text) if target else None


def _names(element: Element) -> set[str]:
    values = (*element.attributes.values(), element.before)
    return {word.casefold() for value in values for word in (value, *value.split())}


@_move.register
def _(part: Tick, view: View) -> Move | None:
    boxes = [element for element in view.elements if element.is_box]
    wrong = (box for box in boxes if box.ticked and box.after not in part.names)
    wanted = (box for box in boxes if box.after == part.name)
    return _click_first(wrong) or _click_first(wanted)


@_move.register
def _(part: Pick, view: View) -> Move | None:
    lists = [element for element in view.elements if element.tag == "select"]
    return select(lists[0], part.option) if lists else None


@_move.register
def _(part: Press, view: View) -> Move | None:
    exact = [element for element in view.elements if element.text == part.label]
    alike = [element for element in view.elements if _same(element, part.label)]
    return _click_first(element for element in exact + alike if part.tag in ("", element.tag))


def _same(element: Element, label: str) -> bool:
    wanted = {"x": ("x", "close")}.get(label, (label.casefold(),))
    shown = (element.text, *(element.attributes.get(name, "") for name in ("aria-label", "value", "title")))
    return any(text.casefold() in wanted for text in shown)


@_move.register
def _(part: Find, view: View) -> Move | None:
    exact = (element for element in view.elements if element.text == part.label)
    return _click_first(exact) or _click_first(_openers(view))


def _openers(view: View) -> Iterator[Element]:
    """Tabs, sections and folders that were not opened yet, in page order."""
    opened = Counter(view.goals)
    for element in view.elements:
        # A folder's name stands behind the mark that opens it; a file has no such mark.
        if _OPENER.fullmatch(element.text) or (element.tag == "span" and element.follows == "div"):
            goal = f"Click '{element.label}'"
            if not opened[goal]:
                yield element
            opened[goal] -= 1


@_move.register
def _(part: Focus, view: View) -> Move | None:
    fields = [element for element in view.elements if element.is_field]
    return click(fields[part.nth - 1]) if len(fields) >= part.nth else None


@_move.register
def _(part: Expand, view: View) -> Move | None:
    return _click_first(element for element in view.elements if _OPENER.fullmatch(element.text))


@_move.register
def _(part: Suggest, view: View) -> Move | None:
    fields = [element for element in view.elements if element.is_field]
    typed = any(goal.startswith(f"Type '{part.prefix}' into ") for goal in view.goals)
    if not typed:
        return type_into(fields[0], part.prefix) if fields else None
    return _click_first(
        element
        for element in view.elements
        if element not in fields
        and element.tag != "button"
        and element.text.startswith(part.prefix)
        and element.text.endswith(part.suffix)
    )


@_move.register
def _(part: Result, view: View) -> Move | None:
    page, place = divmod(part.nth - 1, _RESULTS_PER_PAGE)
    links = [element for element in view.elements if element.tag == "a"]
    pager = [link for link in links if link.text == str(page + 1)]
    if page and f"Click '{page + 1}'" not in view.goals:
        return _click_first(iter(pager))
    titles = [link for link in links if not _is_pager(link)]
    return click(titles[place]) if len(titles) > place else None


def _is_pager(link: Element) -> bool:
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


def _click_first(elements: Iterator[Element]) -> Move | None:
    element = next(elements, None)
    return click(element) if element else None
