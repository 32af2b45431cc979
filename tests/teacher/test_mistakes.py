"""Mistakes and the guidance against them, without a browser."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.llm.actor import DONE_ONLY, ReflectionRequest
from collection.teacher import mistakes
from collection.teacher.mistakes import KINDS, MistakeConfig, apply_mistake, draw_mistake
from collection.teacher.parts import Press, Tick, Type, make_plan, next_move
from collection.teacher.state import parse_state
from collection.teacher.teacher import ScriptedTeacher
from tests.agent.state_messages import state_text

LOGIN = 'Enter the username "keli" and the password "3hI" into the text fields and press login.'
EPISODES = 2000


def draws(config, plan, warned=()):
    return Counter(
        mistake.kind if (mistake := draw_mistake(config, plan, f"t{number}", 1, warned)) else "none"
        for number in range(EPISODES)
    )


def test_rate_and_shares():
    counts = draws(MistakeConfig(rate=0.45), make_plan(LOGIN))
    assert abs(1 - counts["none"] / EPISODES - 0.45) < 0.04
    for kind in KINDS:
        assert abs(counts[kind] / EPISODES - 0.45 / 4) < 0.03


def test_a_warning_lowers_its_kind_alone():
    config = MistakeConfig(rate=0.45, heeded=0.15)
    counts = draws(config, make_plan(LOGIN), warned=("premature_done",))
    assert abs(counts["premature_done"] / EPISODES - 0.15 * 0.45 / 4) < 0.02
    assert abs(counts["wrong_index"] / EPISODES - 0.45 / 4) < 0.03


def test_single_step_requests_have_nothing_to_skip():
    counts = draws(MistakeConfig(rate=1.0), make_plan("Click button ONE."))
    assert counts["skipped_field"] == 0 and counts["none"] == 0


def test_plans():
    assert make_plan(LOGIN) == (Type("keli", "username"), Type("3hI", "password"), Press("Login", "button"))
    names = ("a B", "c")
    assert make_plan("Select a B, c and click Submit.")[:2] == (Tick("a B", names), Tick("c", names))
    assert make_plan("Select nothing and click Submit.") == (Press("Submit", "button"),)
    assert make_plan("Buy me a horse.") is None


@pytest.mark.parametrize(
    "goals,success,found",
    [
        (["Type 'keli' into 'username'", "Finish"], False, ["premature_done"]),
        (["Type 'keli' into 'username'", "Click 'Login'", "Finish"], False, ["skipped_field"]),
        (
            ["Type 'keli' into 'password'", "Type '3hI' into 'password'", "Click 'Login'", "Finish"],
            False,
            ["wrong_index"],
        ),
        (
            ["Scroll down", "Type 'keli' into 'username'", "Type '3hI' into 'password'", "Click 'Login'"],
            True,
            ["needless_scroll"],
        ),
    ],
)
def test_diagnosis_from_the_summary_alone(goals, success, found):
    summary = "\n".join(
        f"{number}. http://a.test/ | | goal: {goal} | 1 actions" for number, goal in enumerate(goals, 1)
    )
    outcome = "reached the goal" if success else "did not reach the goal: it declared completion"
    request = ReflectionRequest("t", 1, LOGIN, summary, outcome, "")
    text = ScriptedTeacher(MistakeConfig()).reflect(request).text
    assert mistakes.warnings_in(text) == set(found)


def test_earlier_guidance_is_kept():
    summary = "1. http://a.test/ | | goal: Finish | 1 actions"
    text = mistakes.write_guidance(LOGIN, summary, False, mistakes._ADVICE["skipped_field"][0])
    assert mistakes.warnings_in(text) == {"skipped_field", "premature_done"}


@given(st.integers(0, 10_000), st.sampled_from(KINDS))
def test_a_mistaken_move_is_coherent(number, kind):
    """The goal names the element that the action uses."""
    page = "[1]<input id=username />\n[2]<input id=password type=password />\n[3]<button />\n\tLogin"
    view = parse_state(state_text(page_text=page).replace("Do it.", LOGIN), DONE_ONLY)
    plan = make_plan(view.request)
    config = MistakeConfig(rate=1.0, weights={kind: 1.0})
    mistake = draw_mistake(config, plan, f"t{number}", 1, ())
    move = apply_mistake(mistake, view, next_move(view, plan, mistake.part), ("t", number))
    assert mistake.kind == kind
    if move.target is None:
        assert move.goal in ("Finish", "Scroll down", "Scroll up")
        return
    ((_, params),) = move.action.items()
    element = next(element for element in view.elements if element.index == params["index"])
    assert move.goal.endswith(f"'{element.label}'")
