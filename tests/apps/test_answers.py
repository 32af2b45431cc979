"""Answers count by the value that they give, however it is written, and hedges do not."""

from __future__ import annotations

import datetime

import pytest

from collection.environments.apps.answers import Answer

PRIORITY = Answer("trivial", ("blocker", "critical", "major", "minor"))
NAME = Answer("Ann Lee", ("Ann Leeds", "Bob Ray"))
COUNT, PRICE, BALANCE = Answer(7), Answer(1250.5), Answer(-3.2)
DAY = Answer(datetime.date(2026, 1, 31))


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        *(
            (PRIORITY, text)
            for text in ("trivial", "Trivial", " trivial.", '"trivial"', "The priority is trivial.")
        ),
        *((NAME, text) for text in ("Ann Lee", "ann  lee", "It is Ann Lee's.", "The owner: Ann Lee")),
        *((COUNT, text) for text in ("7", "7.", "7.0", "There are 7.", "**7**", "7 tickets")),
        *((PRICE, text) for text in ("1250.50", "1,250.50", "€1,250.50", "It costs 1250.5 euros.")),
        *(
            (BALANCE, text)
            for text in ("-3.20", "\u22123.2", "The balance is -3.20.", "minus 3.20", "-\u00a33.20")
        ),
        *((DAY, text) for text in ("2026-01-31", "January 31, 2026", "31 January 2026", "On 2026-01-31.")),
        *((DAY, text) for text in ("It was paid on 31 Jan 2026.", "Saturday, January 31st, 2026")),
        (Answer("not set", ("set",)), "It is not set."),
        (Answer("no", ("yes",)), "No."),
        (Answer("2.2", ("2.1",)), "It is section 2.2."),
    ],
)
def test_the_right_value_counts_however_it_is_written(answer: Answer, given: str) -> None:
    assert answer.accepts(given)


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        *(
            (PRIORITY, text)
            for text in ("", "minor", "trivial or minor", "not trivial", "trivial, critical", "trivially")
        ),
        *(
            (NAME, text)
            for text in ("Ann", "Ann Leeds", "It is Ann Leeds.", "Ann Lee and Bob Ray", "Ann Lee or so")
        ),
        *(
            (COUNT, text)
            for text in ("", "8", "7 or 8", "70", "7.5", "-7", "seven or 6", "1,7", "2027-07-07")
        ),
        *((Answer("2.2", ("2.1",)), text) for text in ("3.0, 2.2", "2.2. 3.0", "3.2.2", "2.2 and 7")),
        *((PRICE, text) for text in ("1250", "1250.5 or 12", "125.05", "1.250,50")),
        *((BALANCE, text) for text in ("3.20", "+3.20")),
        *((Answer(3.2), text) for text in ("minus 3.20", "- 3.20", "-\u00a33.20")),
        *((COUNT, text) for text in ("It isn\u2019t 7", "I don't know, 7", "anything but 7", "7 is wrong")),
        (Answer(7, ("none",)), "none. 7"),
        (Answer("Ann Lee"), "Ann Lee, Bob Ray"),
        *(
            (DAY, text)
            for text in ("", "2026-01-30", "2026-01-31 or 2026-02-01", "31", "January 2026", "no date")
        ),
        *((DAY, text) for text in ("31 January 2026 or 1 February 2026", "31 January", "not on 2026-01-31")),
        (PRIORITY, f"{'Page after page. ' * 20} trivial"),
        (Answer("no", ("yes",)), "I do not know."),
    ],
)
def test_another_value_or_a_hedge_does_not(answer: Answer, given: str) -> None:
    assert not answer.accepts(given)


def test_numbers_of_the_question_may_be_repeated() -> None:
    words = 'How many lamps has "Pier 12"?'
    assert COUNT.accepts("Pier 12 has 7 lamps.", words)
    assert not COUNT.accepts("Pier 12 has 8 lamps.", words)
    assert not COUNT.accepts("12, 7", words)
    assert not COUNT.accepts("Pier 12 has 7 or 8 lamps.", words)
    assert Answer(12).accepts("12", words) and Answer(12).accepts("Pier 12 has 12.", words)


_DAY = datetime.date(2009, 5, 1)
_NAMES = frozenset({"Wren Island", "Great Wren Island"})


@pytest.mark.parametrize(
    ("value", "given", "passes"),
    [
        (("Wren Island", 12), "Wren Island, 12", True),
        (("Wren Island", 12), "It has 12 more: wren island.", True),
        (("Wren Island", 12), "Wren Island, 13", False),
        (("Wren Island", 12), "Wren Island, 12 or 13", False),
        (("Wren Island", 12), "Wren Island", False),
        (("Wren Island", 12), "12", False),
        (("Wren Island", 12), "Corran Island, 12", False),
        (("Wren Island", 12), "Wren Island and Corran Island, 12", False),
        (("Wren Island", _DAY), "Wren Island, 1 May 2009", True),
        (("Wren Island", _DAY), "2009-05-01: Wren Island", True),
        (("Wren Island", _DAY), "Wren Island, 2 May 2009", False),
        (("Wren Island", "Rook"), "Wren Island, by Rook", True),
        (("Wren Island", "Rook"), "Rook, Wren Island", False),
        ((3, 4), "First 3, then 4", True),
        ((3, 4), "4, 3", False),
        (frozenset({3, 4}), "4, 3", True),
        (_NAMES, "Great Wren Island; Wren Island", True),
        (_NAMES, "Great Wren Island", False),
        (_NAMES, "Wren Island, not Great Wren Island", False),
        (_NAMES, "Great Wren Island, Wren Island, Corran Island", False),
    ],
)
def test_an_answer_gives_all_values_and_no_other(value, given: str, passes: bool) -> None:
    assert Answer(value, ("Corran Island",)).accepts(given) is passes


def test_numbers_of_the_question_may_be_repeated_next_to_several() -> None:
    assert Answer((3, 4)).accepts("Of the 12 islands, 3 and 4", "Which of the 12 islands ...?")
