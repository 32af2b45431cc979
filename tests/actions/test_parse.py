import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.actions import (
    ACTIONS,
    Action,
    Reply,
    ReplyError,
    action_catalogue,
    action_span,
    normalize_action,
    parse_reply,
    read_reply,
    render_reply,
    repair_reply,
)
from rmsweb_jax.actions.schema import EXTRA_ACTIONS

CANONICAL = (
    '{"evaluation_previous_goal":"Start","memory":"–","next_goal":"Click \'Login\'",'
    '"action":[{"click_element_by_index":{"index":3}}]}'
)


def test_canonical_text_survives_a_round_trip():
    assert render_reply(parse_reply(CANONICAL)) == CANONICAL


def test_rendering_orders_keys_and_drops_defaults():
    messy = (
        '{"action": [{"input": {"clear": true, "text": "a", "index": "2"}}], "next_goal": "n", '
        '"memory": "m", "thinking": "t", "evaluation_previous_goal": "e"}'
    )
    assert render_reply(parse_reply(messy)) == (
        '{"thinking":"t","evaluation_previous_goal":"e","memory":"m","next_goal":"n",'
        '"action":[{"input_text":{"index":2,"text":"a"}}]}'
    )


def test_action_span_is_the_list_alone():
    start, end = action_span(CANONICAL)
    assert CANONICAL[start:end] == '[{"click_element_by_index":{"index":3}}]'
    assert CANONICAL[end:] == "}"


def test_action_span_is_not_fooled_by_text_that_looks_like_it():
    text = ' { "memory" : "\\"action\\":[1]" , "x": {"action": [2]}, "action" : [ {"a":"]"} ] } '
    start, end = action_span(text)
    assert text[start:end] == '[ {"a":"]"} ]'


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"action":3}', '{"memory":"a"}', '{"action":[1'])
def test_action_span_without_list(text):
    with pytest.raises(ReplyError, match="no action list"):
        action_span(text)


@pytest.mark.parametrize(
    ("raw", "name", "params"),
    [
        ({"go_back": None}, "go_back", {}),
        ({"wait": {"seconds": None}}, "wait", {}),
        ({"scroll_up": {}}, "scroll", {"down": False, "num_pages": 1.0}),
        ({"scroll_down": {"amount": 2}}, "scroll", {"down": True, "num_pages": 2.0}),
        ({"scroll_down": {"amount": "500"}}, "scroll", {"down": True, "num_pages": 0.5}),
        ({"scroll_up": {"down": True}}, "scroll", {"down": False, "num_pages": 1.0}),
        ({"scroll": {"down": True, "pages": "0.5"}}, "scroll", {"down": True, "num_pages": 0.5}),
        ({"close": {"page_id": 11}}, "close_tab", {"tab_id": "0011"}),
        ({"switch_tab": {"page_id": "2"}}, "switch_tab", {"tab_id": "0002"}),
        ({"click": {"index": "+3."}}, "click_element_by_index", {"index": 3}),
        ({"extract_content": {"goal": "g"}}, "extract_structured_data", {"query": "g"}),
        (
            {"append_file": {"file_name": "a", "content": "b", "append": False}},
            "write_file",
            {"file_name": "a", "content": "b", "append": True},
        ),
    ],
)
def test_aliases(raw, name, params):
    action = normalize_action(raw)
    assert action.to_json() == {name: params}


@pytest.mark.parametrize(
    "raw",
    [
        {"click": {"index": 1, "ctrl": True, "while_holding_ctrl": True}},
        {"scroll_down": {"amount": 1, "num_pages": 1}},
        {"scroll_down": {"amount": 1, "pages": 1}},
        {"scroll_down": {"amount": 10**400}},
        {"scroll_down": {"amount": True}},
        {"switch_tab": {"page_id": -1}},
        {"switch_tab": {"page_id": "two"}},
        {"switch_tab": {"page_id": True}},
        {"scroll": {"down": True, "num_pages": 1e999}},
        {"scroll": {"down": 1, "num_pages": 1}},
        {"scroll": {"num_pages": 1}},
        {"click": {"index": 1.5}},
        {"done": {"success": True}},
    ],
)
def test_wrong_parameters_are_refused(raw):
    with pytest.raises(ReplyError):
        normalize_action(raw)


def test_errors_are_one_line():
    with pytest.raises(ReplyError, match=r"extra\\nkey.*not permitted") as caught:
        normalize_action({"click": {"index": 1, "extra\nkey": 2}})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("half", ["\ud800", "\\ud800", "\\uDFFF", "\\ud83d\\u0041"])
def test_half_a_surrogate_pair_is_refused_however_it_is_written(half):
    with pytest.raises(ReplyError, match="surrogate"):
        parse_reply(CANONICAL.replace("Start", half))


def test_escapes_of_whole_characters_are_read():
    assert (
        parse_reply(CANONICAL.replace("Start", "\\ud83d\\ude00\\u00e9")).evaluation_previous_goal
        == "\U0001f600é"
    )


def test_executable_part_of_long_lists():
    def reply(*actions):
        return Reply(
            evaluation_previous_goal="",
            memory="",
            next_goal="",
            actions=tuple(map(normalize_action, actions)),
        )

    done, back = {"done": {"text": "", "success": True}}, {"go_back": {}}
    assert [action.name for action in reply(back, done, back).executable] == ["go_back"]
    assert [action.name for action in reply(done, back).executable] == ["done"]
    assert len(reply(*[back] * 12).executable) == 10


def test_repair_fixes_and_reports():
    assert repair_reply(CANONICAL) == (parse_reply(CANONICAL), False)
    for broken in (
        CANONICAL[:-2],
        "```json\n" + CANONICAL + "\n```",
        "Sure! " + CANONICAL.replace("]}", "],}"),
    ):
        assert repair_reply(broken) == (parse_reply(CANONICAL), True)


@pytest.mark.parametrize(
    "text", ["no JSON at all", "", CANONICAL.replace("click_element_by_index", "fly"), "{}"]
)
def test_repair_does_not_invent_a_reply(text):
    with pytest.raises(ReplyError):
        repair_reply(text)


def test_catalogue_lists_every_action_but_the_switched_off():
    assert {row["name"] for row in action_catalogue()} == set(ACTIONS) - set(EXTRA_ACTIONS)
    by_name = {row["name"]: row for row in action_catalogue()}
    assert (
        by_name["click_element_by_index"]["parameters"]
        == "index: integer, while_holding_ctrl: true|false = false"
    )
    assert all(row["summary"].endswith(".") for row in by_name.values())


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT, TEXT, st.none() | TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_any_reply_round_trips(memory, goal, thinking, texts):
    reply = Reply(
        thinking=thinking,
        evaluation_previous_goal="",
        memory=memory,
        next_goal=goal,
        actions=tuple(
            Action("scroll_to_text", ACTIONS["scroll_to_text"].model_validate({"text": text}))
            for text in texts
        ),
    )
    text = render_reply(reply)
    assert parse_reply(text) == reply
    start, end = action_span(text)
    assert json.loads(text[start:end]) == [{"scroll_to_text": {"text": item}} for item in texts]


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused_in_one_line(text):
    for read in (repair_reply, read_reply):
        try:
            read(text)
        except ReplyError as error:
            assert "\n" not in str(error)


JSON = st.recursive(
    st.sampled_from((None, True, 3, "down", "true", "[3]", "click", "go_back")),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(("action", "memory", "name", "arguments", "click", "scroll", "index", "text")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_what_is_read_tolerantly_is_a_reply(value):
    try:
        reply, _ = read_reply(json.dumps(value))
    except ReplyError as error:
        assert "\n" not in str(error)
    else:
        assert parse_reply(render_reply(reply)) == reply
