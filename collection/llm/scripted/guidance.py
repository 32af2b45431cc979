"""Reflection of the scripted teacher: writes guidance from a summary, and reads warnings from guidance."""

from __future__ import annotations

import re

from collection.llm.scripted.mistakes import KINDS, MistakeKind
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
    make_plan,
)

_ADVICE: dict[MistakeKind, str] = {
    "wrong_index": (
        "The wrong element was used. Compare the label of the indexed element with what the request names "
        "before acting, and take the index from the current page."
    ),
    "premature_done": (
        "It was declared done too early. Carry out the last thing the request asks for first; finish once "
        "the page has reacted."
    ),
    "needless_scroll": (
        "There was needless scrolling. Everything is in view: skip that detour and act on the elements "
        "at once."
    ),
    "skipped_field": (
        "A part of the request was skipped. Go through the request in order and do every field or choice "
        "before the closing button."
    ),
}
_RECOGNISED: dict[MistakeKind, re.Pattern[str]] = {
    "wrong_index": re.compile(r"\bwrong (element|index|field|button|link|option|choice)", re.IGNORECASE),
    "premature_done": re.compile(
        r"\b(done|finished|declared)\b.{0,20}\b(too early|prematurely)", re.IGNORECASE
    ),
    "needless_scroll": re.compile(r"\b(needless|unnecessary|useless)(ly)? scroll", re.IGNORECASE),
    "skipped_field": re.compile(r"\b(was|were|you) (skipped|left out|omitted|missed)\b", re.IGNORECASE),
}
_FOR_NOTHING = re.compile(r"Finish|Scroll (down|up)")
_OPENS = re.compile(r"Click '((Tab|Section) #\d+|\d|<|>)'")


def warnings_in(guidance: str) -> frozenset[MistakeKind]:
    """Returns the kinds of mistake that a guidance text warns of."""
    return frozenset(kind for kind in KINDS if _RECOGNISED[kind].search(guidance))


def write_guidance(request: str, summary: str, success: bool, previous: str) -> str:
    """Returns guidance for the next round; earlier advice stays.

    Args:
      summary: one line per step: its address, thinking, goal and number of actions, separated by ` | `.
    """
    found = diagnose(make_plan(request) or (), goals_of(summary), success)
    lines = previous.splitlines()
    lines += [_ADVICE[kind] for kind in found if _ADVICE[kind] not in lines]
    if success and not lines:
        lines = ["The last round reached the goal: go the same way again."]
    return "\n".join(lines)


def goals_of(summary: str) -> list[str]:
    """Returns the goals in a summary, oldest first."""
    lines = summary.splitlines()
    return [line.rpartition("| goal: ")[2].rpartition(" | ")[0] for line in lines]


def diagnose(plan: Plan, goals: list[str], success: bool) -> list[MistakeKind]:
    """Returns the kinds of mistake that the goals of a round reveal."""
    found: list[MistakeKind] = ["needless_scroll"] if any(goal.startswith("Scroll") for goal in goals) else []
    # A success can still have had a detour.
    if success:
        return found
    missing, stray = _match(plan, [goal for goal in goals if not _FOR_NOTHING.fullmatch(goal)])
    if stray:
        found.append("wrong_index")
    elif missing and missing[-1] is plan[-1]:
        found.append("premature_done")
    elif missing:
        found.append("skipped_field")
    elif not found or plan:
        # Every part seems done, so one of the actions was on another element than its goal names.
        found.append("wrong_index")
    return found


def _match(plan: Plan, goals: list[str]) -> tuple[list[Part], list[str]]:
    """Returns the parts that no goal served, and the goals that served no part."""
    missing = []
    for part in plan:
        wanted = [serves] if not isinstance(part, Suggest) else [serves, _types_prefix]
        for test in wanted:
            hit = next((goal for goal in goals if test(part, goal)), None)
            if hit is None:
                missing.append(part)
                break
            goals = [goal for number, goal in enumerate(goals) if number != goals.index(hit)]
    opens = any(isinstance(part, Find | SearchResult) for part in plan)
    return missing, [goal for goal in goals if not (opens and _OPENS.fullmatch(goal))]


def _types_prefix(part: Part, goal: str) -> bool:
    return isinstance(part, Suggest) and goal.startswith(f"Type '{part.prefix}' into ")


def serves(part: Part, goal: str) -> bool:
    """Returns True if the wording of a goal matches `part`."""
    clicked = goal[len("Click '") : -1] if goal.startswith("Click '") else None
    match part:
        case Type():
            return goal.startswith(f"Type '{part.text}' into '") and part.field in goal.casefold()
        case Pick():
            return goal.startswith(f"Select '{part.option}' in ")
        case Press(label="x"):
            return clicked is not None and clicked.casefold() in ("x", "close")
        case Press() | Find():
            return clicked is not None and clicked.casefold() == part.label.casefold()
        case Expand():
            return clicked is not None and clicked.startswith("Section #")
        case Suggest():
            return clicked is not None and clicked.startswith(part.prefix) and clicked.endswith(part.suffix)
        case Tick() | Focus() | SearchResult():
            # The request does not contain the names of boxes, fields and results, so any click counts.
            return (
                clicked is not None
                and clicked.casefold() not in ("submit", "search")
                and not clicked.isdigit()
            )
