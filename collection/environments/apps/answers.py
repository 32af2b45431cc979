"""Whether a text answers a question: by the value that it gives, not by how it is written."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Collection, Iterable

from dateutil import parser

# A sign, which may be apart or before a currency, and digits, perhaps in groups of three.
_SIGN = r"(?<![\w.])(minus\b|[-\u2212])?[+\s]*[$\u00a3\u20ac]?"
_DIGITS = r"(?<![\w.])(\d+(?:[,\u202f ]\d{3})*(?:\.\d+)?)(?![\w]|\.\d)"
_NUMBER = re.compile(_SIGN + _DIGITS, re.IGNORECASE)
_SENTENCE_CHARS = 300
_DEFAULTS = (datetime.datetime(2000, 1, 1), datetime.datetime(2001, 2, 2))
_ISO = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_NEGATION = re.compile(
    r"\b(?:not|no|never|neither|nor|or|but|cannot|wrong|unknown)\b|n['\u2019]t\b", re.IGNORECASE
)
_DOTTED = re.compile(r"\d+(?:\.\d+)*")
_SPACE = re.compile(r"\s+")


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text.replace("\u2019", "'")).strip().strip("\"'`*.!:; ").casefold()


Value = str | int | float | datetime.date


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a question asks for.

    Attributes:
      value: a text, a number, or a day; several as a tuple in their order, or in any order as a frozenset.
      others: values that would be wrong: a sentence that has one of them in it does not answer. Without any,
        no sentence does, only the text alone.
    """

    value: Value | tuple[Value, ...] | frozenset[Value]
    others: Collection[str] = ()

    @property
    def values(self) -> list[Value]:
        if isinstance(self.value, frozenset):
            return sorted(self.value, key=str)
        return list(self.value) if isinstance(self.value, tuple) else [self.value]

    @property
    def text(self) -> str:
        """One way to write it."""
        return ", ".join(map(str, self.values))

    def accepts(self, given: str, words: str = "") -> bool:
        """Whether an answer gives the value, alone or in a sentence.

        Args:
          words: of the task; what the answer repeats of them does not count as another value.
        """
        if len(given) > len(self.text) + _SENTENCE_CHARS:  # A page that was copied answers nothing.
            return False
        if isinstance(self.value, tuple | frozenset):
            return self._accepts_all(given, words)
        if isinstance(self.value, str):
            return self._accepts_text(given, words)
        if _NEGATION.search(given) or any(_has(_plain(given), _plain(one)) for one in self.others):
            return False
        if isinstance(self.value, datetime.date):
            return self.value in _days(given) and len(set(_days(given))) == 1
        return any(
            bool(found) and all(_close(one, self.value) for one in found)
            for found in _numbers_without(given, words)
        )

    def _accepts_all(self, given: str, words: str) -> bool:
        ordered = isinstance(self.value, tuple)
        rest, places = _plain(given), {}
        # A longer name may have a shorter one in it; blanks keep the places of the others.
        for name in sorted((one for one in self.values if isinstance(one, str)), key=len, reverse=True):
            found = re.search(rf"(?<!\w){re.escape(_plain(name))}(?!\w)", rest)
            if found is None:
                return False
            places[name] = found.start()
            rest = re.sub(found.re, " " * len(found[0]), rest)
        in_order = [places[name] for name in self.values if name in places]
        wrong = any(_plain(one) and _has(rest, _plain(one)) for one in self.others)
        if wrong or _NEGATION.search(rest) or (ordered and in_order != sorted(in_order)):
            return False
        days = [one for one in self.values if isinstance(one, datetime.date)]
        if days and sorted(set(_days(rest))) != sorted(set(days)):
            return False
        numbers = [one for one in self.values if isinstance(one, int | float)]
        arrange = list if ordered else sorted
        return not numbers or any(
            len(found) == len(numbers) and all(map(_close, arrange(found), arrange(numbers)))
            for found in _numbers_without(rest, words)
        )

    def _accepts_text(self, given: str, words: str) -> bool:
        value, text = _plain(str(self.value)), _plain(given)
        if text == value:
            return True
        if not self.others:
            return False
        if _NEGATION.search(text) and not _NEGATION.search(value):
            return False
        # A longer value may contain the right one, or be contained in it.
        rest, right = _without(text, value)
        longer = [
            one for one in map(_plain, self.others) if value in one and one != value and _has(text, one)
        ]
        wrong = [one for one in map(_plain, self.others) if one and one != value and _has(rest, one)]
        if _DOTTED.fullmatch(value):
            # Also numbers that nothing here has: of a section or a version, one is given.
            wrong += [one for one in _DOTTED.findall(rest) if not _has(words, one)]
        return right and not longer and not wrong


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _without(text: str, value: str) -> tuple[str, bool]:
    rest, count = re.subn(rf"(?<!\w){re.escape(value)}(?!\w)", " ", text)
    return rest, count > 0


def _numbers(text: str) -> list[float]:
    found = _NUMBER.findall(_ISO.sub(" ", text))
    return [float(re.sub(r"[,\u202f ]", "", number)) * (-1 if sign else 1) for sign, number in found]


def _numbers_without(text: str, words: str) -> tuple[list[float], list[float]]:
    """The numbers in a text, and those of them that other words do not have, if the text is a sentence."""
    numbers, known = _numbers(text), _numbers(words) if re.search(r"[A-Za-z]{2}", text) else []
    return numbers, [one for one in numbers if not any(_close(one, other) for other in known)]


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, abs_tol=1e-9)


def _days(text: str) -> list[datetime.date]:
    """The days in a text: as 2026-01-31, or one day with the month's name."""
    found = [datetime.date.fromisoformat(one) for one in _ISO.findall(text) if _is_day(one)]
    if not found and re.search(r"[A-Za-z]{3}", text):
        try:
            # What the text leaves out comes from the default: two of them find that out.
            read = {parser.parse(text, fuzzy=True, default=default).date() for default in _DEFAULTS}
        except (ValueError, OverflowError):
            return []
        found = list(read) if len(read) == 1 else []
    return found


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def other_values(rows: Iterable[str], value: str) -> tuple[str, ...]:
    """The values of a column but one, in order."""
    return tuple(sorted({one for one in rows if one and one != value}))
