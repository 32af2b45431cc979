import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.actions import explain_response, score_response
from rmsweb_jax.actions.parse import normalize_action, parse_reply
from rmsweb_jax.actions.reward import exact_response, text_response
from rmsweb_jax.actions.rules import compare_actions
from rmsweb_jax.actions.schema import ACTIONS
from tests.actions.replies import click, one, reply, score

LEVELS = (0.0, 0.3, 0.7, 1.0)
# Values that differ by little, by formatting, or by everything.
TEXTS = st.sampled_from(
    ["", "a b", "A B", "100", "1000", "1,000", "iPhone 15", "iPhone 15 Pro", "x/y", "x/y/"]
)
PARAMETERS = {
    "text": TEXTS,
    "query": TEXTS,
    "content": TEXTS,
    "old_str": TEXTS,
    "new_str": TEXTS,
    "code": st.sampled_from(["f(1)", "f( 1)", "f(10)"]),
    "keys": st.sampled_from(["a", "A", "Enter", "Return", "Control+a", "ctrl+A"]),
    "file_name": st.sampled_from(["a.md", "./a.md", "b.md"]),
    "path": st.sampled_from(["cv.pdf", "./cv.pdf", "b.pdf"]),
    "url": st.sampled_from(
        ["https://a.org/x", "a.org/x/", "https://a.org/x?q=1", "https://b.org", "javascript:1"]
    ),
    "engine": st.sampled_from(["duckduckgo", "bing"]),
    "tab_id": st.sampled_from(["AB12", "AB13"]),
    "index": st.integers(1, 3),
    "frame_element_index": st.none() | st.integers(1, 2),
    "onto_index": st.integers(1, 3),
    "x": st.integers(0, 9),
    "y": st.integers(0, 9),
    "to_x": st.integers(0, 9),
    "to_y": st.integers(0, 9),
    "seconds": st.sampled_from([3, 5, 30, 60]),
    "start_from_char": st.sampled_from([0, 100]),
    "num_pages": st.sampled_from([0.5, 1.0, 2.0]),
    "files_to_display": st.sampled_from([[], ["a.md"], ["b.md"]]),
    "success": st.none() | st.booleans(),
}


def _action(name):
    fields = ACTIONS[name].model_fields
    return st.fixed_dictionaries({field: PARAMETERS.get(field, st.booleans()) for field in fields}).map(
        lambda params: {name: params}
    )


ANY = st.sampled_from(sorted(ACTIONS)).flatmap(_action)
PAIRS_OF_A_TYPE = st.sampled_from(sorted(ACTIONS)).flatmap(
    lambda name: st.tuples(_action(name), _action(name))
)
LISTS = st.lists(ANY, min_size=1, max_size=5)
FEW_TYPES = st.sampled_from(["click_element_by_index", "scroll", "input_text", "go_back"]).flatmap(_action)
SHORT_LISTS = st.lists(FEW_TYPES, min_size=1, max_size=4)


@given(PAIRS_OF_A_TYPE)
def test_one_action_each_has_one_of_four_levels_and_no_direction(pair):
    predicted, target = pair
    level = score(predicted, target)
    assert level in LEVELS
    assert level == compare_actions(normalize_action(predicted), normalize_action(target))[0]
    # No rule prefers a side: even a success flag that is missing has the same level either way.
    assert level == score(target, predicted)
    assert score(target, target) == 1.0


@given(ANY, ANY)
def test_another_type_is_wrong(predicted, target):
    if predicted.keys() != target.keys():
        assert score(predicted, target) == 0.0


@given(LISTS, LISTS)
def test_lists_score_between_zero_and_one_and_have_no_direction(first, second):
    forward = score_response(reply(*first), reply(*second))
    assert 0.0 <= forward <= 1.0
    assert forward == pytest.approx(score_response(reply(*second), reply(*first)))
    assert score_response(reply(*first), reply(*first)) == 1.0
    assert exact_response(reply(*first), reply(*second)) == (1.0 if forward == 1.0 else 0.0)
    assert 0.0 <= text_response(reply(*first), reply(*second)) <= 1.0


@given(LISTS, LISTS, st.randoms(use_true_random=False))
def test_order_of_keys_does_not_count(predicted, target, chance):
    def shuffled(value):
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    response = reply(*predicted)
    assert score_response(json.dumps(shuffled(json.loads(response))), reply(*target)) == score_response(
        response, reply(*target)
    )


ALIASES = {
    "search_engine": ["search", "search_google"],
    "go_to_url": ["navigate"],
    "click_element_by_index": ["click"],
    "input_text": ["input"],
    "switch_tab": ["switch"],
    "close_tab": ["close"],
    "extract_structured_data": ["extract", "extract_content"],
    "scroll_to_text": ["find_text"],
    "get_dropdown_options": ["dropdown_options"],
    "select_dropdown_option": ["select_dropdown"],
    "upload_file_to_element": ["upload_file"],
    "replace_file_str": ["replace_file"],
    "execute_js": ["evaluate"],
}
PARAMETER_ALIASES = {"while_holding_ctrl": "ctrl", "clear_existing": "clear", "num_pages": "pages"}


@given(ANY, st.randoms(use_true_random=False))
def test_aliases_defaults_and_numbers_in_strings_are_exact(target, chance):
    ((name, params),) = target.items()
    spelt = {}
    for field, value in params.items():
        default = ACTIONS[name].model_fields[field].default
        # Files have a default that JSON writes as a list.
        if value == (list(default) if isinstance(default, tuple) else default):
            value = chance.choice([value, None])
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = chance.choice([value, str(value)])
        spelt[chance.choice([field, PARAMETER_ALIASES.get(field, field)])] = value
    response = {chance.choice([name, *ALIASES.get(name, [])]): spelt}
    assert score(response, target) == 1.0
    assert text_response(reply(response), reply(target)) == 1.0


@given(LISTS, ANY, st.integers(0, 5))
def test_a_wrong_action_more_lowers_an_exact_score_if_it_changes_what_is_executed(target, extra, position):
    longer, exact = reply(*target[:position], extra, *target[position:]), reply(*target)
    changes = parse_reply(longer).executable != parse_reply(exact).executable
    assert (score_response(longer, exact) < 1.0) == changes


def _best(predicted, wanted):
    """(summed level, summed weighted level) of the best of all order-preserving alignments."""
    if not predicted or not wanted:
        return 0.0, 0.0
    skipped = max(_best(predicted[1:], wanted), _best(predicted, wanted[1:]))
    level, _ = compare_actions(predicted[0], wanted[0])
    levels, weighted = _best(predicted[1:], wanted[1:])
    weight = 0.5 if wanted[0].params.passive else 1.0
    return max((round(levels + level, 6), round(weighted + weight * level, 6)), skipped)


@given(SHORT_LISTS, SHORT_LISTS)
def test_alignment_is_the_best_of_all(first, second):
    predicted, wanted = ([normalize_action(action) for action in actions] for actions in (first, second))
    explanation = explain_response(reply(*first), reply(*second))
    levels, weighted = _best(predicted, wanted)
    assert sum(pair.level for pair in explanation.pairs) == pytest.approx(levels)
    total = sum(0.5 if action.params.passive else 1.0 for action in predicted + wanted)
    assert explanation.score == pytest.approx(2 * weighted / total)
    for one_pair, next_pair in zip(explanation.pairs, explanation.pairs[1:], strict=False):
        assert one_pair.predicted < next_pair.predicted
        assert one_pair.target < next_pair.target


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(
        ["{}", "rent of {} a month", "flight {} to Rome", "the best laptops below {} euros in Spain"]
    ),
)
def test_another_number_is_never_similar(first, second, frame):
    action = {"search_engine": {"query": frame.format(first)}}
    assert score(action, {"search_engine": {"query": frame.format(second)}}) == (
        1.0 if first == second else 0.3
    )
    grouped = {"search_engine": {"query": frame.format(f"{first:,}")}}
    assert score(grouped, action) == (1.0 if first < 1000 else 0.7)


@given(st.dates(), st.dates())
def test_another_date_is_never_similar(first, second):
    formats = ["%Y-%m-%d", "%Y/%m/%d", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y"]
    for notation in formats:
        texts = [f"a table for four on {day.strftime(notation)} please" for day in (first, second)]
        assert score({"search": {"query": texts[0]}}, {"search": {"query": texts[1]}}) == (
            1.0 if first == second else 0.3
        )
        # strftime does not pad years before 1000.
        if first.year >= 1000:
            plain = f"a table for four on {first.isoformat()} please"
            assert score({"search": {"query": texts[0]}}, {"search": {"query": plain}}) >= 0.7


def test_symmetry_ends_where_a_reply_is_invalid():
    # A response may be invalid, a target may not: that is the only side that the reward takes.
    assert score(one("click"), click(3)) == 0.0
    with pytest.raises(ValueError, match="index"):
        score(click(3), one("click"))
