import pytest

from rmsweb_jax.actions import explain_response
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import ACTIONS
from tests.actions.replies import one, query, reply, score, typed
from tests.actions.reward_cases import CASES
from tests.actions.reward_text_cases import TEXT_CASES

# A text is judged alike in every field where similarity counts.
TEXT_FIELDS = {
    "text": lambda text: typed(2, text),
    "query": query,
    "content": lambda text: one("write_file", file_name="a.md", content=text),
}


@pytest.mark.parametrize(("predicted", "target", "level", "why"), CASES)
def test_edge_case(predicted, target, level, why):
    assert score(predicted, target) == level, why


@pytest.mark.parametrize(("text", "target", "level", "why"), TEXT_CASES)
def test_text_edge_case(text, target, level, why):
    for field, action in TEXT_FIELDS.items():
        pair = explain_response(reply(action(text)), reply(action(target))).pairs[0]
        assert (pair.level, pair.field) == (level, field), why
        assert score(action(target), action(text)) == level, f"{why}, the other way round"


def test_tables_cover_every_action_and_level():
    targets = [normalize_action(target).name for _, target, _, _ in CASES]
    assert set(targets) == set(ACTIONS)
    assert len(CASES) >= 150
    assert len(TEXT_CASES) >= 100
    levels = {(name, level) for name, (_, _, level, _) in zip(targets, CASES, strict=True)}
    without_core = {"go_back", "switch_tab", "close_tab", "get_dropdown_options"}
    without_core |= {"double_click_element", "drag_element", "hover_element"}
    assert {name for name, level in levels if level == 0.7} == set(ACTIONS) - without_core
    assert {name for name, level in levels if level == 0.3} == set(ACTIONS) - {"go_back", "wait"}


def test_cases_are_unique():
    assert len({repr(case[:2]) for case in CASES}) == len(CASES)
    assert len({case[:2] for case in TEXT_CASES}) == len(TEXT_CASES)
