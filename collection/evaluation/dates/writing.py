"""How dates are written in prompts: found with what it takes to write another date in the same way."""

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
# A longer word that is one slip of the pen away from a month is that month.
_MISSPELT = 6
# Other words as well, in lower case.
_WORDS = frozenset(("mar", "may", "march"))

_SUFFIX = r"(?i:st|nd|rd|th)"
_DAY = rf"(?P<day>\d{{1,2}})(?P<suffix>{_SUFFIX})?"
_LAST = rf"(?P<last>\d{{1,2}})(?P<last_suffix>{_SUFFIX})?"
# A longer number, a time of day, or a number of something.
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
# 8/10 is a rating and 1/4 a size unless a word says that it is a day.
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
    """A day, or two with one month between them, as `text[start:end]` names it.

    Attributes:
      month: None for a day alone, which follows the mention before.
      days: as written; the second of a range may come before the first, where its author slipped.
      year: None where none is written.
      write: other days in the same form; what they need and this form lacks (a second month) is added.
    """

    start: int
    end: int
    month: int | None
    days: tuple[int, ...]
    year: int | None
    write: Write = dataclasses.field(compare=False, repr=False)


def find_mentions(text: str, known: Collection[tuple[int, int]] = ()) -> list[Mention]:
    """All days that a text names by month and day, in order; without a day there is no mention.

    Weekdays, "tomorrow", seasons, months and years by themselves are none, and neither are days that no
    calendar has. Two numbers alone (12/19) are one after a word such as "on", or if they are `known`.

    Args:
      known: months and days that the text is known to be about.
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
    # Whether "May" is short only the others tell.
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
    day_first = any(int(match["one"]) > len(MONTHS) for match in full)
    # Two digits everywhere: a day below ten would have had a zero.
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
    """Adds "checking out on the 13" to the mention that it follows in one sentence."""
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
    """The month with the point and space that followed another; a name in full takes no point."""
    return f"{month}{gap.removeprefix('.') if month in MONTHS else gap}"


def _month(word: str) -> int | None:
    """1..12, also of a short or a misspelt name; None for another word."""
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
    """Another month as short and in such letters as `word` is."""
    name = MONTHS[month - 1]
    if len(word) <= _SHORT + 1 and word.lower() not in ("june", "july") and (word.lower() != "may" or short):
        name = name[:_SHORT]
    if word.isupper():
        return name.upper()
    return name.lower() if word.islower() else name


def _exists(year: int | None, month: int, day: int) -> bool:
    try:
        date(year or 2024, month, day)  # 2024 has all days that a year may have.
    except ValueError:
        return False
    return True


def _overlap(one: re.Match[str], other: re.Match[str]) -> bool:
    return one.start() < other.end() and other.start() < one.end()


def resolve(mentions: Iterable[Mention], anchor: date, near: date | None = None) -> list[tuple[date, ...]]:
    """The days of each mention.

    A day without a year is the one nearest to the first day that has a year, or to `near`; where there is
    neither, the first of them is the first such day from `anchor` on and the others are nearest to it.
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
    """Years that have all its days: 29 February comes every fourth to eighth."""
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
    years = _years(mention, reference.year - 1, 3) or _years(mention, reference.year - 8, 17)
    return min(years, key=lambda year: abs((date(year, month, mention.days[0]) - reference).days))


def _after(day: date, number: int) -> date:
    """The first day from `day` on with that number in its month."""
    for month in range(day.month - 1, day.month + 3):
        year = day.year + month // len(MONTHS)
        if _exists(year, month % len(MONTHS) + 1, number):
            found = date(year, month % len(MONTHS) + 1, number)
            if found >= day:
                return found
    raise AssertionError("some month of three has every number")
