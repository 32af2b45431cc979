"""The procedure that makes date-bound prompts executable again (RMSWeb, appendix, "Live-site freshness").

1. A day counts when month and day are written (`writing`). A day without a year is the next such day after
   the benchmark was written, or the one nearest to a day of the same prompt that has a year.
2. A prompt is bound to its days when it plans something for them: a booking, a journey, a ticket, a visit.
   What asks about a day that has been (papers submitted, games played, repositories created) is not, and
   stays. So do months and years by themselves, weekdays, "tomorrow" and "next Monday".
3. All days of a prompt move by one whole number of weeks, the smallest that takes the earliest at least
   `lead_days` after today and that a reader of the new text arrives at as well: 20/12 does not become 09/12.
   Weekdays and the days between them are therefore kept. A prompt whose days all lie ahead so far is left as
   it is.
4. A prompt that names a feast (Valentine's Day) or an event by its year moves by years instead: to the same
   weekday at most three days from the same day of the year.
5. Each date is written as it was: order, short or long month, ordinals, zeros, with or without a year.
   Refreshing the outcome on the same day changes nothing, if it is taken as written on that day.
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
# Weeks that are tried one after another; a day above 12 comes within two of them.
_CHOICES = 8
_PLANS = re.compile(
    r"\b(?:book(?:ing|ed)?|reserv\w+|hotels?|hostels?|resorts?|rooms?|stay(?:s|ing)?"
    r"|check(?:ing)?[- ](?:in|out)|flights?|flying|fly|tickets?|trips?|travel(?:l?ing)?|pick-?up|rentals?"
    r"|appointments?|schedules?|one[- ]way|round[- ]trip|leav(?:es|ing)|restaurants?"
    r"|plan(?:ning)? (?:on|to)|visit(?:ing)?)\b",
    re.IGNORECASE,
)
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
    """A date as it was written and as it is now, with the days that both mean."""

    old: str
    new: str
    before: tuple[date, ...]
    after: tuple[date, ...]


@dataclasses.dataclass(frozen=True)
class Refreshed:
    """A prompt after the procedure.

    Attributes:
      weeks: by which all days were moved; 0: nothing has changed.
      yearly: by years, because of a feast or an event (rule 4).
      event_year: a year of its own that the prompt names, which does not move: to be looked at.
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
    """The prompt with its days in the future, if it is bound to any.

    Args:
      anchor: when the prompt was written.
      lead_days: from today to the earliest day, at least.
      bound: whether it is bound to the days that it names; None: as `bound_by_rule` says.
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
    first = -((earliest - floor).days // _WEEK)
    choices = [(weeks, False) for weeks in range(first, first + _CHOICES)]
    if event_year or _FEAST.search(text):
        choices = [(weeks, True) for weeks in _yearly(earliest, floor)] + choices
    for weeks, yearly in choices:
        moved, changes = _moved(text, mentions, days, weeks)
        # A range may have become two dates.
        read = itertools.chain.from_iterable(resolve(find_mentions(moved), today))
        if list(read) == [day for change in changes for day in change.after]:
            return Refreshed(moved, weeks, changes, yearly, event_year)
    moved, changes = _moved(text, mentions, days, first)
    return Refreshed(moved, first, changes, False, event_year)


def follow(text: str, prompt: Refreshed) -> Refreshed:
    """What goes with a refreshed prompt (a rubric), moved by the same weeks.

    A day without a year is the one nearest to the prompt's.
    """
    known = {(day.month, day.day) for change in prompt.changes for day in change.before}
    mentions = find_mentions(text, known) if prompt.weeks else []
    if not mentions:
        return Refreshed(text)
    near = prompt.changes[0].before[0]
    moved, changes = _moved(text, mentions, resolve(mentions, near, near), prompt.weeks)
    return Refreshed(moved, prompt.weeks, changes, prompt.yearly)


def bound_by_rule(text: str) -> bool:
    """Whether a prompt plans something for its days (rule 2)."""
    if not _PLANS.search(text):
        return False
    return not any(_PAST.search(text[: mention.start]) for mention in find_mentions(text))


def _yearly(earliest: date, floor: date) -> list[int]:
    """Weeks to about the same day of the next years."""
    day = min(earliest.day, 28) if earliest.month == 2 else earliest.day
    years = range(floor.year, floor.year + 3)
    weeks = [round((date(year, earliest.month, day) - earliest).days / _WEEK) for year in years]
    return [number for number in weeks if earliest + timedelta(weeks=number) >= floor]


def _event_year(text: str, mentions: Sequence[Mention]) -> int | None:
    """The year in a name such as "Winter Games 2026"; None where there is none."""
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
