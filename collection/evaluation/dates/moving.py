"""Procedure that makes date-bound prompts executable again (RMSWeb, appendix, "Live-site freshness").

The paper does not describe the procedure; this one is the project's own.

1. A date counts if it has a month and a day (`writing`). A date without a year is the next such day after the
   benchmark was written, or the one nearest to a date with a year in the same prompt.
2. A prompt is date-bound if it plans something for its dates: a booking, a journey, a ticket, a visit.
   Questions about the past (papers submitted, games played, repositories created) are not date-bound and stay
   unchanged. So do months and years on their own, weekdays, "tomorrow" and "next Monday".
3. All dates of a prompt move by the same whole number of weeks: the smallest that puts the earliest date at
   least `lead_days` after today, and whose new text a reader resolves to the same days (20/12 does not become
   09/12). This keeps weekdays and intervals. A prompt whose dates are all that far ahead is not changed.
4. A prompt that names a holiday (Valentine's Day) or an event with its year moves by years instead: to the
   same weekday, at most three days from the same day of the year.
5. Each date keeps its form: order, short or long month, ordinals, zeros, with or without a year.
   A second refresh on the same day, with that day as the writing date, changes nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from datetime import date, timedelta

from collection.evaluation.dates.writing import Mention, find_mentions, resolve

LEAD_DAYS = 14
_WEEK = 7
# Number of successive weeks to try. An ambiguous numeric date (09/12) has a day above 12, which cannot be a
# month, at most two weeks later.
_CHOICES = 8
_PLANS = re.compile(
    r"\b(?:book(?:ing|ed)?|reserv\w+|hotels?|hostels?|resorts?|rooms?|stay(?:s|ing)?"
    r"|check(?:ing)?[- ](?:in|out)|flights?|flying|fly|tickets?|trips?|travel(?:l?ing)?|pick-?up|rentals?"
    r"|appointments?|schedules?|one[- ]way|round[- ]trip|leav(?:es|ing)|restaurants?"
    r"|plan(?:ning)? (?:on|to)|visit(?:ing)?)\b",
    re.IGNORECASE,
)
# Verbs at most 25 characters before a date that make it a date in the past.
_PAST = re.compile(
    r"\b(?:published|announced|submitted|released|created|updated|uploaded|played|posted|founded|born|held"
    r"|happened|was|were|since|dated|as of|issued|filed)\b[^.?!]{0,25}$",
    re.IGNORECASE,
)
_FEAST = re.compile(
    r"\b(?:valentine|christmas|new year|thanksgiving|easter|hallowe.?en|mother'?s day|father'?s day"
    r"|independence day|labor day|memorial day)",
    re.IGNORECASE,
)
_EVENT_YEAR = re.compile(r"\b[A-Z][\w'’-]+ (20\d\d)\b")


@dataclasses.dataclass(frozen=True)
class Change:
    """A date before and after the refresh, as text and as days."""

    old: str
    new: str
    before: tuple[date, ...]
    after: tuple[date, ...]


@dataclasses.dataclass(frozen=True)
class Refreshed:
    """A prompt after the procedure.

    Attributes:
      weeks: number of weeks by which all dates were moved; 0 if nothing has changed.
      yearly: the dates moved by years, because of a holiday or an event (rule 4).
      event_year: a year in an event's name, which does not move: to be checked by hand.
    """

    text: str
    weeks: int = 0
    changes: tuple[Change, ...] = ()
    yearly: bool = False
    event_year: int | None = None


def refresh(
    text: str,
    today: date,
    anchor: date,
    lead_days: int = LEAD_DAYS,
    bound: bool | None = None,
) -> Refreshed:
    """Moves the dates of a prompt into the future if it is date-bound.

    Args:
      anchor: day on which the prompt was written.
      lead_days: minimum number of days from today to the earliest date.
      bound: True if the prompt is date-bound; None applies `bound_by_rule`.
    """
    mentions = find_mentions(text)
    if not mentions or not (bound_by_rule(text) if bound is None else bound):
        return Refreshed(text)
    days = resolve(mentions, anchor)
    earliest = min(day for some in days for day in some)
    floor = today + timedelta(days=lead_days)
    if earliest >= floor:
        return Refreshed(text)
    event_year = _event_year(text, mentions)
    # Negative floor division rounds the number of weeks up.
    first = -((earliest - floor).days // _WEEK)
    choices = [(weeks, False) for weeks in range(first, first + _CHOICES)]
    if event_year or _FEAST.search(text):
        choices = [(weeks, True) for weeks in _yearly(earliest, floor)] + choices
    for weeks, yearly in choices:
        moved, changes = _moved(text, mentions, days, weeks)
        # Flattened, because a range may have become two dates.
        read = itertools.chain.from_iterable(resolve(find_mentions(moved), today))
        # Accepted only if the parser reads the new text as the intended days.
        if list(read) == [day for change in changes for day in change.after]:
            return Refreshed(moved, weeks, changes, yearly, event_year)
    moved, changes = _moved(text, mentions, days, first)
    return Refreshed(moved, first, changes, False, event_year)


def follow(text: str, prompt: Refreshed) -> Refreshed:
    """Moves the dates of a text that belongs to a refreshed prompt (a rubric) by the same weeks.

    A date without a year is the one nearest to the prompt's.
    """
    known = {(day.month, day.day) for change in prompt.changes for day in change.before}
    mentions = find_mentions(text, known) if prompt.weeks else []
    if not mentions:
        return Refreshed(text)
    near = prompt.changes[0].before[0]
    moved, changes = _moved(text, mentions, resolve(mentions, near, near), prompt.weeks)
    return Refreshed(moved, prompt.weeks, changes, prompt.yearly)


def bound_by_rule(text: str) -> bool:
    """Returns True if a prompt plans something for its dates (rule 2)."""
    if not _PLANS.search(text):
        return False
    return not any(_PAST.search(text[: mention.start]) for mention in find_mentions(text))


def _yearly(earliest: date, floor: date) -> list[int]:
    """Returns the numbers of weeks to about the same day of the next years."""
    # 29 February does not exist in most years.
    day = min(earliest.day, 28) if earliest.month == 2 else earliest.day
    years = range(floor.year, floor.year + 3)
    weeks = [round((date(year, earliest.month, day) - earliest).days / _WEEK) for year in years]
    return [number for number in weeks if earliest + timedelta(weeks=number) >= floor]


def _event_year(text: str, mentions: Sequence[Mention]) -> int | None:
    """Returns the year in a name such as "Winter Games 2026"; None if there is none."""
    for match in _EVENT_YEAR.finditer(text):
        if not any(mention.start < match.end() and match.start() < mention.end for mention in mentions):
            return int(match[1])
    return None


def _moved(
    text: str, mentions: Sequence[Mention], days: Sequence[tuple[date, ...]], weeks: int
) -> tuple[str, tuple[Change, ...]]:
    pieces, changes, end = [], [], 0
    for mention, before in zip(mentions, days, strict=True):
        after = tuple(day + timedelta(weeks=weeks) for day in before)
        change = Change(text[mention.start : mention.end], mention.write(after), before, after)
        pieces += [text[end : mention.start], change.new]
        changes.append(change)
        end = mention.end
    return "".join((*pieces, text[end:])), tuple(changes)
