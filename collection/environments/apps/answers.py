"""Whether a text answers a question: by the value that it gives, not by how it is written."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Collection, Iterable

from dateutil import parser

_NUMBER = re.compile(r"(?<![\w.])[-+\u2212]?\d+(?:[,\u202f ]\d{3})*(?:\.\d+)?(?![\w]|\.\d)")
_DEFAULTS = (datetime.datetime(2000, 1, 1), datetime.datetime(2001, 2, 2))
_ISO = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_NEGATION = re.compile(r"\b(?:not|no|never|neither|nor|isn't|wasn't|or)\b", re.IGNORECASE)
_SPACE = re.compile(r"\s+")


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text.replace("\u2019", "'")).strip().strip("\"'`*.!:; ").casefold()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a question asks for.

    Attributes:
      value: a text, a number, or a day.
      others: values that would be wrong: a sentence that has one of them in it does not answer.
    """

    value: str | int | float | datetime.date
    others: Collection[str] = ()

    def accepts(self, given: str, words: str = "") -> bool:
        """Whether an answer gives the value, alone or in a sentence.

        Args:
          words: of the task; what the answer repeats of them does not count as another value.
        """
        if isinstance(self.value, str):
            return self._accepts_text(given)
        if _NEGATION.search(given):
            return False
        if isinstance(self.value, datetime.date):
            return self.value in _days(given) and len(set(_days(given))) == 1
        numbers = _numbers(given)
        known = _numbers(words)
        rest = [one for one in numbers if not any(math.isclose(one, other) for other in known)]
        return any(
            bool(found) and all(math.isclose(one, self.value, abs_tol=1e-9) for one in found)
            for found in (numbers, rest)
        )

    def _accepts_text(self, given: str) -> bool:
        value, text = _plain(str(self.value)), _plain(given)
        if text == value:
            return True
        if _NEGATION.search(text) and not _NEGATION.search(value):
            return False
        # A longer value may contain the right one, or be contained in it.
        rest, right = _without(text, value)
        longer = [
            one for one in map(_plain, self.others) if value in one and one != value and _has(text, one)
        ]
        wrong = [one for one in map(_plain, self.others) if one and one != value and _has(rest, one)]
        return right and not longer and not wrong


def _has(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _without(text: str, value: str) -> tuple[str, bool]:
    rest, count = re.subn(rf"(?<!\w){re.escape(value)}(?!\w)", " ", text)
    return rest, count > 0


def _numbers(text: str) -> list[float]:
    return [
        float(re.sub(r"[,\u202f ]", "", one).replace("\u2212", "-"))
        for one in _NUMBER.findall(_ISO.sub(" ", text))
    ]


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
