import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.actions import ReplyError, explain_response, score_response
from rmsweb_jax.actions.parse import _ALIASES
from rmsweb_jax.actions.rules import RULES
from rmsweb_jax.actions.schema import ACTIONS


def reply(*actions, **extra):
    body = {"evaluation_previous_goal": "Success", "memory": "", "next_goal": "", "action": list(actions)}
    return json.dumps(extra | body)


def score(predicted, target):
    return score_response(reply(predicted), reply(target))


def click(index, **more):
    return {"click_element_by_index": {"index": index, **more}}


def typed(index, text, **more):
    return {"input_text": {"index": index, "text": text, **more}}


def url(address, **more):
    return {"go_to_url": {"url": address, **more}}


def query(text):
    return {"search_engine": {"query": text}}


def scroll(down, pages, frame=None):
    return {"scroll": {"down": down, "num_pages": pages, "frame_element_index": frame}}


def done(text, success=None, **more):
    return {"done": {"text": text, "success": success, **more}}


def one(name, **params):
    return {name: params}


TABLE = [
    # click
    (click(3), click(3), 1.0),
    (click("3"), click(3), 1.0),
    (click(3.0), click(3), 1.0),
    (one("click", index=3, ctrl=False), click(3), 1.0),
    (click(3, while_holding_ctrl=True), click(3), 0.7),
    (click(4), click(3), 0.3),
    (click(13), click(3), 0.3),
    (click(0), click(3), 0.0),
    (click(-3), click(3), 0.0),
    (click(True), click(1), 0.0),
    (click("three"), click(3), 0.0),
    (click(3, button="left"), click(3), 0.0),
    (typed(3, ""), click(3), 0.0),
    # scroll
    (scroll(True, 1), scroll(True, 1), 1.0),
    (scroll(True, "1.0"), scroll(True, 1), 1.0),
    (one("scroll_down"), scroll(True, 1), 1.0),
    (one("scroll_up", amount=500), scroll(False, 0.5), 1.0),
    (scroll(True, 2), scroll(True, 1), 0.7),
    (scroll(False, 1), scroll(True, 1), 0.3),
    (scroll(True, 1, 4), scroll(True, 1), 0.3),
    (scroll(True, -1), scroll(True, 1), 0.0),
    # input_text: values are never confused
    (typed(2, "London"), typed(2, "London"), 1.0),
    (typed(2, "London", clear_existing=True), typed(2, "London"), 1.0),
    (typed(2, "London", clear=False), typed(2, "London"), 0.7),
    (typed(2, "london "), typed(2, "London"), 0.7),
    (typed(2, "San  Francisco"), typed(2, "San Francisco"), 0.7),
    (typed(2, "San Fransisco"), typed(2, "San Francisco"), 0.7),
    (typed(3, "London"), typed(2, "London"), 0.3),
    (typed(2, "Paris"), typed(2, "London"), 0.3),
    (typed(2, "1000"), typed(2, "100"), 0.3),
    (typed(2, "budget of 1000 dollars a week"), typed(2, "budget of 100 dollars a week"), 0.3),
    (typed(2, "1,000"), typed(2, "1000"), 0.7),
    (typed(2, "1.5"), typed(2, "15"), 0.3),
    (typed(2, "12 3"), typed(2, "1 23"), 0.3),
    (typed(2, "-5"), typed(2, "5"), 0.3),
    (typed(2, "5%"), typed(2, "5"), 0.3),
    (typed(2, "$500 a month rent"), typed(2, "€500 a month rent"), 0.3),
    (typed(2, "2026-05-01"), typed(2, "2026-05-02"), 0.3),
    (typed(2, "2026/05/01"), typed(2, "2026-05-01"), 0.7),
    (typed(2, "meeting on 5 June 2026 at noon"), typed(2, "meeting on 5 July 2026 at noon"), 0.3),
    (typed(2, "arrive on Tuesday evening"), typed(2, "arrive on Thursday evening"), 0.3),
    (typed(2, "appointment at 10:30 am please"), typed(2, "appointment at 10:30 pm please"), 0.3),
    (typed(2, "RTX 4070 graphics card"), typed(2, "RTX 4080 graphics card"), 0.3),
    (typed(2, "ThinkPad X13 laptop computer"), typed(2, "ThinkPad T13 laptop computer"), 0.3),
    (typed(2, "iPhone 14 Pro Max 256GB"), typed(2, "iPhone 14 Pro 256GB"), 0.3),
    (typed(2, "iPhone14"), typed(2, "iPhone 14"), 0.7),
    (typed(2, "two adults and one child"), typed(2, "two adults and two child"), 0.3),
    (typed(2, "seating option B please"), typed(2, "seating option C please"), 0.3),
    (typed(2, "anna@example.com"), typed(2, "anne@example.com"), 0.3),
    (typed(2, "rooms with no smoking allowed"), typed(2, "rooms with smoking allowed"), 0.3),
    (typed(2, "C++ tutorial for beginners"), typed(2, "C# tutorial for beginners"), 0.3),
    (typed(2, 100), typed(2, "100"), 0.0),
    # go_to_url
    (url("https://a.org/x?p=1"), url("https://a.org/x?p=1"), 1.0),
    (one("navigate", url="https://a.org/"), url("https://a.org/"), 1.0),
    (one("open_tab", url="https://a.org/"), url("https://a.org/", new_tab=True), 1.0),
    (url("https://a.org/", new_tab=True), url("https://a.org/"), 0.7),
    (url("https://a.org/x?p=2"), url("https://a.org/x?p=1"), 0.7),
    (url("https://A.org:443/x/"), url("https://a.org/x"), 0.7),
    (url("a.org/x"), url("https://a.org/x"), 0.7),
    (url("https://a.org/%c3%a9"), url("https://a.org/é"), 0.7),
    (url("https://a.org:8443/x"), url("https://a.org/x"), 0.3),
    (url("https://a.org/y"), url("https://a.org/x"), 0.3),
    (url("https://b.org/x"), url("https://a.org/x"), 0.3),
    (url("https://a.org@b.org/x"), url("https://a.org/x"), 0.3),
    (url("https://b.org\\@a.org/x"), url("https://a.org/x"), 0.3),
    (url("https://user:key@a.org/x"), url("https://a.org/x"), 0.3),
    # search_engine
    (query("jax docs"), query("jax docs"), 1.0),
    (one("search_google", query="jax docs"), query("jax docs"), 1.0),
    (query("JAX  docs"), query("jax docs"), 0.7),
    (query("weather in Oslo"), query("jax docs"), 0.3),
    (query("best laptops 2025"), query("best laptops 2026"), 0.3),
    # tabs
    (one("switch_tab", tab_id="AB12"), one("switch", tab_id="AB12"), 1.0),
    (one("switch_tab", page_id=2), one("switch_tab", tab_id="0002"), 1.0),
    (one("switch_tab", tab_id="AB13"), one("switch_tab", tab_id="AB12"), 0.3),
    (one("close_tab", tab_id="AB12"), one("close_tab", tab_id="AB12"), 1.0),
    (one("close", tab_id="AB13"), one("close_tab", tab_id="AB12"), 0.3),
    (one("close_tab", tab_id="AB12"), one("switch_tab", tab_id="AB12"), 0.0),
    (one("close_tab", tab_id="AB123"), one("close_tab", tab_id="AB12"), 0.0),
    # done
    (done("42", True), done("42", True), 1.0),
    (done("42", True, files_to_display=[]), done("42", True), 1.0),
    (done("forty-two", True), done("42", True), 0.7),
    (done("42", True, files_to_display=["a.md"]), done("42", True), 0.7),
    (done("42"), done("42", True), 0.3),
    (done("42", False), done("42", True), 0.0),
    (done("42", "true"), done("42", True), 0.0),
    # every other type
    (one("go_back"), one("go_back"), 1.0),
    (one("go_back", steps=1), one("go_back"), 0.0),
    (one("wait"), one("wait", seconds=3), 1.0),
    (one("wait", seconds=45), one("wait", seconds=30), 1.0),
    (one("wait", seconds=10), one("wait"), 0.7),
    (one("go_back"), one("wait"), 0.0),
    (one("send_keys", keys="Enter"), one("send_keys", keys="Enter"), 1.0),
    (one("send_keys", keys="control+A"), one("send_keys", keys="Control+a"), 0.7),
    (one("send_keys", keys="a"), one("send_keys", keys="A"), 0.3),
    (one("send_keys", keys="Escape"), one("send_keys", keys="Enter"), 0.3),
    (one("find_text", text="Prices"), one("scroll_to_text", text="Prices"), 1.0),
    (one("scroll_to_text", text="prices"), one("scroll_to_text", text="Prices"), 0.7),
    (one("scroll_to_text", text="Terms"), one("scroll_to_text", text="Prices"), 0.3),
    (one("dropdown_options", index=4), one("get_dropdown_options", index=4), 1.0),
    (one("get_dropdown_options", index=5), one("get_dropdown_options", index=4), 0.3),
    (one("select_dropdown", index=4, text="Red"), one("select_dropdown_option", index=4, text="Red"), 1.0),
    (one("select_dropdown", index=4, text="red"), one("select_dropdown_option", index=4, text="Red"), 0.7),
    (
        one("select_dropdown_option", index=4, text="Department of Art"),
        one("select_dropdown_option", index=4, text="Department of Arts"),
        0.3,
    ),
    (one("select_dropdown", index=5, text="Red"), one("select_dropdown_option", index=4, text="Red"), 0.3),
    (one("extract", query="prices"), one("extract_structured_data", query="prices"), 1.0),
    (one("extract", query="prices", extract_links=True), one("extract", query="prices"), 0.7),
    (one("extract", query="opening hours"), one("extract", query="prices"), 0.3),
    (one("upload_file", index=2, path="cv.pdf"), one("upload_file_to_element", index=2, path="cv.pdf"), 1.0),
    (one("upload_file", index=2, path="./cv.pdf"), one("upload_file", index=2, path="cv.pdf"), 0.7),
    (one("upload_file", index=2, path="cv2.pdf"), one("upload_file", index=2, path="cv.pdf"), 0.3),
    (one("upload_file", index=1, path="cv.pdf"), one("upload_file", index=2, path="cv.pdf"), 0.3),
    (
        one("append_file", file_name="a.md", content="x"),
        one("write_file", file_name="a.md", content="x", append=True),
        1.0,
    ),
    (one("write_file", file_name="a.md", content="X"), one("write_file", file_name="a.md", content="x"), 0.7),
    (
        one("append_file", file_name="a.md", content="x"),
        one("write_file", file_name="a.md", content="x"),
        0.3,
    ),
    (one("write_file", file_name="b.md", content="x"), one("write_file", file_name="a.md", content="x"), 0.3),
    (
        one("replace_file", file_name="a", old_str="x", new_str="Y"),
        one("replace_file_str", file_name="a", old_str="x", new_str="y"),
        0.7,
    ),
    (
        one("replace_file", file_name="a", old_str="X", new_str="y"),
        one("replace_file_str", file_name="a", old_str="x", new_str="y"),
        0.3,
    ),
    (one("read_file", file_name="a.md"), one("read_file", file_name="a.md"), 1.0),
    (one("read_file", file_name="b.md"), one("read_file", file_name="a.md"), 0.3),
    (one("evaluate", code="f( 1)"), one("execute_js", code="f( 1)"), 1.0),
    (one("execute_js", code="f(1);\ng()"), one("execute_js", code="f(1); g()"), 0.7),
    (one("execute_js", code="F(1)"), one("execute_js", code="f(1)"), 0.3),
]


@pytest.mark.parametrize(("predicted", "target", "level"), TABLE)
def test_level_table(predicted, target, level):
    assert score(predicted, target) == level


def test_table_has_a_row_for_every_action():
    names = {_ALIASES.get(name, (name,))[0] for _, target, _ in TABLE for name in target}
    assert names == set(ACTIONS) == set(RULES)


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
def test_what_does_not_parse_strictly_scores_zero(response):
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


def test_alignment_takes_the_best_of_several():
    explanation = explain_response(reply(click(9), click(3)), reply(click(3)))
    assert [(pair.predicted, pair.target, pair.level) for pair in explanation.pairs] == [(1, 0, 1.0)]
    assert explanation.score == pytest.approx(2 / 3)


def test_explanation_names_the_deciding_field():
    explanation = explain_response(reply(typed(2, "1000")), reply(typed(2, "100")))
    assert (explanation.pairs[0].level, explanation.pairs[0].field) == (0.3, "text")


ANY_ACTION = st.one_of(
    st.builds(click, st.integers(1, 4)),
    st.builds(typed, st.integers(0, 3), st.sampled_from(["a b", "A B", "100", "1000", "x"])),
    st.builds(scroll, st.booleans(), st.sampled_from([0.5, 1, 2])),
    st.builds(done, st.sampled_from(["y", "n"]), st.sampled_from([True, False, None])),
    st.just({"go_back": {}}),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_ACTION, min_size=1, max_size=5), st.lists(ANY_ACTION, min_size=1, max_size=5))
def test_score_is_symmetric_bounded_and_one_for_equals(first, second):
    forward = score_response(reply(*first), reply(*second))
    assert 0.0 <= forward <= 1.0
    assert forward == pytest.approx(score_response(reply(*second), reply(*first)))
    assert score_response(reply(*first), reply(*first)) == 1.0


@settings(max_examples=100, deadline=None)
@given(ANY_ACTION, ANY_ACTION)
def test_one_action_each_reduces_to_its_level_exactly(predicted, target):
    explanation = explain_response(reply(predicted), reply(target))
    assert explanation.score == (explanation.pairs[0].level if explanation.pairs else 0.0)
    assert explanation.score in (0.0, 0.3, 0.7, 1.0)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(["{}", "rent of {} a month", "flight {} to Rome"]),
)
def test_another_number_is_never_similar(first, second, frame):
    expected = 1.0 if first == second else 0.3
    assert score(typed(1, frame.format(first)), typed(1, frame.format(second))) == expected
