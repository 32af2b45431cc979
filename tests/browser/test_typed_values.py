"""What a field holds after typing is read back."""

import pytest

from collection.browser.actions import execute
from collection.browser.pages import ActionContext
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action


@pytest.fixture
def fields(browser, local_pages):
    browser.goto(f"{local_pages}/typed.html")
    return browser


def enter(browser, name, text, **params):
    """Types into the field of that id; returns the result with the field's number as N."""
    snapshot = take_snapshot(browser)
    index = next(number for number, line in lines(snapshot) if f"id={name} " in f"{line} ")
    result = execute(
        browser, normalize_action({"input_text": {"index": index, "text": text, **params}}), ActionContext()
    )
    return result.error, result.text.replace(f"[{index}]", "[N]")


def lines(snapshot):
    for line in snapshot.page_text.splitlines():
        head, bracket, rest = line.strip().lstrip("*").partition("]")
        if bracket and head.startswith("["):
            yield int(head[1:]), rest.replace("<", " ").replace("/>", " ").replace(">", " ")


@pytest.mark.parametrize(
    "name,text",
    [
        ("date", "2026-12-25"),
        ("time", "08:30"),
        ("week", "2027-W05"),
        ("colour", "#ff8800"),
        ("range", "7"),
        ("number", "12.5"),
        ("phone", "2025550143"),
        ("plain", "new"),
        ("area", "two\nlines"),
        ("rich", "words"),
        ("editor", "words"),
        ("framed", "words"),
        ("form", "gone with the form\n"),
    ],
)
def test_what_is_taken_is_reported_as_typed(fields, name, text):
    assert enter(fields, name, text) == (False, f"Typed {text!r} into [N]")


@pytest.mark.parametrize(
    "name,text,hint",
    [
        ("date", "12/25/2026", "YYYY-MM-DD"),
        ("time", "half past eight", "HH:MM, of 24 hours"),
        ("week", "5", "YYYY-Www, as 2027-W05"),
        ("number", "twelve", "a number"),
    ],
)
def test_a_field_that_wants_another_format_says_which(fields, name, text, hint):
    assert enter(fields, name, text) == (True, f"[N] did not take {text!r}: write it as {hint}")


def test_a_text_that_is_not_taken_is_an_error(fields):
    assert enter(fields, "fixed", "new") == (True, "[N] did not take 'new'; it holds 'old'")
    assert enter(fields, "slider", "40") == (
        True,
        "[N] does not tell its value: click it, then press ArrowRight with send_keys",
    )


def test_a_text_that_is_changed_is_shown(fields):
    """Fields may empty themselves when they have taken it: tags, codes, messages of a chat."""
    assert enter(fields, "digits", "abc") == (False, "Typed 'abc' into [N], which now holds ''")
    assert enter(fields, "tags", "react,") == (False, "Typed 'react,' into [N], which now holds ''")
    # A property that the page has defined says nothing about the field.
    assert enter(fields, "odd", "7") == (False, "Typed '7' into [N]")
    assert enter(fields, "moment", "2027-01-05 14:30") == (
        False,
        "Typed '2027-01-05 14:30' into [N], which now holds '2027-01-05T14:30'",
    )
    assert enter(fields, "most", "25") == (False, "Typed '25' into [N], which now holds '10'")
    assert enter(fields, "short", "abcdefgh") == (False, "Typed 'abcdefgh' into [N], which now holds 'abcd'")
    assert enter(fields, "range", "70") == (False, "Typed '70' into [N], which now holds '10'")
    assert enter(fields, "plain", "er", clear_existing=False) == (False, "Typed 'er' into [N]")
