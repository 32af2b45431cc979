"""Words and numbers of the planted sites."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple


class Theme(NamedTuple):
    """A site where things are found, chosen and booked.

    Attributes:
      attribute: name, unit, lowest and highest value of what constraints ask for at least.
      finder, sorter, option: a label and its values.
      act, cart, finish, confirmed: how one thing is taken, where it is then, how that is made final.
    """

    host: str
    name: str
    category: str
    navigation: tuple[str, ...]
    noun: str
    names: tuple[str, ...]
    price: tuple[str, int, int]
    attribute: tuple[str, str, int, int]
    finder: tuple[str, tuple[str, ...]]
    sorter: tuple[str, tuple[str, ...]]
    option: tuple[str, tuple[str, ...]]
    act: str
    cart: str
    finish: str
    confirmed: str
    day: str
    words: tuple[str, ...]


class Records(NamedTuple):
    """A site whose documents answer questions.

    Attributes:
      facts: label, unit, lowest and highest value; the last one is on the document's second tab.
      blog, mirror: hosts of somebody else's summary, and of the same document elsewhere.
    """

    host: str
    name: str
    category: str
    navigation: tuple[str, ...]
    sections: tuple[str, ...]
    section: str
    document: str
    others: tuple[str, ...]
    facts: tuple[tuple[str, str, int, int], ...]
    blog: str
    mirror: str
    words: tuple[str, ...]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


_DATA = json.loads(pathlib.Path(__file__).with_name("themes.json").read_text(encoding="utf-8"))
THEMES = tuple(
    Theme(**{name: _tuples(value) for name, value in given.items()}) for given in _DATA["catalogues"]
)
RECORDS = tuple(
    Records(**{name: _tuples(value) for name, value in given.items()}) for given in _DATA["records"]
)
