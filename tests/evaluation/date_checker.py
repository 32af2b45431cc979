"""Checks refreshed prompts by its own rules: it reads dates and holidays without the code that moves them."""

from __future__ import annotations

import calendar
import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterator
from datetime import date, timedelta

# Rules by name.
RULES = {
    "words": "the text around the dates is the same",
    "form": "each date is written in the same form",
    "ordinals": "1st, 2nd, 3rd, 4th",
    "exists": "each date is in the calendar",
    "event": "the dates of an event with a year stay",
    "past": "no date has passed",
    "span": "days between dates are the same",
    "order": "a return stays after its departure",
    "nights": "a stay is as long as the text says",
    "written weekday": "a weekday next to a date is its weekday",
    "today": "it is the day of the run",
    "this weekend": "it is within seven days",
    "holiday": "a stay over a named holiday contains it",
    "fixed holiday": "24, 25 and 31 December, 1 January and 14 February stay",
    "weekday": "each date keeps its weekday",
    "floor": "no date passes during the run",
    "named season": "the month stays",
    "season": "dates chosen for the time of the year stay in it, or are as far ahead",
    "horizon": "dates are at most eleven months ahead",
    "lead": "close dates are as close again",
}
MONTHS = [name.lower() for name in calendar.month_name[1:]]
WEEKDAYS = list(calendar.day_name)
_ORDINAL = r"(?P<{0}_end>st|nd|rd|th)?"
_WORDED = re.compile(
    rf"(?P<month>[A-Za-z]{{3,10}})\.?\s*(?P<one>\d\d?){_ORDINAL.format('one')}(?!\d|[:/]\d|%|\s*[ap]\.?m\b)"
    rf"(?:(?:\s*[-–]\s*|\s+to\s+)(?P<two>\d\d?){_ORDINAL.format('two')}"
    r"(?!\d|[:/]\d|\s+(?:adults?|people|nights?|rooms?)))?(?:,?\s+(?P<year>(?:19|20)\d\d)\b)?"
)
_REVERSED = re.compile(
    rf"(?<![\d/])(?P<one>\d\d?){_ORDINAL.format('one')}\s+(?:of\s+)?(?P<month>[A-Za-z]{{3,10}})\b"
    r"(?:,?\s+(?P<year>(?:19|20)\d\d)\b)?"
)
_NUMBERS = re.compile(r"(?<![\d/])(?P<first>\d\d?)/(?P<second>\d\d?)/(?P<year>\d{4}|\d\d)(?![\d/])")
_SHORT = re.compile(r"(?:(?:on|over) |(?<=\d)-)(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])")
_BARE = re.compile(r"(?<![\d/])(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])")
_ISO = re.compile(r"\b(?P<year>20\d\d)-(?P<first>\d\d)-(?P<second>\d\d)\b")
_ALONE = re.compile(r"\bout on the (?P<one>\d\d?)\b")


@dataclasses.dataclass(frozen=True)
class Seen:
    """A day in a text: where, its month (None: that of the day before it), its year if written, its form."""

    start: int
    end: int
    month: int | None
    day: int
    year: int | None
    form: str


def month_of(word: str) -> int | None:
    """The month that a word names, also with a typing error."""
    lower = word.lower()
    if word in ("may", "march", "mar"):
        return None
    for number, name in enumerate(MONTHS, start=1):
        if lower in (name, name[:3], name[:4] if number == 9 else name):
            return number
    close = difflib.get_close_matches(lower, MONTHS, 1, 0.8) if len(lower) > 5 else []
    return MONTHS.index(close[0]) + 1 if close else None


def find(text: str, bare: bool = False) -> list[Seen]:
    """All days that a text names, in order; `bare`: any two numbers (12/19) count, as in a rubric."""
    found: list[Seen] = []
    for pattern in (_WORDED, _REVERSED):
        for match in pattern.finditer(text):
            month = month_of(match["month"])
            if month is None or any(one.start < match.end() and match.start() < one.end for one in found):
                continue
            year = int(match["year"]) if match["year"] else None
            short = len(match["month"]) <= 4 and match["month"].lower() not in ("may", "june", "july")
            form = f"{'day first' if pattern is _REVERSED else 'month first'}{', short' if short else ''}"
            for name in ("one", "two"):
                if name in match.re.groupindex and match[name]:
                    ordinal = ", ordinal" if match[f"{name}_end"] else ""
                    found.append(
                        Seen(match.start(), match.end(), month, int(match[name]), year, form + ordinal)
                    )
    numbers = [*_NUMBERS.finditer(text), *(_BARE if bare else _SHORT).finditer(text), *_ISO.finditer(text)]
    day_first = any(int(match["first"]) > 12 for match in numbers if match.re is _NUMBERS)
    for match in numbers:
        first, second = int(match["first"]), int(match["second"])
        year = int(match["year"]) % 100 + 2000 if "year" in match.re.groupindex else None
        month, day = (second, first) if day_first and match.re is not _ISO else (first, second)
        if 1 <= month <= 12 and 1 <= day <= 31:
            found.append(
                Seen(match.start("first"), match.end(), month, day, year, f"numbers {match.re is _ISO}")
            )
    for match in _ALONE.finditer(text):
        found.append(Seen(match.start("one"), match.end("one"), None, int(match["one"]), None, "day"))
    return sorted(found, key=lambda one: one.start)


def read(seen: list[Seen], on: date) -> list[date]:
    """The days as somebody reads them: without a year, the next one, or that nearest to the others."""
    base = next((date(one.year, one.month, one.day) for one in seen if one.year and one.month), None)
    days: list[date] = []
    for one in seen:
        if one.month is None:
            last = days[-1]
            month = last.month % 12 + 1 if one.day < last.day else last.month
            days.append(date(last.year + (month < last.month), month, one.day))
        elif one.year:
            days.append(date(one.year, one.month, one.day))
        else:
            years = [year for year in range(on.year - 1, on.year + 3) if base is None] or [
                base.year + step for step in (-1, 0, 1) if base
            ]
            possible = [
                date(year, one.month, one.day)
                for year in years
                if one.day <= calendar.monthrange(year, one.month)[1]
            ]
            if base is None:
                days.append(min(day for day in possible if day >= on))
                base = days[0]
            else:
                near = base
                days.append(min(possible, key=lambda day: abs(day - near)))
    return days


def nth(year: int, month: int, weekday: int, number: int) -> date:
    """The nth weekday of a month; the last one for -1."""
    days = [week[weekday] for week in calendar.monthcalendar(year, month) if week[weekday]]
    return date(year, month, days[number if number < 0 else number - 1])


def easter_sunday(year: int) -> date:
    """By Gauss's rule with the values for 1900 to 2099."""
    d = (19 * (year % 19) + 24) % 30
    e = (2 * (year % 4) + 4 * (year % 7) + 6 * d + 5) % 7
    if d + e == 35 or (d == 28 and e == 6):
        e -= 7
    return date(year, 3, 22) + timedelta(days=d + e)


NAMED = {
    "valentine": lambda year: date(year, 2, 14),
    "christmas": lambda year: date(year, 12, 25),
    "new year's day": lambda year: date(year, 1, 1),
    "new year's eve": lambda year: date(year, 12, 31),
    "independence day": lambda year: date(year, 7, 4),
    "thanksgiving": lambda year: nth(year, 11, calendar.THURSDAY, 4),
    "mother's day": lambda year: nth(year, 5, calendar.SUNDAY, 2),
    "father's day": lambda year: nth(year, 6, calendar.SUNDAY, 3),
    "memorial day": lambda year: nth(year, 5, calendar.MONDAY, -1),
    "labor day": lambda year: nth(year, 9, calendar.MONDAY, 1),
    "easter": easter_sunday,
}
EVERYWHERE = {(12, 24), (12, 25), (12, 31), (1, 1), (2, 14)}
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")
_NIGHTS = re.compile(rf"\b({'|'.join(NUMBERS)}|\d)[- ]nights?\b", re.IGNORECASE)
_TODAY = re.compile(r"\b(today|tomorrow)\b", re.IGNORECASE)
_WEEKEND = re.compile(r"\bthis week(?:end)?\b", re.IGNORECASE)
_SEASON_WORD = re.compile(r"\b(?:summer|winter|carnival|parade|marathon|\w*fest(?:ival)?s?)\b")
_EVENT = re.compile(rf"\b(?!(?:{'|'.join(calendar.month_name[1:])}|In|From)\b)[A-Z]\w+ (20\d\d)\b(?![-–])")
SOON, AGAIN, HORIZON = 45, 14, 336


def broken(old: str, new: str, written: date, today: date, lead_days: int = 7) -> list[str]:
    """Names of the rules that a refreshed prompt breaks."""
    return list(_broken(old, new, written, today, lead_days))


def _broken(old: str, new: str, written: date, today: date, lead_days: int) -> Iterator[str]:
    was, now = find(old), find(new)
    if _bare(old, was) != _bare(new, now):
        yield "words"
    # A range with one month and year may have become one with two months.
    if _forms(was, now) != _forms(now, was) or bool(was[-1].year) != bool(now[-1].year):
        yield "form"
        return
    if any(not _ends_well(new, one) for one in now):
        yield "ordinals"
    try:
        before, after = read(was, written), read(now, today)
    except ValueError:
        yield "exists"
        return
    event = _EVENT.search(old)
    if event:
        if old != new:
            yield "event"
        return
    if min(after) < today:
        yield "past"
    shifts = {day - one for one, day in zip(before, after, strict=True)}
    if len(shifts) != 1:
        yield "span"
    order, now_in_order = ([a <= b for a, b in itertools.pairwise(days)] for days in (before, after))
    if order != now_in_order:
        yield "order"
    nights = _NIGHTS.search(old)
    if nights and len(before) == 2:
        wanted = int(nights[1]) if nights[1].isdigit() else NUMBERS.index(nights[1].lower()) + 1
        if (before[1] - before[0]).days == wanted != (after[1] - after[0]).days:
            yield "nights"
    for one, day, then in zip(now, after, before, strict=True):
        for match in re.finditer(rf"\b({'|'.join(WEEKDAYS)})\b", new):
            beside = 0 <= one.start - match.end() <= 2 or 0 <= match.start() - one.end <= 2
            if beside and calendar.day_name[then.weekday()] in old and match[1] != WEEKDAYS[day.weekday()]:
                yield "written weekday"
    said = _TODAY.search(old)
    if said and 0 <= was[0].start - said.end() <= 4:
        if after[0] != today + timedelta(days=said[1].lower() == "tomorrow"):
            yield "today"
        return
    if _WEEKEND.search(old) and not today <= min(after) < today + timedelta(days=7):
        yield "this weekend"
    holiday = False
    for name, day_of in NAMED.items():
        if name in old.lower().replace("’", "'"):
            holiday = True
            for first in (day_of(min(before).year), day_of(max(before).year)):
                if min(before) <= first <= max(before) and not any(
                    min(after) <= day_of(year) <= max(after) for year in (min(after).year, max(after).year)
                ):
                    yield "holiday"
    for one, day in zip(before, after, strict=True):
        if (one.month, one.day) in EVERYWHERE:
            holiday = True
            if (one.month, one.day) != (day.month, day.day):
                yield "fixed holiday"
    if not holiday and any(one.weekday() != day.weekday() for one, day in zip(before, after, strict=True)):
        yield "weekday"
    if holiday or _WEEKEND.search(old):
        return
    if min(after) < today + timedelta(days=lead_days):
        yield "floor"
    lead, later = (min(before) - written).days, (min(after) - today).days
    if min(after) == min(before):
        return
    apart = abs(min(after).timetuple().tm_yday - min(before).timetuple().tm_yday)
    apart = min(apart, 365 - apart)
    if _SEASON_WORD.search(old) and min(after).month != min(before).month:
        yield "named season"
    kept = lead % 365 <= later <= max(lead % 365, lead_days) + 21
    if lead > SOON or lead < 0:
        if apart > AGAIN and not kept:
            yield "season"
        if later > HORIZON:
            yield "horizon"
    elif not _SEASON_WORD.search(old) and not kept:
        yield "lead"


def _forms(seen: list[Seen], others: list[Seen]) -> list[str]:
    """The dates' forms; "May" is both a short and a long name."""
    may = any(one.month == 5 for one in (*seen, *others))
    return [one.form.replace(", short", "") if may else one.form for one in seen]


def _bare(text: str, seen: list[Seen]) -> str:
    """The text without its dates, weekdays and what joins a range."""
    for one in sorted({(one.start, one.end) for one in seen}, reverse=True):
        text = f"{text[: one[0]]}@{text[one[1] :]}"
    text = re.sub(rf"\b(?:{'|'.join(WEEKDAYS)})\b", "#", text)
    return re.sub(r"@\s*(?:-|–|to)\s*@", "@", text)


def _ends_well(text: str, one: Seen) -> bool:
    for match in re.finditer(r"\b(\d\d?)(st|nd|rd|th)\b", text[one.start : one.end]):
        number = int(match[1])
        wanted = "th" if number in (11, 12, 13) else ["th", "st", "nd", "rd", *["th"] * 6][number % 10]
        if match[2] != wanted:
            return False
    return True


def rubric_broken(old: str, new: str, shift: timedelta) -> bool:
    """True if a rubric did not follow its prompt: other words, or dates moved by another number of days."""
    was, now = find(old, bare=True), find(new, bare=True)
    if len(was) != len(now) or _bare(old, was) != _bare(new, now):
        return True
    return not all(_followed(a, b, shift) for a, b in zip(was, now, strict=True) if a.month and b.month)


def _followed(was: Seen, now: Seen, shift: timedelta) -> bool:
    if not was.year and (was.month, was.day) == (now.month, now.day) and was.form.startswith("numbers"):
        return True  # 8/10 can be a rating.
    years = [was.year] if was.year else range(2023, 2028)
    days = (date(year, was.month or 1, was.day) for year in years if (was.month, was.day) != (2, 29))
    return any(
        (day.month, day.day, day.year if now.year else 0) == (now.month, now.day, now.year or 0)
        for day in (one + shift for one in days)
    )
