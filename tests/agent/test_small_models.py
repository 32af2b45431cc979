"""Replies as small models write them: carried out where they can mean one thing only, else asked again."""

import json

import pytest

from collection.corpus.steps import view
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.records.schema import SampledTokens
from tests.agent.plain_episode import CLICK, DONE, Lines, Page, reply, run

TYPE = {"input_text": {"index": 2, "text": "a"}}
HEAD = '{"evaluation_previous_goal":"e","memory":"m","next_goal":"n","action":'
UP, DOWN = ({"scroll": {"down": down, "num_pages": 1.0}} for down in (False, True))
EXACT = reply(CLICK)
ASKED = None


def with_action(text):
    return f"{HEAD}{text}}}"


def with_texts(**changes):
    texts = {"evaluation_previous_goal": "e", "memory": "m", "next_goal": "n", "action": [CLICK]} | changes
    return json.dumps({key: value for key, value in texts.items() if value != "MISSING"})


# What a model wrote, and the actions that it can only mean; `ASKED` where there is no such reading.
SHAPES = {
    "no memory": (with_texts(memory="MISSING"), [CLICK]),
    "null memory": (with_texts(memory=None), [CLICK]),
    "actions alone": (json.dumps({"action": [CLICK]}), [CLICK]),
    "facts as an object": (with_texts(memory={"user": "Bo"}, evaluation_previous_goal=True), [CLICK]),
    "another key": (with_texts(confidence=0.9), [CLICK]),
    "older texts": (json.dumps({"current_state": {"memory": "m"}, "action": [CLICK]}), [CLICK]),
    "true as text": (with_action('[{"done":{"text":"it is done","success":"true"}}]'), [DONE]),
    "index as marked": (with_action('[{"click_element_by_index":{"index":"[1]"}}]'), [CLICK]),
    "index alone": (with_action('[{"click_element_by_index":1}]'), [CLICK]),
    "text as a number": (
        with_action('[{"input_text":{"index":"2","text":42}}]'),
        [{"input_text": {"index": 2, "text": "42"}}],
    ),
    "one action": (with_action('{"click_element_by_index":{"index":1}}'), [CLICK]),
    "two in one object": (with_action(f'[{json.dumps(TYPE | CLICK)}]'), [TYPE, CLICK]),
    "two, not in a list": (with_action(json.dumps(TYPE | CLICK)), [TYPE, CLICK]),
    "a list as text": (with_texts(action=json.dumps([CLICK])), [CLICK]),
    "a name alone": (with_action('["go_back"]'), [{"go_back": {}}]),
    "no distance": (with_action('[{"scroll":{"down":true}}]'), [DOWN]),
    "a direction": (with_action('[{"scroll":{"direction":"up"}}]'), [UP]),
    "no reply around it": (json.dumps(CLICK), [CLICK]),
    "no reply around them": (json.dumps([TYPE, CLICK]), [TYPE, CLICK]),
    "an action among texts": (json.dumps({"memory": "m"} | CLICK), [CLICK]),
    "a tool call": (
        '<tool_call>\n{"name": "click_element_by_index", "arguments": {"index": 1}}\n</tool_call>',
        [CLICK],
    ),
    "a flat call": ('{"memory":"m","action":"click_element_by_index","index":1}', [CLICK]),
    "thoughts": (f'<think>{{1}} or {{"click": 2}}?</think>\n{EXACT}', [CLICK]),
    "prose before": (f"I click {{it}} now: {EXACT}", [CLICK]),
    "prose after": (f"{EXACT}\nThis clicks on the {{button}}.", [CLICK]),
    "a fence": (f"Here:\n```json\n{EXACT}\n```\nDone.", [CLICK]),
    "said twice": (f"{EXACT}\n{EXACT}", [CLICK]),
    "no end": (EXACT[:-2], [CLICK]),
    "Python": (str(json.loads(with_texts(memory=None))), [CLICK]),
    "the prompt's words": (with_action('[{"action_name":{"parameter":1}}]'), ASKED),
    "null": (with_action("[null]"), ASKED),
    "prose alone": ("Click on the 'No' button.", ASKED),
    "two steps at once": (f"{EXACT}\n{reply({'click_element_by_index': {'index': 2}})}", ASKED),
    "a name repeated": (with_action('[{"go_back":{},"go_back":{}}]'), ASKED),
    "ends in a text": (f'{HEAD}[{{"input_text":{{"index":2,"text":"hel', ASKED),
}  # fmt: skip


# What could be carried out otherwise than it is meant.
NASTY = {
    "a parameter next to the list": '{"action":[{"done":{"text":"x"}}],"success":false}',
    "a parameter next to an action": '{"done":{"text":"x"},"success":false}',
    "a parameter next to a name": '{"action":["wait"],"seconds":30}',
    "a parameter next to a call's": '{"name":"done","arguments":{"text":"x"},"success":false}',
    "another's name for it": '{"action":"input","arguments":{"index":1,"text":"x"},"clear":false}',
    "a parameter next to a listed call's": (
        '{"action":[{"action":"scroll","arguments":{"direction":"up"},"num_pages":3}]}'
    ),
    "a thought that does not end": f"<Think>maybe {json.dumps(CLICK)} no",
    "a second thought": f"<think>1</think><thinking>maybe {json.dumps(CLICK)} no",
    "an apostrophe": "{'action':[{'input_text':{'index':1,'text':'don't stop'}}]}",
    "an apostrophe at the end": "{'action':[{'input_text':{'index':1,'text':'don't'}}]}",
    "a quote": '{"action":[{"input_text":{"index":1,"text":"say "hi" now"}}]}',
    "a quote and a comma": '{"action":[{"done":{"success":true,"text":"he said "no", then left"}}]}',
    "an answer cut off": "{'action':[{'done':{'success':True,'text':'The answer is for",
    "an answer cut off, other quotes": '{“action”:[{"done":{“success”:true,“text”:“The answer is for',
    "an answer cut off, no quotes": '{"action":[{"done":{"success":true,"text":The answer is for',
    "a number cut off": f'{HEAD}[{{"click_element_by_index":{{"index":1',
    "a list cut off": f"{HEAD}[{json.dumps(TYPE)},",
    "no quotes": '{"action":[{"input_text":{"index":1,"text":hello world}}]}',
    "other quotes": '{"action":[{"input_text":{"index":1,"text":“hello”}}]}',
    "a zero in front": '{"action":[{"input_text":{"index":1,"text":0123}}]}',
    "a sign in front": '{"memory":"49123","action":[{"input_text":{"index":1,"text":+49123}}]}',
    "a price": '{"action":[{"input_text":{"index":1,"text":$100}}]}',
    "a sum": '{"action":[{"input_text":{"index":1,"text":"a" + "b"}}]}',
    "an unknown escape": '{"action":[{"input_text":{"index":1,"text":"C:\\new\\x"}}]}',
}


class Watched(Page):
    """A page that keeps what was done on it, with parameters."""

    def __init__(self):
        super().__init__()
        self.done = []

    def act(self, actions, extract, deadline):
        self.done += [action.to_json() for action in actions]
        return super().act(actions, extract, deadline)

    def finish(self, done):
        self.done.append(done.to_json())
        return super().finish(done)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_carried_out_as_it_is_meant_or_asked_for_again(name):
    text, meant = SHAPES[name]
    page, teacher = Watched(), Lines(text, reply(DONE))
    first, *_ = run(page, teacher, lenient=True).steps
    again = [request.step for request in teacher.requests].count(1) - 1
    assert len(SHAPES) == 35 and not first.error
    if meant is ASKED:
        assert (again, page.done, first.discarded, first.repaired) == (1, [DONE], (text,), False)
        return
    assert (again, page.done[: len(meant)], first.discarded, first.repaired) == (0, meant, (), True)
    # The raw reply is the record; training gets what was carried out in the exact form.
    assert first.response == text
    assert [action.to_json() for action in parse_reply(view(first).target).actions] == meant


@pytest.mark.parametrize("name", NASTY)
def test_nothing_is_carried_out_that_may_not_be_meant(name):
    page = Watched()
    first, *_ = run(page, Lines(NASTY[name], reply(DONE)), lenient=True).steps
    assert (page.done, first.discarded) == ([DONE], (NASTY[name],))


def test_the_second_question_shows_the_reply_and_what_is_wrong_with_it():
    teacher = Lines(reply(), reply(CLICK), "??", "???", reply(DONE))
    first, second, _ = run(Page(), teacher, guidance="Mind the gap.", lenient=True).steps
    assert [request.step for request in teacher.requests] == [1, 1, 2, 2, 3]
    *asked, shown, error = teacher.requests[1].messages
    assert tuple(asked) == teacher.requests[0].messages and "Mind the gap." in asked[-1].text
    assert (shown.role, shown.text, error.role) == ("assistant", reply(), "user")
    assert "action must be a list of at least one action" in error.text
    # Training sees neither guidance nor what failed; the cost of both calls is kept.
    assert [message.role for message in first.messages] == ["system", "user"] and first.usage.cost == 1.0
    assert first.discarded == (reply(),) and "Mind the gap." not in first.model_dump_json()
    # It is asked once.
    assert second.error and (second.response, second.discarded) == ("???", ("??",))


def test_policies_are_read_strictly_and_not_asked_again():
    tokens = SampledTokens(tokens=(1, 2), log_probs=(-0.1, -0.2), policy="p")
    strict = (with_texts(memory=None), False, None)
    for text, lenient, sampled in (strict, (reply(), False, tokens), (reply(), True, tokens)):
        teacher = Lines(text, reply(DONE), sampled=sampled)
        first, second = run(Page(), teacher, lenient=lenient).steps
        assert first.error and first.response == text and first.discarded == ()
        assert first.sampled == second.sampled == sampled
