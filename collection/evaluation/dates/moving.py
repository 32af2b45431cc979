"""Rules that move the dates of a prompt into the future and keep what the task means.

RMSWeb (appendix, "Live-site freshness") refreshes date-bound tasks but does not describe how; these rules are
the project's own. A date counts if it has a month and a day (`writing`). Months and years on their own,
weekdays and "next Monday" stay as they are (`outdated` lists those that no longer work).

A prompt is date-bound if it plans something for its dates: a booking, a journey, a ticket, a visit. Questions
about the past (papers submitted, games played) stay unchanged. All dates of a prompt move together by the
same number of days, by the first rule that fits:

1. `event`: the prompt names an event with its year, which fixes its dates. They stay, and once they have
   passed, the prompt is outdated (until then its rule is `ahead`).
2. `today`: "today (February 17)" becomes the day of the run, "tomorrow" the day after it.
3. `this week`: dates of "this weekend" become those of the coming days, on the same weekdays.
4. `ahead`: dates that are far enough ahead stay.
5. `holiday`: dates around a holiday keep their distance from it, so that the holiday stays on its day. The
   text names the holiday, or a date is a holiday that has the same day everywhere (`holidays`).
6. `season`: the text names a season or a festival, or its dates were more than `SOON_DAYS` ahead when it was
   written, so they were chosen for the time of the year. They move by whole weeks to the same time of the
   year, at most `HORIZON_DAYS` ahead; if a season or a festival is named, in their month if possible.
7. `lead`: other dates, and those that would miss their time of the year by more than `OFF_SEASON_DAYS`, are
   as far ahead as they were when the prompt was written: whole weeks, at least `lead_days` ahead.

Rules 3, 6 and 7 keep weekdays; 2 and 5 rewrite a weekday that is written next to a date. All keep intervals
and order. Each date keeps its form: order, short or long month, ordinals, zeros, with or without a year. A
move is accepted only if the parser reads the new text as the intended days (20/12 does not become 09/12). A
second refresh on the same day changes nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Literal

from collection.evaluation.dates.holidays import find_holiday
from collection.evaluation.dates.outdated import event_year
from collection.evaluation.dates.writing import Mention, find_mentions, resolve

Rule = Literal["past", "event", "today", "this week", "ahead", "holiday", "season", "lead", "override"]

# A date must not pass while a benchmark is played, which takes a day or two.
LEAD_DAYS = 7
# Up to here, dates of the benchmarks are about "soon"; a gap in their lead times follows.
SOON_DAYS = 45
# Flights are sold about eleven months ahead.
HORIZON_DAYS = 330
# Days by which dates may miss their time of the year: they have just passed, or lie beyond the horizon.
OFF_SEASON_DAYS = 10
_WEEK, _YEAR = 7, 365
# Number of weeks, or years, to try at least. An ambiguous numeric date (09/12) has a day above 12, which
# cannot be a month, at most two weeks later.
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
_THIS_WEEK = re.compile(r"\b(?:this|the coming|the upcoming)\s+week(?:end)?\b", re.IGNORECASE)
_SEASON = re.compile(
    r"\b(?:spring break|(?:in|this|next|of) (?:the )?(?:spring|summer|autumn|fall|winter)|summer|winter"
    r"|\w*fest(?:ival)?s?|carnival|parade|marathon)\b"
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
# Right before a date.
_DAY_WORD = re.compile(
    rf"\b(today|tonight|tomorrow)\b\W{{0,3}}(?:on\s+)?(?:{_WEEKDAY},?\s+)?$", re.IGNORECASE
)
_WEEKDAY_BEFORE = re.compile(rf"\b{_WEEKDAY},?\s+(?:the\s+)?$")
_WEEKDAY_AFTER = re.compile(rf"^\s*[,(]\s*{_WEEKDAY}\b")


@dataclasses.dataclass(frozen=True)
class Change:
    """A date before and after the refresh, as text and as days."""

    old: str
    new: str
    before: tuple[date, ...]
    after: tuple[date, ...]


@dataclasses.dataclass(frozen=True)
class Refreshed:
    """A prompt after the refresh.

    Attributes:
      rule: None if the prompt has no date; `past` if it is not date-bound.
      days: number of days by which all dates were moved; 0 if nothing has changed.
      lead: days from writing to the earliest date, and from the day of the refresh to the new one.
    """

    text: str
    rule: Rule | None = None
    days: int = 0
    changes: tuple[Change, ...] = ()
    lead: tuple[int, int] | None = None


def refresh(
    text: str,
    today: date,
    written: date,
    lead_days: int = LEAD_DAYS,
    bound: bool | None = None,
) -> Refreshed:
    """Moves the dates of a prompt into the future if it is date-bound.

    Args:
      written: day on which the prompt was written.
      lead_days: minimum number of days from today to the earliest date, for dates that are not relative.
      bound: True if the prompt is date-bound; None applies `bound_by_rule`.
    """
    mentions = find_mentions(text)
    if not mentions:
        return Refreshed(text)
    if not (bound_by_rule(text) if bound is None else bound):
        return Refreshed(text, "past")
    year = event_year(text, mentions)
    days = resolve(mentions, written, date(year, 7, 1) if year else None)
    earliest = min(itertools.chain.from_iterable(days))
    if year:
        return Refreshed(text, "event" if earliest < today else "ahead")
    rule, shifts = _choose(text, mentions, days, today, written, lead_days)
    moves = ((shift, *_moved(text, mentions, days, shift)) for shift in shifts)
    for shift, moved, changes in moves:
        # Flattened, because a range may have become two dates.
        read = itertools.chain.from_iterable(resolve(find_mentions(moved), today))
        # Accepted only if the parser reads the new text as the intended days.
        if shift == 0 or list(read) == [day for change in changes for day in change.after]:
            break
    else:
        shift = shifts[0]
        moved, changes = _moved(text, mentions, days, shift)
    if shift == 0:
        return Refreshed(text, "ahead")
    lead = (earliest - written).days, (earliest + timedelta(days=shift) - today).days
    return Refreshed(moved, rule, shift, changes, lead)


def follow(text: str, prompt: Refreshed) -> Refreshed:
    """Moves the dates of a text that belongs to a refreshed prompt (a rubric) by the same number of days.

    A date without a year is the one nearest to the prompt's.
    """
    known = {(day.month, day.day) for change in prompt.changes for day in change.before}
    mentions = find_mentions(text, known) if prompt.days else []
    if not mentions:
        return Refreshed(text)
    near = prompt.changes[0].before[0]
    moved, changes = _moved(text, mentions, resolve(mentions, near, near), prompt.days)
    return Refreshed(moved, prompt.rule, prompt.days, changes)


def bound_by_rule(text: str) -> bool:
    """Returns True if a prompt plans something for its dates."""
    if not _PLANS.search(text):
        return False
    return not any(_PAST.search(text[: mention.start]) for mention in find_mentions(text))


def inverted(days: Sequence[tuple[date, ...]]) -> bool:
    """Returns True if a range ends before it begins, or a return comes before the departure.

    Some published prompts are like this, and their rubric gives points for saying so: they stay as they are.
    """
    flat = list(itertools.chain.from_iterable(days))
    pairs = (*(range_ for range_ in days if len(range_) == 2), *((flat,) if len(flat) == 2 else ()))
    return any(last < first for first, last in pairs)


def _choose(
    text: str,
    mentions: Sequence[Mention],
    days: Sequence[tuple[date, ...]],
    today: date,
    written: date,
    lead_days: int,
) -> tuple[Rule, list[int]]:
    """Returns the rule, and the numbers of days by which it would move the dates, best first."""
    for mention, (day, *_) in zip(mentions, days, strict=True):
        if word := _DAY_WORD.search(text[: mention.start]):
            return "today", [(today - day).days + (word[1].lower() == "tomorrow")]
    flat = list(itertools.chain.from_iterable(days))
    earliest = min(flat)
    if _THIS_WEEK.search(text):
        ahead = (earliest - today).days
        return "this week", [ahead % _WEEK - ahead]
    floor = today + timedelta(days=lead_days)
    if earliest >= floor:
        return "ahead", [0]
    least = (floor - earliest).days
    if found := find_holiday(text, flat):
        holiday, day = found
        shifts = [(holiday.day(year) - day).days for year in range(today.year, today.year + _CHOICES)]
        # A date without a year is read as the next one, also if that is closer than `lead_days`.
        soon = (today - earliest).days
        return "holiday", sorted(
            (shift for shift in shifts if shift >= soon), key=lambda shift: shift < least
        )
    first = -(-least // _WEEK)
    last = max(first + _CHOICES, (today - earliest).days // _WEEK + HORIZON_DAYS // _WEEK)
    shifts = [weeks * _WEEK for weeks in range(first, last + 1)]
    # A date that had passed when it was written is meant for another year.
    ahead = (earliest - written).days % _YEAR
    named = _SEASON.search(text) is not None
    if ahead > SOON_DAYS or named:
        shifts.sort(key=lambda shift: _off_season(earliest, shift, named))
        if named or _off_season(earliest, shifts[0], False)[1] <= OFF_SEASON_DAYS:
            return "season", shifts
    return "lead", sorted(shifts, key=lambda shift: _off_lead((earliest - today).days + shift, ahead))


def _off_season(day: date, shift: int, month: bool) -> tuple[bool, int]:
    moved = day + timedelta(days=shift)
    apart = abs(moved.timetuple().tm_yday - day.timetuple().tm_yday)
    return month and moved.month != day.month, min(apart, _YEAR - apart)


def _off_lead(lead: int, wanted: int) -> tuple[bool, int]:
    return lead < wanted, abs(lead - wanted)


def _moved(
    text: str, mentions: Sequence[Mention], days: Sequence[tuple[date, ...]], shift: int
) -> tuple[str, tuple[Change, ...]]:
    pieces, changes, end = [], [], 0
    for mention, before in zip(mentions, days, strict=True):
        after = tuple(day + timedelta(days=shift) for day in before)
        change = Change(text[mention.start : mention.end], mention.write(after), before, after)
        pieces += [text[end : mention.start], change.new]
        changes.append(change)
        end = mention.end
    pieces.append(text[end:])
    if shift % _WEEK:
        _rewrite_weekdays(pieces, changes)
    return "".join(pieces), tuple(changes)


def _rewrite_weekdays(pieces: list[str], changes: Sequence[Change]) -> None:
    """Puts right the weekdays next to dates; `pieces` alternates between text and dates."""
    for number, change in enumerate(changes):
        for place, pattern, old, new in (
            (2 * number, _WEEKDAY_BEFORE, change.before[0], change.after[0]),
            (2 * number + 2, _WEEKDAY_AFTER, change.before[-1], change.after[-1]),
        ):
            match = pattern.search(pieces[place])
            if match and match["weekday"] == _WEEKDAYS[old.weekday()]:
                start, end = match.span("weekday")
                pieces[place] = pieces[place][:start] + _WEEKDAYS[new.weekday()] + pieces[place][end:]
