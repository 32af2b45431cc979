"""Days that have passed move together to days to come, and nothing else of a prompt changes."""

import calendar
import datetime
from datetime import date, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collection.evaluation.dates.holidays import HOLIDAYS, find_holiday
from collection.evaluation.dates.moving import bound_by_rule, follow, inverted, refresh
from collection.evaluation.dates.outdated import outdated, relative_words
from collection.evaluation.dates.overrides import override
from collection.evaluation.dates.writing import find_mentions, resolve

TODAY, WRITTEN = date(2026, 11, 22), date(2023, 12, 15)

# Rule, prompt, and what becomes of it on 22 November 2026.
MOVED = [
    ("lead", "A three night stay from 12th Jan in Jakarta.", "A three night stay from 25th Dec in Jakarta."),
    # Ordinals are put right; a year with the second day is the first one's as well.
    (
        "lead",
        "Find a hotel From December 20th to December 23th.",
        "Find a hotel From December 2nd to December 5th.",
    ),
    # 4 March is five days later in a leap year, and stays so.
    ("season", "Stay from February 28 to March 4, 2024.", "Stay from March 3 to March 8, 2027."),
    ("lead", "Rooms from Jan 22 to 25 in Rome", "Rooms from Jan 4 to 7 in Rome"),
    # The day stays above 12, so that it cannot be read as a month.
    ("lead", "A hotel for 20/12/2023 - 21/12/2023.", "A hotel for 16/12/2026 - 17/12/2026."),
    # Written after the benchmark: more than 45 days ahead, so meant for the time of the year.
    ("season", "Flights 11/24/2025 → 12/3/2025", "Flights 11/30/2026 → 12/9/2026"),
    (
        "season",
        "A table at 7 pm in a restaurant on 11/30/25",
        "A table at 7 pm in a restaurant on 11/29/26",
    ),
    ("season", "Stay 6 March to 8 March 2024 now", "Stay 10 March to 12 March 2027 now"),
    ("lead", "A room on 2024-01-15, please", "A room on 2026-12-28, please"),
    ("lead", "A flight on Dec. 26th", "A flight on Dec. 8th"),
    ("season", "A flight on May 3, 2024.", "A flight on May 7, 2027."),
    ("season", "A flight on May 3, back on Jun 4, 2024.", "A flight on May 7, back on Jun 8, 2027."),
    ("lead", "Fly on jan. 22nd? No, JAN. 23RD: a flight", "Fly on jan. 4th? No, JAN. 5TH: a flight"),
    ("lead", "A flight from Dec 19 through January12.", "A flight from Dec 1 through December25."),
    ("lead", "Tickets for Decmeber 22 at 7:00 PM", "Tickets for December 4 at 7:00 PM"),
    ("lead", "Reserve for lunch on 12/19, 8/10 or more", "Reserve for lunch on 12/01, 8/10 or more"),
    ("lead", "Tickets for any day over 12/18-12/22?", "Tickets for any day over 11/30-12/04?"),
    (
        "season",
        "A room from February 6 checking out on the 13.",
        "A room from February 9 checking out on the 16.",
    ),
    ("season", "A room from March 20-27, 2024, 5/5 stars", "A room from March 24-31, 2027, 5/5 stars"),
    ("lead", "A hotel from Dec 20 to 3 adults' liking", "A hotel from Dec 2 to 3 adults' liking"),
    ("lead", "A flight on Dec 20 at 7, for Dec 21 2 pm", "A flight on Dec 2 at 7, for Dec 3 2 pm"),
    ("season", "Rooms from 1st to 3rd of May, 2024", "Rooms from 5th to 7th of May, 2027"),
    # A range that comes to lie in two months, or in two years, names both.
    (
        "lead",
        "A room for December 27 to 30, 2023. Book also January 20, 2024.",
        "A room for December 9 to 12, 2026. Book also January 2, 2027.",
    ),
    ("lead", "A room for 26-28 December 2023", "A room for 8-10 December 2026"),
    ("season", "A room for February 25-28, 2024", "A room for February 28-March 3, 2027"),
    # A return before the departure stays one: rubrics give points for saying so.
    ("lead", "Stay January 14–10, 2024, please", "Stay December 27–23, 2026, please"),
    # A close date is about the time of the year, too, if the text says so.
    ("season", "A hotel for the winter fair on December 20", "A hotel for the winter fair on December 23"),
    ("season", "Tickets for the Oktoberfest on January 3", "Tickets for the Oktoberfest on January 6"),
    # Holidays stay on their day, named or not, and a weekday that is written next to them follows.
    ("holiday", "A hotel for December 25-26, 2023.", "A hotel for December 25-26, 2026."),
    ("holiday", "A stay of three nights from 1st Jan, 2024", "A stay of three nights from 1st Jan, 2027"),
    (
        "holiday",
        "A hotel for Valentine's Day week, February 10-17, 2024",
        "A hotel for Valentine's Day week, February 10-17, 2027",
    ),
    (
        "holiday",
        "Book a table on Monday, December 25, 2023 (Christmas)",
        "Book a table on Friday, December 25, 2026 (Christmas)",
    ),
    (
        "holiday",
        "A flight before Thanksgiving, from November 27 to December 1, 2024",
        "A flight before Thanksgiving, from November 24 to November 28, 2027",
    ),
    ("holiday", "A room for Easter, March 29-April 1, 2024", "A room for Easter, March 26-March 29, 2027"),
    (
        "holiday",
        "Brunch tickets for Mother's Day, May 12, 2024",
        "Brunch tickets for Mother's Day, May 9, 2027",
    ),
    # What is said of the day of the run is true on it.
    ("today", "Flights today (February 17, 2024) to Rome", "Flights today (November 22, 2026) to Rome"),
    ("today", "A room for tomorrow, Dec 18", "A room for tomorrow, Nov 23"),
    ("today", "A flight today, Monday, December 18, 2023", "A flight today, Sunday, November 22, 2026"),
    ("this week", "A room this weekend, Dec 22 until Dec 24", "A room this weekend, Nov 27 until Nov 29"),
]


@pytest.mark.parametrize(("rule", "old", "new"), MOVED, ids=range(len(MOVED)))
def test_days_move_together_and_are_written_as_they_were(rule, old, new):
    found = refresh(old, TODAY, WRITTEN)
    assert (found.rule, found.text) == (rule, new)
    assert found.days > 0
    again = refresh(new, TODAY, TODAY)
    assert (again.rule, again.text) == ("ahead", new)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (None, "Books released in 2022 with a ticket to Rome"),
        (None, "Book a flight for the NBA 2023-24 season"),
        ("past", "Papers submitted between Jan 1, 2024, and Jan 3, 2024"),
        ("past", "Check the scores of the NBA games played on December 25, 2023."),
        ("past", "Repositories created after 2023-12-29"),
        ("past", "The geomagnetic field on June 20, 2023 in Oslo"),
        ("past", "How many days are there between February 12, 2024 and August 9, 2050?"),
        ("past", "A travel guide published on March 3, 2023"),
        (None, "Book a flight next Monday, or tomorrow, or this weekend"),
        (None, "Hotels in the first week of December"),
        (None, "A ticket to Superman 2025 next Wednesday"),
        (None, "A hotel that 8/10 of its guests like, 1/4-20 T-nuts, 24/7, 5/5 stars"),
        (None, "A room for 2 adults, 1 may be 3 years old"),
        (None, "A flight that costs 2024 dollars, version 12.5 of 11/11"),
        (None, "A room on February 30, 2024"),
        (None, "A hotel room, the 13th of its kind"),
        (None, "A hotel in May 2 nights long, or in December 3 stars at least"),
        ("ahead", "A hotel for December 25, 2026"),
        ("ahead", "A hotel from November 29 to December 9, 2026"),
        # The year in an event's name fixes its days.
        ("event", "Tickets for the Stampede 2026 on July 6"),
        ("ahead", "Tickets for the Stampede 2027 on July 6"),
        ("ahead", "Tickets for the Stampede 2026 on November 23"),
    ],
)
def test_texts_without_a_date_to_move_are_unchanged(rule, text):
    found = refresh(text, TODAY, date(2025, 11, 10) if "Stampede" in text else WRITTEN)
    assert (found.rule, found.text, found.days, found.changes) == (rule, text, 0, ())


def test_a_model_may_say_that_a_prompt_is_bound_or_is_not():
    text = "Who plays on January 15, 2024?"
    assert not bound_by_rule(text) and refresh(text, TODAY, WRITTEN).text == text
    assert refresh(text, TODAY, WRITTEN, bound=True).text == "Who plays on December 28, 2026?"
    booking = "A hotel on January 15, 2024"
    assert bound_by_rule(booking) and refresh(booking, TODAY, WRITTEN, bound=False).text == booking


def test_holidays_are_on_their_days():
    """Days from calendars."""
    known = {
        "Easter": ["2024-03-31", "2025-04-20", "2026-04-05", "2027-03-28", "2028-04-16"],
        "Good Friday": ["2024-03-29", "2025-04-18", "2026-04-03", "2027-03-26", "2028-04-14"],
        "Thanksgiving": ["2024-11-28", "2025-11-27", "2026-11-26", "2027-11-25", "2028-11-23"],
        "Black Friday": ["2024-11-29", "2025-11-28", "2026-11-27", "2027-11-26", "2028-11-24"],
        "Mother's Day": ["2024-05-12", "2025-05-11", "2026-05-10", "2027-05-09", "2028-05-14"],
        "Father's Day": ["2024-06-16", "2025-06-15", "2026-06-21", "2027-06-20", "2028-06-18"],
        "Memorial Day": ["2024-05-27", "2025-05-26", "2026-05-25", "2027-05-31", "2028-05-29"],
        "Labor Day": ["2024-09-02", "2025-09-01", "2026-09-07", "2027-09-06", "2028-09-04"],
    }
    for holiday in HOLIDAYS:
        days = [holiday.day(year).isoformat() for year in range(2024, 2029)]
        assert days == known.get(holiday.name, [f"{year}{days[0][4:]}" for year in range(2024, 2029)])
        assert holiday.near(holiday.day(2026)) == holiday.day(2026)
        # Names that contain another one ("Christmas Eve") are found first.
        found = find_holiday(f"A room on {holiday.name}", [date(2026, 6, 1)])
        assert found is not None and found[0] is holiday
    assert find_holiday("A room", [date(2026, 6, 1), date(2026, 12, 31)]) == (HOLIDAYS[2], date(2026, 12, 31))
    assert find_holiday("A room", [date(2026, 10, 31), date(2026, 7, 4)]) is None


@pytest.mark.parametrize(
    ("text", "rule", "why"),
    [
        ("Find the upcoming Neural conference in 2025 and a hotel", None, "names an event of 2025"),
        ("Buy the soonest Riverfest 2025 tickets", None, "names an event of 2025"),
        ("Buy 12 Superman 2025 movie tickets next Wednesday", None, "names an event of 2025"),
        ("Buy Mayhem 2026 tickets", None, "names an event of 2026, which may be over"),
        ("Buy Mayhem 2027 tickets", None, ""),
        ("Buy Stampede 2026 tickets on July 6", "event", "names an event of 2026, whose days have passed"),
        ("Buy Stampede 2026 tickets on July 6", "ahead", ""),
        ("A hotel in Rome in October 2026", None, "names October 2026, which has passed"),
        ("A hotel in Rome in November 2026", None, ""),
        ("A hotel in Rome from 6 March to 8 March 2024", "season", ""),
        (
            "Book brunch on the upcoming Sunday for Mother's Day",
            None,
            'says "upcoming Sunday", and Mother\'s Day is on 2027-05-09',
        ),
        ("Book dinner this week for Thanksgiving", None, ""),
        ("How many papers are accepted for CVPR 2023?", None, ""),
        ("Compare the price of a 2016 Hyundai grille; buy the Aliner 2025 Evolution", None, ""),
        ("A table on Sunday, please", None, ""),
    ],
)
def test_what_no_date_can_repair(text, rule, why):
    assert outdated(text, rule, TODAY) == why


def test_words_about_the_day_of_the_run():
    assert relative_words("Book for the upcoming Sunday, or next available Tuesday, or this weekend") == [
        "upcoming Sunday",
        "next available Tuesday",
        "this weekend",
    ]
    assert relative_words("Yesterday's games; flights in a month; a table on Thursday") == [
        "Yesterday",
        "in a month",
        "on Thursday",
    ]
    assert not relative_words("The next event in May, 5 days a week, a Sunday roast")


def test_a_return_before_the_departure_is_seen():
    def says(text):
        return inverted(resolve(find_mentions(text), WRITTEN))

    assert says("Stay November 20–14, 2025") and says("out 11/23/2025 and back 11/18/2025")
    assert not says("From Dec 10 returning January 7") and not says("On Dec 10, or Dec 4, or Dec 20")


def test_a_rubric_follows_its_prompt():
    prompt = refresh("Reserve a room on 12/19 for three nights", TODAY, date(2025, 11, 10))
    assert prompt.text == "Reserve a room on 01/01 for three nights"
    text = "12/19 (Friday) to Dec 22, 2025; rated 8/10; since 2019; not December 19 or 1/2"
    assert follow(text, prompt).text == (
        "01/01 (Friday) to Jan 4, 2027; rated 8/10; since 2019; not January 1 or 1/2"
    )
    holiday = refresh("A room on Christmas, 12/25/2025", TODAY, date(2025, 11, 10))
    assert follow("12/25/2025 (Thursday) only", holiday).text == "12/25/2026 (Friday) only"
    unchanged = refresh("Buy a calendar", TODAY, WRITTEN)
    assert follow(text, unchanged).text == text


def test_a_users_prompt_takes_the_rubric_along_if_its_days_moved_together():
    old = "A room from Dec 20 to Dec 23, 2023"
    found = override(old, "A room from Jan 2 to Jan 5, 2027", TODAY, WRITTEN)
    assert (found.rule, found.days) == ("override", 1109)
    assert follow("Check-in Dec 20", found).text == "Check-in Jan 2"
    for new in ("A room next week", "A room from Jan 2 to Jan 6, 2027", "A room from Jan 2-5, 2027"):
        found = override(old, new, TODAY, WRITTEN)
        assert (found.text, found.days, follow("Check-in Dec 20", found).text) == (new, 0, "Check-in Dec 20")


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
    shift = timedelta(days=found.days)
    moved = [day + shift for day in days]
    assert found.text == "Book a flight: {}.".format(", then ".join(map(write, moved)))
    assert min(moved) >= today + timedelta(days=lead_days)
    assert found.days % 7 == 0 or found.rule == "holiday"
    if min(days) >= today + timedelta(days=lead_days):
        assert found.rule == "ahead" and not found.days
    elif found.rule == "lead":
        assert found.lead is not None
        was, now = found.lead
        # A date that had passed when it was written is meant for another year, but not for the end of it.
        assert now < max(was % 365, lead_days) + 7 and (was < 0 or now >= max(was, lead_days))
    elif found.rule == "season":
        assert (min(days) - anchor).days % 365 > 45 and (min(moved) - today).days <= max(336, lead_days + 70)
        apart = abs(min(moved).timetuple().tm_yday - min(days).timetuple().tm_yday)
        assert min(apart, 365 - apart) <= 10
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
    moved = [day + timedelta(days=found.days) for day in (first, last)]
    assert found.text == f"A room for {write(*moved)}." and moved[0] >= today
    assert refresh(found.text, today, today, lead_days=0).text == found.text
