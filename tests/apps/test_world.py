"""How worlds are compared: rows that the application numbers, values of which several are right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.environments.apps.world import Either, New, World, differences, drop, put

WORLD: World = {
    "people": {"ann": {"phone": "1"}, "bob": {"phone": "2"}},
    "notes": {3: {"text": "as made", "by": "ann", "replies": []}},
}
NOTE = {"text": "new", "by": "bob", "replies": []}


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (
            put(WORLD, "notes", 3, text="one\n\ntwo"),
            put(WORLD, "notes", 3, text="one \r\n\r\n\r\n\r\ntwo\r\n"),
        ),
        (put(WORLD, "notes", New(), **NOTE), put(WORLD, "notes", 7, **NOTE)),
        (
            put(put(WORLD, "notes", New("a"), **NOTE), "notes", New("b"), **{**NOTE, "by": "ann"}),
            put(put(WORLD, "notes", 4, **{**NOTE, "by": "ann"}), "notes", 5, **NOTE),
        ),
        # A row that names the new one.
        (
            put(put(WORLD, "notes", New(), **NOTE), "notes", 3, replies=[New()]),
            put(put(WORLD, "notes", 9, **NOTE), "notes", 3, replies=[9]),
        ),
        (put(WORLD, "people", "ann", phone=Either(("5", "55"))), put(WORLD, "people", "ann", phone="55")),
        (put(WORLD, "people", "ann", phone=2.0), put(WORLD, "people", "ann", phone=2)),
    ],
)
def test_what_is_meant_is_the_same(expected: World, actual: World) -> None:
    assert differences(expected, actual) == []


@pytest.mark.parametrize(
    ("actual", "found"),
    [
        (drop(WORLD, "people", "bob"), "people bob: missing"),
        (put(WORLD, "people", "eve", phone="3"), "people eve: there, but should not be"),
        (put(WORLD, "people", "bob", phone="1"), "people bob: phone is '1', not '2'"),
        (put(WORLD, "people", "bob", fax="1"), "people bob: fax is '1', not None"),
        ({**WORLD, "files": {1: {}}}, "files 1: there, but should not be"),
        ({"people": WORLD["people"]}, "notes 3: missing"),
    ],
)
def test_what_differs_is_one_line(actual: World, found: str) -> None:
    assert differences(WORLD, actual) == [found]


@pytest.mark.parametrize(
    "actual",
    [
        WORLD,
        put(WORLD, "notes", 7, **{**NOTE, "by": "ann"}),
        put(put(WORLD, "notes", 7, **NOTE), "notes", 8, **NOTE),
        put(WORLD, "notes", 3, **NOTE),
    ],
)
def test_a_new_row_is_there_once_and_as_it_was_asked_for(actual: World) -> None:
    assert differences(put(WORLD, "notes", New(), **NOTE), actual)


def test_a_row_that_names_another_than_the_new_one_differs() -> None:
    expected = put(put(WORLD, "notes", New(), **NOTE), "notes", 3, replies=[New()])
    assert differences(expected, put(put(WORLD, "notes", 9, **NOTE), "notes", 3, replies=[3]))


def test_many_rows_too_many_are_found_at_once() -> None:
    expected = put(WORLD, "notes", New("a"), **NOTE)
    for number in range(3):
        expected = put(expected, "people", New(f"{number}"), phone="7")
    actual = {**WORLD, "notes": dict.fromkeys(range(40), NOTE)}
    assert len(differences(expected, actual)) > 40


_VALUES = st.one_of(st.integers(0, 3), st.text("ab", max_size=2), st.lists(st.integers(0, 2), max_size=2))
_ROWS = st.dictionaries(st.integers(0, 3), st.dictionaries(st.sampled_from("xy"), _VALUES), max_size=3)
_WORLDS = st.fixed_dictionaries({"t": _ROWS, "u": _ROWS})


@given(_WORLDS, _WORLDS)
def test_worlds_of_plain_values_differ_as_their_values_do(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (differences(one, other) == []) == (one == other)
