"""Policies with a planted mistake, without a browser."""

import random

import pytest

from collection.teacher.state import ParsedState, StateElement
from tests.apps.actor import Page, click, done, type_in
from tests.mining.truth.erring import Mistake, erring, plan

WORLD = {"people": {"anna": {"city": "Graz"}, "ben": {"city": "Linz"}}}
LINES = ("Start", "[1]<input name=who />", "[2]<a />", "Save", "[3]<a />", "Delete")


def page() -> Page:
    elements = (
        StateElement(1, "input", {"name": "who"}, "", "", ""),
        StateElement(2, "a", {"href": "/save"}, "Save", "", ""),
        StateElement(3, "a", {"href": "/delete"}, "Delete", "", ""),
    )
    state = ParsedState("Give it to anna.", (), 1, elements, LINES, 0.0, 0.0, False, "")
    return Page(state, "http://a.test/form")


def policy(_):
    yield "Type", [type_in(1, "anna")]
    yield "Save", [click(2)]
    yield done("Saved.")


def played(mistake: Mistake, seed: int = 0) -> list:
    """What the policy with a mistake does, up to its `done`."""
    moves = erring(policy, mistake, WORLD, random.Random(seed))(page())
    found = [next(moves)[1]]
    while "done" not in found[-1][0]:
        found.append(moves.send(page())[1])
    return found


@pytest.mark.parametrize(
    ("mistake", "moves"),
    [
        (Mistake(1, "value"), [[type_in(1, "ben")], [click(2)], done("Saved.")[1]]),
        (Mistake(2, "element"), [[type_in(1, "anna")], [click(3)], done("Saved.")[1]]),
        (Mistake(1, "skip"), [[click(2)], done("Saved.")[1]]),
    ],
)
def test_one_step_is_spoiled_and_the_policy_goes_on(mistake, moves):
    assert played(mistake) == moves


def test_a_run_that_ends_too_early_answers_with_a_line_of_the_page():
    first, last = played(Mistake(2, "early"))
    assert first == [type_in(1, "anna")]
    assert last[0]["done"]["text"] in LINES


def test_a_policy_that_is_lost_ends_soon():
    def breaks(_):
        yield "Type", [type_in(1, "anna")]
        raise ValueError("no such page")

    moves = erring(breaks, Mistake(9, "value"), WORLD, random.Random(0))(page())
    steps = [next(moves)[1]]
    while "done" not in steps[-1][0]:
        steps.append(moves.send(page())[1])
    assert len(steps) <= 5


def test_mistakes_are_drawn_at_any_step():
    moves = [[type_in(1, "anna")], [click(2)], done("Saved.")[1]]
    drawn = {
        plan(moves, [page()] * 3, asks, random.Random(seed)) for asks in (False, True) for seed in range(99)
    }
    assert {one.step for one in drawn} == {1, 2, 3}
    assert {one.kind for one in drawn if one.step == 3} == {"value"}
    assert Mistake(1, "element") not in drawn  # There is no other field.
