"""The checker of refreshed prompts finds each kind of error, and none in prompts that are right."""

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.evaluation import date_checker
from tests.evaluation.date_checker import NAMED, RULES, broken, find, read, rubric_broken

CODE = Path(date_checker.__file__).read_text(encoding="utf-8")
WRITTEN, TODAY = date(2025, 11, 10), date(2026, 11, 25)

# Rule, prompt, and a refreshed one that breaks only this rule.
PLANTED = [
    ("words", "Book a room on December 3", "Book the room on December 23"),
    ("form", "A room on December 3", "A room on Dec 23"),
    ("form", "A room on 12/03/2025", "A room on 12/23/2026 or 12/24/2026"),
    ("ordinals", "A room on December 2nd", "A room on December 22th"),
    ("exists", "A room on December 3, 2025", "A room on February 30, 2027"),
    ("event", "Tickets for the Stampede 2026 on July 6", "Tickets for the Stampede 2026 on July 5"),
    ("past", "A room this weekend, December 4, 2025", "A room this weekend, November 24, 2026"),
    ("span", "A room from December 3 to December 10", "A room from December 23 to December 31"),
    ("order", "Out 12/03/2025, back 12/10/2025", "Out 12/30/2026, back 12/23/2026"),
    ("nights", "Three nights from December 2 to December 5", "Three nights from December 22 to December 26"),
    ("written weekday", "On Friday, December 26, 2025", "On Friday, January 2, 2027"),
    ("today", "Flights today, December 3, 2025", "Flights today, November 26, 2026"),
    ("today", "Flights tomorrow, December 3, 2025", "Flights tomorrow, November 25, 2026"),
    ("this weekend", "A room this weekend, December 4", "A room this weekend, December 3"),
    ("holiday", "A Valentine trip from February 10 to 17", "A Valentine trip from February 15 to 22"),
    ("holiday", "A Thanksgiving room, November 26 to 30", "A Thanksgiving room, December 2 to 6"),
    ("fixed holiday", "A room on December 25", "A room on December 24"),
    ("weekday", "A room on December 3", "A room on December 22"),
    ("named season", "A room for the winter fair on December 10", "A room for the winter fair on January 6"),
    ("floor", "A room on December 3", "A room on November 25"),
    ("season", "A room on July 17", "A room on December 18"),
    ("horizon", "A room on November 6, 2026", "A room on November 5, 2027"),
    ("lead", "A room on December 3", "A room on March 3"),
]


@pytest.mark.parametrize(("rule", "old", "new"), PLANTED, ids=range(len(PLANTED)))
def test_a_planted_error_is_found(rule, old, new):
    assert rule in broken(old, new, WRITTEN, TODAY)


def test_every_rule_has_a_planted_error():
    assert {rule for rule, _, _ in PLANTED} == RULES.keys() and len(RULES) >= 12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Three nights from December 2 to 5", "Three nights from December 22 to 25"),
        ("A room from November 26-28, 2025", "A room from December 30-January 1, 2027"),
        ("A Valentine trip from February 10 to 17", "A Valentine trip from February 10 to 17"),
        ("On Friday, December 26, 2025", "On Friday, January 15, 2027"),
        ("A flight on July 17 returning August 11", "A flight on July 16 returning August 10"),
        ("Flights today (December 3, 2025)", "Flights today (November 25, 2026)"),
        ("Tickets for the Stampede 2026 on July 6", "Tickets for the Stampede 2026 on July 6"),
    ],
)
def test_a_right_prompt_breaks_no_rule(old, new):
    assert broken(old, new, WRITTEN, TODAY) == []


def test_its_reader_reads_the_forms_of_the_benchmarks():
    def days(text):
        return [day.isoformat() for day in read(find(text), WRITTEN)]

    assert days("November 20–14, 2025") == ["2025-11-20", "2025-11-14"]
    assert days("Dec 19 through January12") == ["2025-12-19", "2026-01-12"]
    assert days("Novebmer 22nd, 1st Jan, 20/12/2023") == ["2023-11-22", "2024-01-01", "2023-12-20"]
    assert days("any day over 12/18-12/22") == ["2025-12-18", "2025-12-22"]
    assert days("February 6 checking out on the 13.") == ["2026-02-06", "2026-02-13"]
    assert days("8/10 scored, 24/7, in 2 rooms, may 3 people come at 7 pm") == []


def test_its_calendar_is_right():
    assert NAMED["easter"](2027) == date(2027, 3, 28) and NAMED["easter"](2038) == date(2038, 4, 25)
    assert NAMED["thanksgiving"](2026) == date(2026, 11, 26)
    assert NAMED["memorial day"](2027) == date(2027, 5, 31)


def test_it_shares_no_code_with_what_it_checks():
    assert not re.search(r"(?:import|from) (?:collection\.|rmsweb_jax|tests|dateutil)", CODE)


def test_a_rubric_that_did_not_follow_is_found():
    shift = timedelta(days=364)
    assert not rubric_broken("On 12/03/2025 (Wednesday)", "On 12/02/2026 (Wednesday)", shift)
    assert rubric_broken("On 12/03/2025", "On 12/03/2025", shift)
    assert rubric_broken("On 12/03/2025", "At 12/02/2026", shift)
    assert not rubric_broken("Dec 3: 8/10 or more", "Dec 2: 8/10 or more", shift)
    assert rubric_broken("Dec 3: 8/10 or more", "Dec 5: 8/10 or more", shift)
