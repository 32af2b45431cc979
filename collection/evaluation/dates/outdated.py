"""Finds prompts that no moved date can repair, and words that refer to the day on which they are read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import date

from collection.evaluation.dates.holidays import HOLIDAYS
from collection.evaluation.dates.writing import MONTHS, Mention, find_mentions

_PLANNED = re.compile(
    r"\b(?:book|reserve|buy\w*|purchase|get|ticket\w*|attend|upcoming|hotel|flight)\b", re.IGNORECASE
)
# A name with its year ("Winter Games 2026"), or an event to come in a year ("upcoming ... in 2026").
_NAMED_YEAR = re.compile(r"\b(?P<word>[A-Z][\w'’-]*) (?P<year>20\d\d)\b(?! (?:[A-Z]|model|edition))")
_COMING_YEAR = re.compile(r"\b(?:upcoming|next|coming)\b[^.?!]{0,60}? (?:in|of|for) (?P<year>20\d\d)\b")
_MONTH_YEAR = re.compile(rf"\b(?P<month>{'|'.join(MONTHS)}),? (?P<year>20\d\d)\b")
_NO_NAMES = frozenset((*MONTHS, "In", "Since", "From", "By", "Until", "For", "The", "Of", "And"))

# Days up to which "this Sunday" can be a holiday.
_SOON = 7
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday"
    rf"|(?:this|next|last|past|upcoming|coming|following)\s+(?:available\s+|few\s+|two\s+|three\s+)?"
    rf"(?:{_WEEKDAY}|day|week|weekend|weeknight|month|year)s?"
    rf"|(?:on|for|by)\s+{_WEEKDAY}|in\s+a\s+(?:week|month))\b",
    re.IGNORECASE,
)


def event_year(text: str, mentions: Sequence[Mention]) -> int | None:
    """Returns the year in the name of an event, such as "Winter Games 2026"; None if there is none.

    A name in a question about the past ("CVPR 2023") is one, too: callers check that a prompt plans for it.
    """
    for pattern in (_NAMED_YEAR, _COMING_YEAR):
        for match in pattern.finditer(text):
            if not _inside(match, mentions) and match.groupdict().get("word") not in _NO_NAMES:
                return int(match["year"])
    return None


def _inside(match: re.Match[str], mentions: Sequence[Mention]) -> bool:
    return any(mention.start < match.end() and match.start() < mention.end for mention in mentions)


def outdated(text: str, rule: str | None, today: date) -> str:
    """Returns why a prompt that plans something cannot be carried out any more; "" if nothing shows that.

    Args:
      rule: the rule of the date refresh that applied to it; None if it has no date.
    """
    if not _PLANNED.search(text):
        return ""
    mentions = find_mentions(text)
    year = event_year(text, mentions)
    if year and rule == "event":
        return f"names an event of {year}, whose days have passed"
    if year and rule is None and year <= today.year:
        return f"names an event of {year}" + (", which may be over" if year == today.year else "")
    for match in _MONTH_YEAR.finditer(text):
        if not _inside(match, mentions) and (int(match["year"]), MONTHS.index(match["month"]) + 1) < (
            today.year,
            today.month,
        ):
            return f"names {match[0]}, which has passed"
    if rule is None and (words := relative_words(text)):
        for holiday in HOLIDAYS:
            if holiday.words.search(text):
                day = next(day for year in itertools.count(today.year) if (day := holiday.day(year)) >= today)
                if (day - today).days > _SOON:
                    return f'says "{words[0]}", and {holiday.name} is on {day}'
    return ""


def relative_words(text: str) -> list[str]:
    """Returns words that refer to the day on which a text is read ("next Wednesday"), in order."""
    return [match[0] for match in _RELATIVE.finditer(text)]
