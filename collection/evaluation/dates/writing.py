"""Finds dates in prompts, and writes other dates in the same form."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date

from rapidfuzz.distance import OSA

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_SHORT = 3
# Words of at least this length match a month with one typing error; shorter ones would match other words.
_MISSPELT = 6
# Month names that are also common words in lower case.
_WORDS = frozenset(("mar", "may", "march"))

_SUFFIX = r"(?i:st|nd|rd|th)"
_DAY = rf"(?P<day>\d{{1,2}})(?P<suffix>{_SUFFIX})?"
_LAST = rf"(?P<last>\d{{1,2}})(?P<last_suffix>{_SUFFIX})?"
# Not a day: part of a longer number, a time of day, or a count of something.
_NO_DAY = (
    r"(?![\d/:.]\d|\d|\s*(?:[ap]\.?m\b|:\d|%)"
    r"|\s+(?:people|persons?|adults?|guests?|nights?|rooms?|children|kids|days?|weeks?|hours?|stars?|miles)\b)"
)
_NEXT = r"(?P<between>\s*[-–—]\s*|\s+(?:to|till|until|through)\s+)"
_YEAR = r"(?:(?P<comma>,?\s+|,)(?P<year>(?:19|20)\d\d)(?!\d))?"
_MONTH_FIRST = re.compile(
    rf"\b(?P<month>[A-Za-z]{{3,10}})(?P<gap>\.?\s*){_DAY}{_NO_DAY}(?:{_NEXT}{_LAST}{_NO_DAY})?{_YEAR}"
)
_DAY_FIRST = re.compile(
    rf"(?<![\d/:.$-]){_DAY}(?:{_NEXT}{_LAST})?"
    rf"(?P<gap>\s+(?:of\s+)?)(?P<month>[A-Za-z]{{3,10}})\b(?P<dot>\.(?=\s+(?:19|20)\d\d))?{_YEAR}"
)
_NUMERIC = re.compile(r"(?<![\d/.$])(?P<one>\d{1,2})/(?P<two>\d{1,2})/(?P<year>\d{4}|\d{2})(?![\d/])")
_ISO = re.compile(r"(?<![\d-])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])")
# Two numbers without a year: 8/10 can be a rating and 1/4 a size, so a preceding word must mark a date.
_BARE = re.compile(
    r"(?<![\d/.$])(?P<one>\d{1,2})/(?P<two>\d{1,2})(?![\d/+%]|\s*(?:stars?|rat\w+|scored?|points?|inch\w*|[\"”]))"
)
_BEFORE_BARE = re.compile(
    r"\b(?:on|from|until|till|through|over|between|starting|beginning|departing|returning|leaving)\s+$", re.I
)
_JOIN = re.compile(r"\s*(?:[-–—→]|to|and|till|until|through)\s*")
_DAY_ALONE = re.compile(rf"\b(?:on|until|till|to)\s+the\s+{_DAY}(?=\s*(?:[.,;)]|$|and\b|at\b|for\b|if\b))")

Write = Callable[[Sequence[date]], str]


@dataclasses.dataclass(frozen=True)
class Mention:
    """A date, or a range of two days in one month, at `text[start:end]`.

    Attributes:
      month: None for a bare day number, which refers to the previous mention.
      days: as written; by mistake of the author the second of a range may be before the first.
      year: None if not written.
      write: writes other days in the same form; adds parts that they need (a second month).
    """

    start: int
    end: int
    month: int | None
    days: tuple[int, ...]
    year: int | None
    write: Write = dataclasses.field(compare=False, repr=False)


def find_mentions(text: str, known: Collection[tuple[int, int]] = ()) -> list[Mention]:
    """Finds all dates with month and day in a text, in order.

    Weekdays, "tomorrow", seasons, bare months and years, and impossible dates do not count. Two numbers
    without a year (12/19) count after a word such as "on", or if they are `known`.

    Args:
      known: (month, day) of dates that the text refers to.
    """
    found = sorted(
        (*_named(text), *_numbered(text, known)),
        key=lambda mention: (mention.start, mention.start - mention.end),
    )
    kept: list[Mention] = []
    for mention in found:
        if not kept or mention.start >= kept[-1].end:
            kept.append(mention)
    return _with_days_alone(text, kept)


def _named(text: str) -> Iterator[Mention]:
    matches = [(match, True) for match in _MONTH_FIRST.finditer(text)]
    matches += [(match, False) for match in _DAY_FIRST.finditer(text)]
    months = [match["month"] for match, _ in matches if _month(match["month"])]
    # "May" is both a short and a full name; the other months show which form the text uses.
    short = any(len(month) <= _SHORT + 1 and month.lower() not in ("may", "june", "july") for month in months)
    for match, month_first in matches:
        month = _month(match["month"])
        days = tuple(int(match[name]) for name in ("day", "last") if match[name])
        year = int(match["year"]) if match["year"] else None
        if month and all(_exists(year, month, day) for day in days):
            name = functools.partial(_month_like, match["month"], short)
            write = functools.partial(_write_month_first if month_first else _write_day_first, match, name)
            yield Mention(match.start(), match.end(), month, days, year, write)


def _numbered(text: str, known: Collection[tuple[int, int]]) -> Iterator[Mention]:
    full = list(_NUMERIC.finditer(text))
    bare = [match for match in _BARE.finditer(text) if not any(_overlap(match, other) for other in full)]
    accepted: list[re.Match[str]] = []
    for match in bare:
        joined = accepted and _JOIN.fullmatch(text, accepted[-1].end(), match.start())
        is_known = (int(match["one"]), int(match["two"])) in known
        if is_known or joined or _BEFORE_BARE.search(text[: match.start()]):
            accepted.append(match)
    fields = [match[name] for match in (*full, *accepted) for name in ("one", "two")]
    # One first number above 12 shows the order for the whole text; otherwise month first, as in the US.
    day_first = any(int(match["one"]) > len(MONTHS) for match in full)
    # If all numbers have two digits, the text pads days below ten with a zero.
    padded = all(len(field) == 2 for field in fields)
    for match in (*full, *accepted):
        month, day = (int(match[name]) for name in (("two", "one") if day_first else ("one", "two")))
        year = None
        if "year" in match.re.groupindex:
            year = int(match["year"]) + (2000 if len(match["year"]) == 2 else 0)
        if _exists(year, month, day):
            write = functools.partial(_write_numbers, match, day_first, padded)
            yield Mention(match.start(), match.end(), month, (day,), year, write)
    for match in _ISO.finditer(text):
        year, month, day = (int(match[name]) for name in ("year", "month", "day"))
        if _exists(year, month, day):
            yield Mention(match.start(), match.end(), month, (day,), year, lambda days: days[0].isoformat())


def _with_days_alone(text: str, mentions: Sequence[Mention]) -> list[Mention]:
    """Adds bare days ("checking out on the 13") that follow a mention in the same sentence."""
    found = list(mentions)
    for match in _DAY_ALONE.finditer(text):
        before = [mention for mention in mentions if mention.end <= match.start()]
        if not before or re.search(r"[.?!]\s", text[before[-1].end : match.start()]):
            continue
        day, start = int(match["day"]), match.start("day")
        if 1 <= day <= 31 and not any(mention.start <= start < mention.end for mention in found):
            write = functools.partial(_write_day, match["suffix"])
            found.append(Mention(start, match.end(), None, (day,), None, write))
    return sorted(found, key=lambda mention: mention.start)


def _write_month_first(match: re.Match[str], name: Callable[[int], str], days: Sequence[date]) -> str:
    first = f"{_join(name(days[0].month), match['gap'])}{_day(days[0], match['suffix'])}"
    year = f"{match['comma']}{days[-1].year}" if match["year"] else ""
    if len(days) == 1:
        return f"{first}{year}"
    last = _day(days[1], match["last_suffix"])
    if days[0].month != days[1].month:
        last = f"{_join(name(days[1].month), match['gap'])}{last}"
    own = f"{match['comma']}{days[0].year}" if year and days[0].year != days[1].year else ""
    return f"{first}{own}{match['between']}{last}{year}"


def _write_day_first(match: re.Match[str], name: Callable[[int], str], days: Sequence[date]) -> str:
    year = f"{match['comma']}{days[-1].year}" if match["year"] else ""
    last = f"{match['gap']}{name(days[-1].month)}{match['dot'] or ''}{year}"
    if len(days) == 1:
        return f"{_day(days[0], match['suffix'])}{last}"
    own = ""
    if days[0].month != days[1].month:
        own = f"{match['gap']}{name(days[0].month)}"
    if year and days[0].year != days[1].year:
        own += f"{match['comma']}{days[0].year}"
    ends = _day(days[0], match["suffix"]), _day(days[1], match["last_suffix"])
    return f"{ends[0]}{own}{match['between']}{ends[1]}{last}"


def _write_numbers(match: re.Match[str], day_first: bool, padded: bool, days: Sequence[date]) -> str:
    day = days[0]
    fields = (day.day, day.month) if day_first else (day.month, day.day)
    text = "/".join(f"{field:02d}" if padded else str(field) for field in fields)
    if "year" not in match.re.groupindex:
        return text
    return f"{text}/{str(day.year)[-len(match['year']) :]}"


def _write_day(suffix: str | None, days: Sequence[date]) -> str:
    return _day(days[0], suffix)


def _day(day: date, suffix: str | None) -> str:
    if not suffix:
        return str(day.day)
    ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    return f"{day.day}{ending.upper() if suffix.isupper() else ending}"


def _join(month: str, gap: str) -> str:
    """Joins a month with the original's dot and space; a full name gets no dot."""
    return f"{month}{gap.removeprefix('.') if month in MONTHS else gap}"


def _month(word: str) -> int | None:
    """Returns 1..12 for a month's full, short or misspelt name; None for another word."""
    lower = word.lower()
    if word == lower and lower in _WORDS:
        return None
    for number, name in enumerate(MONTHS, start=1):
        if lower in (name.lower(), name[:_SHORT].lower()) or (lower == "sept" and number == 9):
            return number
    if len(word) >= _MISSPELT:
        for number, name in enumerate(MONTHS, start=1):
            if len(name) >= _MISSPELT and OSA.distance(lower, name.lower(), score_cutoff=1) <= 1:
                return number
    return None


def _month_like(word: str, short: bool, month: int) -> str:
    """Returns a month's name with the length and letter case of `word`."""
    name = MONTHS[month - 1]
    if len(word) <= _SHORT + 1 and word.lower() not in ("june", "july") and (word.lower() != "may" or short):
        name = name[:_SHORT]
    if word.isupper():
        return name.upper()
    return name.lower() if word.islower() else name


def _exists(year: int | None, month: int, day: int) -> bool:
    try:
        date(year or 2024, month, day)  # 2024 is a leap year.
    except ValueError:
        return False
    return True


def _overlap(one: re.Match[str], other: re.Match[str]) -> bool:
    return one.start() < other.end() and other.start() < one.end()


def resolve(mentions: Iterable[Mention], anchor: date, near: date | None = None) -> list[tuple[date, ...]]:
    """Returns the days of each mention.

    A date without a year is the one nearest to the first date with a year, or to `near`. If there is neither,
    the first date is the next such day from `anchor` on, and the others are nearest to it.
    """
    mentions = list(mentions)
    given = [
        date(mention.year, mention.month, mention.days[0])
        for mention in mentions
        if mention.year and mention.month
    ]
    reference = given[0] if given else near
    found: list[tuple[date, ...]] = []
    for mention in mentions:
        if mention.month is None:
            found.append((_after(found[-1][-1], mention.days[0]),))
            continue
        if mention.year:
            year = mention.year
        elif reference is None:
            year = _first_from(anchor, mention)
        else:
            year = _nearest(reference, mention)
        days = tuple(date(year, mention.month, day) for day in mention.days)
        reference = reference or days[0]
        found.append(days)
    return found


def _years(mention: Mention, first: int, number: int) -> list[int]:
    """Returns years that have all its days: 29 February occurs every four to eight years."""
    assert mention.month is not None
    years = range(first, first + number)
    return [year for year in years if all(_exists(year, mention.month, day) for day in mention.days)]


def _first_from(anchor: date, mention: Mention) -> int:
    assert mention.month is not None
    years = _years(mention, anchor.year, 10)
    return next(year for year in years if date(year, mention.month, mention.days[0]) >= anchor)


def _nearest(reference: date, mention: Mention) -> int:
    month = mention.month
    assert month is not None
    # The wide range is for 29 February, which a century year can put 8 years apart.
    years = _years(mention, reference.year - 1, 3) or _years(mention, reference.year - 8, 17)
    return min(years, key=lambda year: abs((date(year, month, mention.days[0]) - reference).days))


def _after(day: date, number: int) -> date:
    """Returns the first day from `day` on with that day number."""
    for month in range(day.month - 1, day.month + 3):
        year = day.year + month // len(MONTHS)
        if _exists(year, month % len(MONTHS) + 1, number):
            found = date(year, month % len(MONTHS) + 1, number)
            if found >= day:
                return found
    raise AssertionError("one of three successive months has every day number")
