"""Plans: turns the wording of a MiniWoB++ request into an ordered list of parts to do."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Type:
    """Type `text` into the field called `field`, or into the only one.

    Attributes:
      nth: 1-based, among the parts of a plan that type the same text.
    """

    text: str
    field: str = ""
    nth: int = 1


@dataclasses.dataclass(frozen=True)
class Tick:
    """Tick exactly the boxes named `names` (one of them: also a radio button)."""

    name: str
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Pick:
    """Select an option of the page's only list."""

    option: str


@dataclasses.dataclass(frozen=True)
class Press:
    """Click the element called `label`; `tag` restricts the kind of element if several have that label."""

    label: str
    tag: str = ""


@dataclasses.dataclass(frozen=True)
class Find:
    """Click the element called `label`; open tabs, sections or folders until it appears."""

    label: str


@dataclasses.dataclass(frozen=True)
class Focus:
    """Click the `nth` field (1-based)."""

    nth: int


@dataclasses.dataclass(frozen=True)
class Expand:
    """Open the page's only section."""


@dataclasses.dataclass(frozen=True)
class Suggest:
    """Type `prefix` and click a suggestion that also ends with `suffix`."""

    prefix: str
    suffix: str


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """Click the `nth` search result (1-based); a page has three."""

    nth: int


Part = Type | Tick | Pick | Press | Find | Focus | Expand | Suggest | SearchResult
Plan = tuple[Part, ...]

_SUBMIT = Press("Submit", "button")


def _quoted(match: re.Match[str]) -> Plan:
    return (Find(match[1]),)


def _select(match: re.Match[str]) -> Plan:
    names = () if match[1] == "nothing" else tuple(match[1].split(", "))
    return (*(Tick(name, names) for name in names), _SUBMIT)


# The first pattern that matches the whole request decides.
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Plan]], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (r'Click on the "(.+)" button\.', lambda m: (Press(m[1], "button"),)),
        (r'Click the button in the dialog box labeled "(.+)"\.', lambda m: (Press(m[1], "button"),)),
        (r'Close the dialog box by clicking the "(.+)"\.', lambda m: (Press(m[1], "button"),)),
        (
            r"Click button ONE, then click button TWO\.",
            lambda m: (Press("ONE", "button"), Press("TWO", "button")),
        ),
        (r"Click button ONE\.", lambda m: (Press("ONE", "button"),)),
        (r"Click on (Tab #\d+)\.", lambda m: (Press(m[1]),)),
        (r'Click on the link "(.+)"\.', _quoted),
        (r'Switch between the tabs to find and click on the link "(.+)"\.', _quoted),
        (r'Expand the sections below, to find and click on the link "(.+)"\.', _quoted),
        (r'Navigate through the file tree\. Find and click on the folder or file named "(.+)"\.', _quoted),
        (r"Focus into the (\d)(?:st|nd|rd|th) input textbox\.", lambda m: (Focus(int(m[1])),)),
        (r"Focus into the textbox\.", lambda m: (Focus(1),)),
        (r'Enter "(.+)" into the text field and press Submit\.', lambda m: (Type(m[1]), _SUBMIT)),
        (
            r'Enter the password "(.+)" into both text fields and press submit\.',
            lambda m: (Type(m[1], "password"), Type(m[1], "verify", 2), _SUBMIT),
        ),
        (
            r'Enter the username "(.+)" and the password "(.+)" into the text fields and press login\.',
            lambda m: (Type(m[1], "username"), Type(m[2], "password"), Press("Login", "button")),
        ),
        (r"Select (.+) from the list and click Submit\.", lambda m: (Pick(m[1]), _SUBMIT)),
        (r"Select (.+) and click Submit\.", _select),
        (
            r'Use the textbox to enter "(.+)" and press "Search", then find and click the '
            r"(\d+)(?:st|nd|rd|th) search result\.",
            lambda m: (Type(m[1]), Press("Search", "button"), SearchResult(int(m[2]))),
        ),
        (
            r'Enter an item that starts with "(.+)" and ends with "(.+)"\.',
            lambda m: (Suggest(m[1], m[2]), _SUBMIT),
        ),
        (r'Enter an item that starts with "(.+)"\.', lambda m: (Suggest(m[1], ""), _SUBMIT)),
        (r"Expand the section below and click submit\.", lambda m: (Expand(), _SUBMIT)),
    )
)


def make_plan(request: str) -> Plan | None:
    """Returns the parts of a request in order; None if its wording is unknown."""
    for pattern, make in _RULES:
        match = pattern.fullmatch(request)
        if match:
            return make(match)
    return None
