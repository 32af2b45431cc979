"""Days of holidays by year, and the words that name them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta

from dateutil.easter import easter
from dateutil.relativedelta import MO, SU, TH, relativedelta


@dataclasses.dataclass(frozen=True)
class Holiday:
    """A holiday.

    Attributes:
      day: returns its day in a year.
      words: matches its name.
      worldwide: its day is the same everywhere, so a booking on this day is meant for it without naming it.
    """

    name: str
    day: Callable[[int], date]
    words: re.Pattern[str]
    worldwide: bool = False

    def near(self, day: date) -> date:
        """Returns the occurrence nearest to a day."""
        return min(
            (self.day(year) for year in (day.year - 1, day.year, day.year + 1)),
            key=lambda one: abs(one - day),
        )


def _fixed(month: int, day: int) -> Callable[[int], date]:
    return lambda year: date(year, month, day)


def _moving(month: int, weekday: relativedelta) -> Callable[[int], date]:
    return lambda year: date(year, month, 1) + weekday


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{pattern})", re.IGNORECASE)


_thanksgiving = _moving(11, relativedelta(weekday=TH(4)))

# A name that contains another one comes first.
HOLIDAYS = (
    Holiday("Christmas Eve", _fixed(12, 24), _words(r"christmas eve\b"), worldwide=True),
    Holiday("Christmas Day", _fixed(12, 25), _words("christmas|xmas"), worldwide=True),
    Holiday("New Year's Eve", _fixed(12, 31), _words(r"new year[’'s]* eve\b"), worldwide=True),
    Holiday("New Year's Day", _fixed(1, 1), _words("new year"), worldwide=True),
    Holiday("Valentine's Day", _fixed(2, 14), _words("valentine"), worldwide=True),
    Holiday("St. Patrick's Day", _fixed(3, 17), _words(r"st\.? patrick")),
    Holiday("Independence Day", _fixed(7, 4), _words("independence day|fourth of july")),
    Holiday("Halloween", _fixed(10, 31), _words("hallowe.?en")),
    Holiday("Good Friday", lambda year: easter(year) - timedelta(days=2), _words("good friday")),
    Holiday("Easter", easter, _words("easter")),
    Holiday("Mother's Day", _moving(5, relativedelta(weekday=SU(2))), _words("mother[’'s]* day")),
    Holiday("Memorial Day", _moving(5, relativedelta(day=31, weekday=MO(-1))), _words("memorial day")),
    Holiday("Father's Day", _moving(6, relativedelta(weekday=SU(3))), _words("father[’'s]* day")),
    Holiday("Labor Day", _moving(9, relativedelta(weekday=MO(1))), _words("labou?r day")),
    Holiday("Black Friday", lambda year: _thanksgiving(year) + timedelta(days=1), _words("black friday")),
    Holiday("Thanksgiving", _thanksgiving, _words("thanksgiving")),
)


def find_holiday(text: str, days: Iterable[date]) -> tuple[Holiday, date] | None:
    """Returns the holiday that a text is about, with its occurrence nearest to the text's days.

    A holiday counts if the text names it, or if it is worldwide and one of `days`.
    """
    days = list(days)
    for holiday in HOLIDAYS:
        if holiday.words.search(text):
            return holiday, holiday.near(days[0])
    for day in days:
        for holiday in HOLIDAYS:
            if holiday.worldwide and holiday.day(day.year) == day:
                return holiday, day
    return None
