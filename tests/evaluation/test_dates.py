"""Days that have passed move together to days to come, and nothing else of a prompt changes."""

import calendar
import datetime
from datetime import date, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collection.evaluation.dates.moving import bound_by_rule, follow, refresh
from collection.evaluation.dates.writing import find_mentions, resolve

TODAY, WRITTEN = date(2026, 11, 22), date(2023, 12, 15)

BOUND = [
    ("Find a Mexico hotel for December 25-26.", "Find a Mexico hotel for December 7-8."),
    ("A three night stay from 1st Jan in Jakarta.", "A three night stay from 7th Dec in Jakarta."),
    # Ordinals are put right; a year with the second day is the first one's as well.
    (
        "Find a hotel From December 20th to December 23th.",
        "Find a hotel From December 9th to December 12th.",
    ),
    ("Stay from February 28 to March 4, 2024.", "Stay from December 9 to December 14, 2026."),
    ("Rooms from Jan 22 to 25 in Rome", "Rooms from Dec 7 to 10 in Rome"),
    ("A hotel for 20/12/2023 - 21/12/2023.", "A hotel for 16/12/2026 - 17/12/2026."),
    ("Flights 11/24/2025 → 12/3/2025", "Flights 12/7/2026 → 12/16/2026"),
    ("A table at 7 pm in a restaurant on 11/30/25", "A table at 7 pm in a restaurant on 12/06/26"),
    ("Stay 6 March to 8 March 2024 now", "Stay 9 December to 11 December 2026 now"),
    ("A room on 2024-01-15, please", "A room on 2026-12-07, please"),
    ("A flight on Dec. 26th", "A flight on Dec. 8th"),
    ("A flight on May 3, 2024.", "A flight on December 11, 2026."),
    ("A flight on May 3, back on Jun 4, 2024.", "A flight on Dec 11, back on Jan 12, 2027."),
    ("Fly on jan. 22nd? No, JAN. 23RD: a flight", "Fly on dec. 7th? No, DEC. 8TH: a flight"),
    ("A flight from Dec 19 through January12.", "A flight from Dec 8 through January1."),
    ("Tickets for Novebmer 22 at 7:00 PM", "Tickets for December 11 at 7:00 PM"),
    ("Reserve for lunch on 12/19, 8/10 or more", "Reserve for lunch on 12/08, 8/10 or more"),
    ("Tickets for any day over 12/18-12/22?", "Tickets for any day over 12/07-12/11?"),
    ("A room from February 6 checking out on the 13.", "A room from December 8 checking out on the 15."),
    ("A room from March 20-27, 2024, 5/5 stars", "A room from December 9-16, 2026, 5/5 stars"),
    ("A hotel from Dec 20 to 3 adults' liking", "A hotel from Dec 9 to 3 adults' liking"),
    ("A flight on Dec 20 at 7, for Dec 21 2 pm", "A flight on Dec 9 at 7, for Dec 10 2 pm"),
    ("Rooms from 1st to 3rd of May, 2024", "Rooms from 9th to 11th of December, 2026"),
    # A range that comes to lie in two months, or in two years, names both.
    (
        "A room for December 27 to 30, 2023. Book also January 20, 2024.",
        "A room for December 9 to 12, 2026. Book also January 2, 2027.",
    ),
    ("A room for 26-28 December 2023", "A room for 8-10 December 2026"),
    # The author's slip stays one.
    ("Stay November 20–14, 2025, please", "Stay December 17–11, 2026, please"),
    ("Flying out 11/23/2025 and back 11/18/2025", "Flying out 12/13/2026 and back 12/08/2026"),
    # A feast keeps its time of the year.
    (
        "A hotel for Valentine's Day, February 14-21, 2024",
        "A hotel for Valentine's Day, February 17-24, 2027",
    ),
]


@pytest.mark.parametrize(("old", "new"), BOUND, ids=range(len(BOUND)))
def test_days_move_together_and_are_written_as_they_were(old, new):
    found = refresh(old, TODAY, WRITTEN)
    assert found.text == new
    assert found.weeks > 0
    assert refresh(new, TODAY, TODAY).text == new


@pytest.mark.parametrize(
    "text",
    [
        "Books released in 2022 with a ticket to Rome",
        "Book a flight for the NBA 2023-24 season",
        "Papers submitted between Jan 1, 2024, and Jan 3, 2024",
        "Check the scores of the NBA games played on December 25, 2023.",
        "Repositories created after 2023-12-29",
        "The geomagnetic field on June 20, 2023 in Oslo",
        "How many days are there between February 12, 2024 and August 9, 2050?",
        "A travel guide published on March 3, 2023",
        "Book a flight next Monday, or tomorrow, or this weekend",
        "Hotels in the first week of December",
        "A ticket to Superman 2025 next Wednesday",
        "A hotel that 8/10 of its guests like, 1/4-20 T-nuts, 24/7, 5/5 stars",
        "A room for 2 adults, 1 may be 3 years old",
        "A flight that costs 2024 dollars, version 12.5 of 11/11",
        "A room on February 30, 2024",
        "A hotel room, the 13th of its kind",
        "A hotel in May 2 nights long, or in December 3 stars at least",
        # Ahead already.
        "A hotel for December 25, 2026",
        "A hotel from December 6 to December 9, 2026",
    ],
)
def test_texts_without_a_future_date_are_unchanged(text):
    found = refresh(text, TODAY, WRITTEN)
    assert found.text == text and not found.weeks and not found.changes


def test_a_model_may_say_that_a_prompt_is_bound_or_is_not():
    text = "Who plays on January 15, 2024?"
    assert not bound_by_rule(text) and refresh(text, TODAY, WRITTEN).text == text
    assert refresh(text, TODAY, WRITTEN, bound=True).text == "Who plays on December 7, 2026?"
    booking = "A hotel on January 15, 2024"
    assert bound_by_rule(booking) and refresh(booking, TODAY, WRITTEN, bound=False).text == booking


def test_an_event_with_a_year_in_its_name_moves_by_years_and_is_reported():
    found = refresh("Tickets for the Stampede 2026 on July 6", TODAY, date(2025, 11, 10))
    assert found.text == "Tickets for the Stampede 2026 on July 5"
    assert found.yearly and found.event_year == 2026 and found.changes[0].after == (date(2027, 7, 5),)


def test_a_rubric_follows_its_prompt():
    prompt = refresh("Reserve a room on 12/19 for three nights", TODAY, date(2025, 11, 10))
    assert prompt.text == "Reserve a room on 12/11 for three nights"
    text = "12/19 (Friday) to Dec 22, 2025; rated 8/10; since 2019; not December 19 or 1/2"
    assert follow(text, prompt).text == (
        "12/11 (Friday) to Dec 14, 2026; rated 8/10; since 2019; not December 11 or 1/2"
    )
    unchanged = refresh("Buy a calendar", TODAY, WRITTEN)
    assert follow(text, unchanged).text == text


def test_days_without_a_year_are_the_next_ones_when_they_were_written():
    def days(text, anchor=WRITTEN):
        return resolve(find_mentions(text), anchor)

    assert days("December 28 to January 2") == [(date(2023, 12, 28),), (date(2024, 1, 2),)]
    assert days("January 2 to December 28") == [(date(2024, 1, 2),), (date(2023, 12, 28),)]
    assert days("December 14") == [(date(2024, 12, 14),)] and days("December 15") == [(WRITTEN,)]
    assert days("December 14, then 3 January 2023") == [(date(2022, 12, 14),), (date(2023, 1, 3),)]
    assert days("February 29", date(2025, 1, 1)) == [(date(2028, 2, 29),)]
    assert days("January 30, out on the 1st") == [(date(2024, 1, 30),), (date(2024, 2, 1),)]


# Ways to write a day, as people do.
FORMS = {
    "month first": lambda day: f"{day:%B} {day.day}, {day.year}",
    "short": lambda day: f"{day:%b} {day.day}, {day.year}",
    "day first": lambda day: f"{day.day} {day:%B} {day.year}",
    "numbers": lambda day: f"{day:%m/%d/%Y}",
    "two digits": lambda day: f"{day:%m/%d/%y}",
    "iso": lambda day: day.isoformat(),
    "no year": lambda day: f"{day:%B} {day.day}",
    "short, no year": lambda day: f"{day:%b} {day.day}",
    "day first, no year": lambda day: f"{day.day} {day:%b}",
}
SHORT = ("short", "short, no year", "day first, no year")
DAYS = st.dates(date(2019, 1, 1), date(2032, 12, 31))


@given(
    form=st.sampled_from(sorted(FORMS)),
    anchor=DAYS,
    ahead=st.integers(0, 200),
    spans=st.lists(st.integers(-20, 120), max_size=3),
    today=DAYS,
    lead_days=st.integers(0, 60),
)
def test_any_days_in_any_form(form, anchor, ahead, spans, today, lead_days):
    anchor, today = sorted((anchor, today))
    write = FORMS[form]
    first = anchor + timedelta(days=ahead)
    days = [first, *(first + timedelta(days=span) for span in spans)]
    # "May" alone does not tell whether it is short.
    assume(form not in SHORT or any(day.month != 5 for day in days))
    text = "Book a flight: {}.".format(", then ".join(map(write, days)))
    found = refresh(text, today, anchor, lead_days)
    floor = today + timedelta(days=lead_days)
    weeks = max(0, -((min(days) - floor).days // 7))
    moved = [day + timedelta(weeks=weeks) for day in days]
    assert found.weeks == weeks
    assert found.text == "Book a flight: {}.".format(", then ".join(map(write, moved)))
    assert min(moved) >= floor and (not weeks or min(moved) < floor + timedelta(weeks=1))
    assert refresh(found.text, today, today, lead_days).text == found.text


WORDS = st.text(st.sampled_from("aeB 0123456789/-–.,:()'\n"), max_size=40)


@given(WORDS, WORDS, DAYS)
def test_no_text_breaks_it_and_only_dates_change(before, after, today):
    text = f"{before} hotel on March 3, 2021 {after}"
    found = refresh(text, today, WRITTEN)
    rest, place = [], 0
    for change in found.changes:
        start = text.index(change.old, place)
        rest.append(text[place:start])
        place = start + len(change.old)
        assert [day.weekday() for day in change.before] == [day.weekday() for day in change.after]
    rest.append(text[place:])
    news = [*(change.new for change in found.changes), ""]
    assert "".join(part for pair in zip(rest, news, strict=True) for part in pair) == found.text


def test_every_day_of_four_years_is_found_again_where_it_is_written():
    day = date(2024, 1, 1)
    while day < date(2028, 1, 1):
        for form in ("month first", "short", "day first", "numbers", "iso"):
            text = f"On {FORMS[form](day)} at 7 pm"
            (mention,) = find_mentions(text)
            assert resolve([mention], WRITTEN) == [(day,)] and mention.write((day,)) == FORMS[form](day)
        day += datetime.timedelta(days=3)


def _end_of_month(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


@given(
    first=DAYS,
    span=st.integers(0, 30),
    between=st.sampled_from(["-", "–", " to ", " through "]),
    short=st.booleans(),
    today=DAYS,
)
def test_any_range_within_a_month(first, span, between, short, today):
    first, today = sorted((first, today))
    assume(first.month != 5)
    last = min(first + timedelta(days=span), _end_of_month(first))

    def write(one: date, other: date) -> str:
        months = [f"{day:%b}" if short else f"{day:%B}" for day in (one, other)]
        if one.month == other.month:
            return f"{months[0]} {one.day}{between}{other.day}, {one.year}"
        year = f", {one.year}" if one.year != other.year else ""
        return f"{months[0]} {one.day}{year}{between}{months[1]} {other.day}, {other.year}"

    found = refresh(f"A room for {write(first, last)}.", today, WRITTEN, lead_days=0)
    moved = [day + timedelta(weeks=found.weeks) for day in (first, last)]
    assert found.text == f"A room for {write(*moved)}." and moved[0] >= today
    assert refresh(found.text, today, today, lead_days=0).text == found.text
