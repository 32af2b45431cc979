import math
import pickle

import pytest
from rapidfuzz import fuzz

from rmsweb_jax.actions import ReplyError, Target, explain_response, score_response
from rmsweb_jax.actions.reward import REWARDS, exact_response, target_type, text_response
from rmsweb_jax.actions.rules import RULES
from rmsweb_jax.actions.schema import ACTIONS
from rmsweb_jax.records.schema import Window
from tests.actions.replies import click, done, one, query, reply, score, scroll, typed, url

# The recipe's table: target, then a response of level 1.0, of 0.7 and of 0.3; None where there is none.
LEVELS = {
    "click_element_by_index": (click(3), click(3), click(3, while_holding_ctrl=True), click(4)),
    "scroll": (scroll(True, 1), scroll(True, 1), scroll(True, 2), scroll(False, 1)),
    "input_text": (typed(2, "London"), typed(2, "London"), typed(2, "london"), typed(2, "Paris")),
    "go_to_url": (
        url("https://a.org/x"),
        url("https://a.org/x"),
        url("https://a.org/x?p=1"),
        url("https://b.org/x"),
    ),
    "search_engine": (query("jax docs"), query("jax docs"), query("jax doc"), query("weather in Oslo")),
    "switch_tab": (
        one("switch_tab", tab_id="AB12"),
        one("switch", tab_id="AB12"),
        None,
        one("switch", tab_id="AB13"),
    ),
    "close_tab": (
        one("close_tab", tab_id="AB12"),
        one("close", tab_id="AB12"),
        None,
        one("close", tab_id="AB13"),
    ),
    "done": (done("42", True), done("42", True), done("43", True), done("42")),
    "go_back": (one("go_back"), one("go_back"), None, None),
    "wait": (one("wait", seconds=3), one("wait"), one("wait", seconds=9), None),
    "send_keys": (
        one("send_keys", keys="Control+a"),
        one("send_keys", keys="Control+a"),
        one("send_keys", keys="control+A"),
        one("send_keys", keys="Control+c"),
    ),
    "scroll_to_text": (
        one("scroll_to_text", text="Prices"),
        one("find_text", text="Prices"),
        one("scroll_to_text", text="prices"),
        one("scroll_to_text", text="Terms"),
    ),
    "extract_structured_data": (
        one("extract", query="prices"),
        one("extract_content", query="prices"),
        one("extract", query="prices", extract_links=True),
        one("extract", query="opening hours"),
    ),
    "get_dropdown_options": (
        one("get_dropdown_options", index=4),
        one("dropdown_options", index=4),
        None,
        one("dropdown_options", index=5),
    ),
    "select_dropdown_option": (
        one("select_dropdown_option", index=4, text="Red"),
        one("select_dropdown", index=4, text="Red"),
        one("select_dropdown", index=4, text="red"),
        one("select_dropdown", index=4, text="Blue"),
    ),
    "upload_file_to_element": (
        one("upload_file_to_element", index=2, path="cv.pdf"),
        one("upload_file", index=2, path="cv.pdf"),
        one("upload_file", index=2, path="./cv.pdf"),
        one("upload_file", index=2, path="photo.png"),
    ),
    "write_file": (
        one("write_file", file_name="a.md", content="Prices"),
        one("write_file", file_name="a.md", content="Prices", append=False),
        one("write_file", file_name="a.md", content="prices"),
        one("append_file", file_name="a.md", content="Prices"),
    ),
    "replace_file_str": (
        one("replace_file_str", file_name="a.md", old_str="x", new_str="y"),
        one("replace_file", file_name="a.md", old_str="x", new_str="y"),
        one("replace_file", file_name="a.md", old_str="x", new_str="Y"),
        one("replace_file", file_name="a.md", old_str="X", new_str="y"),
    ),
    "read_file": (
        one("read_file", file_name="a.md"),
        one("read_file", file_name="a.md"),
        one("read_file", file_name="./a.md"),
        one("read_file", file_name="b.md"),
    ),
    "execute_js": (
        one("execute_js", code="f(1); g()"),
        one("evaluate", code="f(1); g()"),
        one("execute_js", code="f(1);\ng()"),
        one("execute_js", code="f(2); g()"),
    ),
    "click_coordinates": (
        one("click_coordinates", x=10, y=20),
        one("click_coordinates", x="10", y=20.0),
        one("click_coordinates", x=12, y=18),
        one("click_coordinates", x=10, y=40),
    ),
    "drag_coordinates": (
        one("drag_coordinates", x=10, y=20, to_x=30, to_y=40),
        one("drag_coordinates", x="10", y=20.0, to_x=30, to_y=40),
        one("drag_coordinates", x=12, y=20, to_x=30, to_y=36),
        one("drag_coordinates", x=10, y=20, to_x=30, to_y=60),
    ),
    "hover_coordinates": (
        one("hover_coordinates", x=10, y=20),
        one("hover_coordinates", x="10", y=20.0),
        one("hover_coordinates", x=12, y=18),
        one("hover_coordinates", x=10, y=40),
    ),
    "scroll_coordinates": (
        one("scroll_coordinates", x=10, y=20, down=True, num_pages=1),
        one("scroll_coordinates", x="10", y=20.0, down=True, num_pages=1.0),
        one("scroll_coordinates", x=10, y=20, down=True, num_pages=2),
        one("scroll_coordinates", x=10, y=20, down=False, num_pages=1),
    ),
    "double_click_element": (
        one("double_click_element", index=4),
        one("double_click_element", index="4"),
        None,
        one("double_click_element", index=5),
    ),
    "drag_element": (
        one("drag_element", index=4, onto_index=5),
        one("drag_element", index="4", onto_index=5),
        None,
        one("drag_element", index=4, onto_index=6),
    ),
    "hover_element": (
        one("hover_element", index=4),
        one("hover_element", index="4"),
        None,
        one("hover_element", index=5),
    ),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_levels_of_every_action(name):
    target, *responses = LEVELS[name]
    for response, level in zip(responses, (1.0, 0.7, 0.3), strict=True):
        assert response is None or score(response, target) == level
    other = scroll(True, 1) if name != "scroll" else click(1)
    ((key, params),) = target.items()
    for wrong in (other, {key: params | {"unknown": 1}}, {key: "text"}, {"fly": params}):
        assert score(wrong, target) == 0.0


def test_levels_outside_the_recipes_table():
    # A wrong index, frame, direction, tab or path; a flag that is missing, and one that is wrong.
    assert score(typed(3, "London"), typed(2, "London")) == 0.3
    assert score(scroll(True, 1, 4), scroll(True, 1)) == 0.3
    assert score(url("https://a.org/y"), url("https://a.org/x")) == 0.3
    assert score(done("42", False), done("42", True)) == 0.0
    assert set(RULES) == set(ACTIONS) == set(LEVELS)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "null",
        "[]",
        "{",
        reply(click(3))[:-1],
        reply(click(3)) + "}",
        "```json\n" + reply(click(3)) + "\n```",
        reply(),
        reply(click(3), confidence=1),
        reply({}),
        reply({"click": {"index": 3}, "go_back": {}}),
        reply({"fly": {}}),
        reply("go_back"),
        reply({"click": [3]}),
        reply(click(3)).replace("3", "NaN"),
        reply(click(3)).replace('"memory"', '"memory": "", "memory"'),
        reply(click(3)).replace('"memory": "", ', ""),
        reply(click(3)).replace('"memory": ""', '"memory": null'),
        reply(click(3)).replace('"memory": ""', '"memory": "\\ud800"'),
        "[" * 100_000,
        "9" * 5000,
    ],
)
def test_a_reply_that_does_not_parse_scores_zero(response):
    explanation = explain_response(response, reply(click(3)))
    assert explanation.score == 0.0
    assert explanation.error
    assert "\n" not in explanation.error


def test_free_text_and_thinking_do_not_count():
    response = reply(click(3), thinking="hm").replace("Success", "Failed")
    assert score_response(response, reply(click(3))) == 1.0


def test_invalid_target_is_an_error():
    with pytest.raises(ReplyError):
        score_response(reply(click(3)), "{}")


def test_several_actions_soft_f1():
    target = reply(typed(1, "Ann"), typed(2, "secret"), click(3))
    assert score_response(target, target) == 1.0
    assert score_response(reply(typed(1, "Ann"), typed(2, "secret")), target) == pytest.approx(2 * 2 / 5)
    assert score_response(reply(typed(1, "Ann"), typed(2, "secret"), click(4)), target) == pytest.approx(
        2.3 / 3
    )
    # A passive extra costs half of an active one.
    with_scroll = reply(typed(1, "Ann"), typed(2, "secret"), click(3), scroll(True, 1))
    assert score_response(with_scroll, target) == pytest.approx(2 * 3 / 6.5)
    # Order matters: only one of two swapped actions can be aligned exactly.
    assert score_response(reply(click(1), typed(2, "b")), reply(typed(2, "b"), click(1))) == pytest.approx(
        0.5
    )


def test_what_would_not_be_executed_is_not_scored():
    """`done` in front is executed alone, and nothing from a later `done` on."""
    assert score_response(reply(done("x"), click(5)), reply(click(5))) == 0.0
    assert score_response(reply(click(5), done("x")), reply(click(5))) == 1.0
    assert score_response(reply(click(5)), reply(click(5), done("x"))) == 1.0


def test_alignment_takes_the_best_of_several():
    explanation = explain_response(reply(click(9), click(3)), reply(click(3)))
    assert [(pair.predicted, pair.target, pair.level) for pair in explanation.pairs] == [(1, 0, 1.0)]
    assert explanation.score == pytest.approx(2 / 3)


def test_explanation_names_the_deciding_field():
    explanation = explain_response(reply(typed(2, "1000")), reply(typed(2, "100")))
    assert (explanation.pairs[0].level, explanation.pairs[0].field) == (0.3, "text")


def test_explanation_names_the_deciding_field_of_every_type():
    for name, (target, *_responses, other) in LEVELS.items():
        if other is not None:
            (pair,) = explain_response(reply(other), reply(target)).pairs
            assert pair.field in ACTIONS[name].model_fields
    (pair,) = explain_response(reply(done("x", True, files_to_display=["a"])), reply(done("x", True))).pairs
    assert (pair.level, pair.field) == (0.7, "files_to_display")


TARGET = reply(typed(1, "Ann"), click(3))


def test_rewards_are_named():
    assert {"polarized": score_response, "binary": exact_response, "text": text_response} == REWARDS
    for reward in REWARDS.values():
        assert reward(TARGET, TARGET) == 1.0
        assert reward("{", TARGET) == reward(reply(), TARGET) == 0.0
        with pytest.raises(ReplyError):
            reward(TARGET, "{}")


def test_binary_reward_is_one_only_for_exact():
    assert exact_response(reply(one("input", text="Ann", index="1"), one("click", index=3)), TARGET) == 1.0
    assert exact_response(reply(typed(1, "ann"), click(3)), TARGET) == 0.0
    assert exact_response(reply(typed(1, "Ann")), TARGET) == 0.0


def test_text_reward_compares_canonical_action_lists():
    ours = '[{"click_element_by_index":{"index":18}}]'
    theirs = '[{"click_element_by_index":{"index":19}}]'
    near = text_response(reply(one("click", index="18", ctrl=False)), reply(click(19)))
    assert near == pytest.approx(fuzz.ratio(ours, theirs) / 100)
    # What the polarized reward is there for: another element looks nearly right to a text.
    assert near > 0.95
    assert score(click(18), click(19)) == 0.3
    assert 0.0 < text_response(reply(query("jax")), TARGET) < 0.5
    assert text_response(reply(one("input", index=1, text="Ann"), one("click", index=3)), TARGET) == 1.0


def test_target_type_is_the_first_action_that_does_something():
    assert (
        target_type(reply(scroll(True, 1), one("wait"), click(3), typed(1, "x"))) == "click_element_by_index"
    )
    assert target_type(reply(one("wait"), scroll(True, 1))) == "wait"
    assert target_type(reply(one("search", query="x"))) == "search_engine"
    with pytest.raises(ReplyError):
        target_type("{}")


def test_spacing_of_levels_passes_the_contrast_gate():
    # Seven of eight responses on one level, the eighth 0.3 apart: the standard deviation is 0.3 / sqrt(8).
    rewards = [score(click(3), click(3))] * 7 + [score(click(3, ctrl=True), click(3))]
    mean = sum(rewards) / 8
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 7)
    assert deviation == pytest.approx(0.3 / math.sqrt(8))
    assert deviation >= 0.10


@pytest.mark.parametrize(
    ("point", "boxes", "level"),
    [
        ((500, 300), (), 1.0),
        # 2 % of 1000 by 600 pixels.
        ((520, 288), (), 0.7),
        ((521, 300), (), 0.3),
        ((500, 313), (), 0.3),
        # Anywhere in the element, and only there; the smallest of nested ones.
        ((430, 281), ((400, 280, 600, 320),), 1.0),
        ((600, 300), ((400, 280, 600, 320),), 0.3),
        ((430, 281), ((400, 280, 600, 320), (490, 290, 510, 310)), 0.3),
        ((510, 300), ((490, 290, 510, 310),), 0.7),
        # A box that the target is not in says nothing.
        ((50, 50), ((0, 0, 100, 100),), 0.3),
    ],
)
def test_points_by_the_window_and_by_the_element_that_they_hit(point, boxes, level):
    def clicked(x, y):
        return reply(one("click_coordinates", x=x, y=y))

    target = Target(clicked(500, 300), Window(width=1000, height=600, boxes=boxes))
    assert score_response(clicked(*point), target) == level and target == clicked(500, 300)
    assert (
        score_response(target, target) == 1.0 and pickle.loads(pickle.dumps(target)).window == target.window
    )


def test_both_ends_of_a_drag_count():
    def dragged(x, to_x):
        return reply(one("drag_coordinates", x=x, y=10, to_x=to_x, to_y=10))

    target = Target(dragged(100, 300), Window(width=400, height=400, boxes=((80, 0, 120, 20),)))
    scores = [score_response(dragged(*ends), target) for ends in ((90, 300), (90, 305), (90, 320), (70, 300))]
    assert scores == [1.0, 0.7, 0.3, 0.3]
