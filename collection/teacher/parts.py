"""Parts of a request: how its wording becomes a plan, and how each part is done, recognised and checked."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from collection.teacher.state import ParsedState, StateElement

_RESULTS_PER_PAGE = 3
_MAX_REPEATS = 3  # The agent gives up when the same goal had no effect this many times.
_OPENER = re.compile(r"(Tab|Section) #\d+")
_PAGER = ("First", "Last", "<", ">", "<<", ">>", "«", "»", "Previous", "Next")


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


class Part:
    """One thing that a request asks for.

    `tests` and `opens` belong to reflection, which knows the goals of a round but not its pages.
    """

    # A search for it may click tabs, sections and pages on the way.
    opens = False
    moves = 1

    def done(self, state: ParsedState) -> bool:
        """Returns True if the history or the page shows it as done; parts that end the episode never are."""
        return False

    def move(self, state: ParsedState) -> Move | None:
        """Returns the move that does it on this page; None if the page does not show its element."""
        raise NotImplementedError

    def serves(self, goal: str) -> bool:
        """Returns True if the wording of a goal matches it.

        By default any click does: the request does not contain the names of boxes, fields and results.
        """
        clicked = _clicked(goal)
        return clicked is not None and clicked not in ("submit", "search") and not clicked.isdigit()


Plan = tuple[Part, ...]


@dataclasses.dataclass(frozen=True)
class Type(Part):
    """Type `text` into the field called `field`, or into the only one.

    Attributes:
      nth: 1-based, among the parts of a plan that type the same text.
    """

    text: str
    field: str = ""
    nth: int = 1

    def done(self, state: ParsedState) -> bool:
        return sum(goal.startswith(f"Type '{self.text}' into ") for goal in state.goals) >= self.nth

    def move(self, state: ParsedState) -> Move | None:
        fields = [field for field in _fields(state) if not self.field or self.field in _names(field)]
        return type_into(fields[0], self.text) if fields else None

    def serves(self, goal: str) -> bool:
        return goal.startswith(f"Type '{self.text}' into '") and self.field in goal.casefold()


@dataclasses.dataclass(frozen=True)
class Tick(Part):
    """Tick exactly the boxes named `names` (one of them: also a radio button)."""

    name: str
    names: tuple[str, ...]

    def done(self, state: ParsedState) -> bool:
        ticked = any(box.ticked for box in _boxes(state) if box.after == self.name)
        # The first `Tick` part of the plan also clears boxes that must not be ticked.
        return ticked and not any(self._wrong(state))

    def move(self, state: ParsedState) -> Move | None:
        wanted = (box for box in _boxes(state) if box.after == self.name)
        return _click_first(self._wrong(state)) or _click_first(wanted)

    def _wrong(self, state: ParsedState) -> Iterator[StateElement]:
        return (box for box in _boxes(state) if box.ticked and box.after not in self.names)


@dataclasses.dataclass(frozen=True)
class Pick(Part):
    """Select an option of the page's only list."""

    option: str

    def done(self, state: ParsedState) -> bool:
        return any(map(self.serves, state.goals))

    def move(self, state: ParsedState) -> Move | None:
        lists = [element for element in state.elements if element.tag == "select"]
        return select(lists[0], self.option) if lists else None

    def serves(self, goal: str) -> bool:
        return goal.startswith(f"Select '{self.option}' in ")


@dataclasses.dataclass(frozen=True)
class Press(Part):
    """Click the element called `label`; `tag` restricts the kind of element if several have that label."""

    label: str
    tag: str = ""

    def done(self, state: ParsedState) -> bool:
        # Pages with several buttons go on after the first; the last is clicked again if nothing happened.
        return self.label in ("ONE", "Search") and f"Click '{self.label}'" in state.goals

    def move(self, state: ParsedState) -> Move | None:
        exact = [element for element in state.elements if element.text == self.label]
        alike = [element for element in state.elements if self._same(element)]
        return _click_first(element for element in exact + alike if self.tag in ("", element.tag))

    def serves(self, goal: str) -> bool:
        return _clicked(goal) in self._labels

    @property
    def _labels(self) -> tuple[str, ...]:
        return ("x", "close") if self.label == "x" else (self.label.casefold(),)

    def _same(self, element: StateElement) -> bool:
        shown = (
            element.text,
            *(element.attributes.get(name, "") for name in ("aria-label", "value", "title")),
        )
        return any(text.casefold() in self._labels for text in shown)


@dataclasses.dataclass(frozen=True)
class Find(Part):
    """Click the element called `label`; open tabs, sections or folders until it appears."""

    label: str
    opens = True

    def move(self, state: ParsedState) -> Move | None:
        exact = (element for element in state.elements if element.text == self.label)
        return _click_first(exact) or _click_first(_openers(state))

    def serves(self, goal: str) -> bool:
        return _clicked(goal) == self.label.casefold()


@dataclasses.dataclass(frozen=True)
class Focus(Part):
    """Click the `nth` field (1-based)."""

    nth: int

    def move(self, state: ParsedState) -> Move | None:
        return _click_first(_fields(state)[self.nth - 1 : self.nth])


@dataclasses.dataclass(frozen=True)
class Expand(Part):
    """Open the page's only section."""

    def done(self, state: ParsedState) -> bool:
        return any(map(self.serves, state.goals))

    def move(self, state: ParsedState) -> Move | None:
        return _click_first(element for element in state.elements if _OPENER.fullmatch(element.text))

    def serves(self, goal: str) -> bool:
        return goal.startswith("Click 'Section #")


@dataclasses.dataclass(frozen=True)
class Suggest(Part):
    """Type `prefix` and click a suggestion that also ends with `suffix`."""

    prefix: str
    suffix: str
    moves = 2

    def types(self, goal: str) -> bool:
        return goal.startswith(f"Type '{self.prefix}' into ")

    def done(self, state: ParsedState) -> bool:
        typed = [number for number, goal in enumerate(state.goals) if self.types(goal)]
        return bool(typed) and any(goal.startswith("Click '") for goal in state.goals[typed[0] :])

    def move(self, state: ParsedState) -> Move | None:
        fields = _fields(state)
        if not any(map(self.types, state.goals)):
            return type_into(fields[0], self.prefix) if fields else None
        others = (one for one in state.elements if one not in fields and one.tag != "button")
        return _click_first(one for one in others if self._fits(one.text))

    def serves(self, goal: str) -> bool:
        return goal.startswith("Click '") and self._fits(goal[len("Click '") : -1])

    def _fits(self, text: str) -> bool:
        return text.startswith(self.prefix) and text.endswith(self.suffix)


@dataclasses.dataclass(frozen=True)
class SearchResult(Part):
    """Click the `nth` search result (1-based); a page has three."""

    nth: int
    opens = True

    def move(self, state: ParsedState) -> Move | None:
        page, place = divmod(self.nth - 1, _RESULTS_PER_PAGE)
        links = [element for element in state.elements if element.tag == "a"]
        if page and f"Click '{page + 1}'" not in state.goals:
            return _click_first(link for link in links if link.text == str(page + 1))
        titles = [link for link in links if not link.text.isdigit() and link.text not in _PAGER]
        return _click_first(titles[place : place + 1])


def _clicked(goal: str) -> str | None:
    return goal[len("Click '") : -1].casefold() if goal.startswith("Click '") else None


def _fields(state: ParsedState) -> list[StateElement]:
    return [element for element in state.elements if element.is_field]


def _boxes(state: ParsedState) -> list[StateElement]:
    return [element for element in state.elements if element.is_box]


def _names(element: StateElement) -> set[str]:
    values = (*element.attributes.values(), element.before)
    return {word.casefold() for value in values for word in (value, *value.split())}


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


def _click_first(elements: Iterable[StateElement]) -> Move | None:
    element = next(iter(elements), None)
    return click(element) if element else None


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
        if position == skipped or part.done(state):
            continue
        # The threshold of the state message, whose numbers have one decimal.
        move = part.move(state) or (scroll(down=True) if state.pages_below >= 0.05 else finish(False))
        return finish(False) if state.goals.count(move.goal) >= _MAX_REPEATS else move
    return finish(False)


_SUBMIT = Press("Submit", "button")


def _select(names: str) -> Plan:
    listed = () if names == "nothing" else tuple(names.split(", "))
    return (*(Tick(name, listed) for name in listed), _SUBMIT)


# The first pattern that matches the whole request decides; its groups are the arguments.
_RULES = (
    (r'Click on the "(.+)" button\.', lambda label: (Press(label, "button"),)),
    (r'Click the button in the dialog box labeled "(.+)"\.', lambda label: (Press(label, "button"),)),
    (r'Close the dialog box by clicking the "(.+)"\.', lambda label: (Press(label, "button"),)),
    (r"Click button ONE, then click button TWO\.", lambda: (Press("ONE", "button"), Press("TWO", "button"))),
    (r"Click button ONE\.", lambda: (Press("ONE", "button"),)),
    (r"Click on (Tab #\d+)\.", lambda label: (Press(label),)),
    (r'Click on the link "(.+)"\.', lambda label: (Find(label),)),
    (r'Switch between the tabs to find and click on the link "(.+)"\.', lambda label: (Find(label),)),
    (r'Expand the sections below, to find and click on the link "(.+)"\.', lambda label: (Find(label),)),
    (
        r'Navigate through the file tree\. Find and click on the folder or file named "(.+)"\.',
        lambda label: (Find(label),),
    ),
    (r"Focus into the (\d)(?:st|nd|rd|th) input textbox\.", lambda nth: (Focus(int(nth)),)),
    (r"Focus into the textbox\.", lambda: (Focus(1),)),
    (r'Enter "(.+)" into the text field and press Submit\.', lambda text: (Type(text), _SUBMIT)),
    (
        r'Enter the password "(.+)" into both text fields and press submit\.',
        lambda text: (Type(text, "password"), Type(text, "verify", 2), _SUBMIT),
    ),
    (
        r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.',
        lambda name, word: (Type(name, "username"), Type(word, "password"), Press("Login", "button")),
    ),
    (r"Select (.+) from the list and click Submit\.", lambda option: (Pick(option), _SUBMIT)),
    (r"Select (.+) and click Submit\.", _select),
    (
        r'Use the textbox to enter "(.+)" and press "Search", then find and click the '
        r"(\d+)(?:st|nd|rd|th) search result\.",
        lambda text, nth: (Type(text), Press("Search", "button"), SearchResult(int(nth))),
    ),
    (
        r'Enter an item that starts with "(.+)" and ends with "(.+)"\.',
        lambda prefix, suffix: (Suggest(prefix, suffix), _SUBMIT),
    ),
    (r'Enter an item that starts with "(.+)"\.', lambda prefix: (Suggest(prefix, ""), _SUBMIT)),
    (r"Expand the section below and click submit\.", lambda: (Expand(), _SUBMIT)),
)


def make_plan(request: str) -> Plan | None:
    """Returns the parts of a request in order; None if its wording is unknown."""
    for pattern, make in _RULES:
        if match := re.fullmatch(pattern, request):
            return make(*match.groups())
    return None
