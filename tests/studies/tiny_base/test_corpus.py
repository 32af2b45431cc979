"""Generated pages and questions: every answer is right, unambiguous and in the demo's own words."""

import random

import pytest

from collection.browser.page import PageNode, parse_page, render_page
from experiments.studies.tiny_base.corpus.pages import generate_page, plain_page
from experiments.studies.tiny_base.corpus.questions import ask, find_targets, goal_for
from experiments.studies.tiny_base.corpus.stream import (
    bare_prompt,
    generated,
    plain,
    questions,
    recalls,
    state_prompt,
)
from experiments.studies.tiny_base.corpus.words import tokenizer_texts
from rmsweb_jax.actions import parse_reply, render_reply, score_response

SEEDS = range(40)


def take(stream, count):
    return [item for _, item in zip(range(count), stream, strict=False)]


@pytest.mark.parametrize("size", [2, 4, 9, 20, 35])
def test_pages_have_as_many_elements_as_asked_for(size):
    for seed in SEEDS:
        nodes = generate_page(random.Random(seed), size)
        indices = [node.index for node in nodes if node.index is not None]
        assert len(indices) == size
        assert indices == list(range(indices[0], indices[0] + size)) and 1 <= indices[0] <= indices[-1] <= 99


def test_pages_are_read_back_from_their_text():
    for seed in SEEDS:
        nodes = generate_page(random.Random(seed), 12)
        assert parse_page(render_page(nodes)) == nodes


def test_plain_pages_are_one_word_an_element():
    targets = find_targets(plain_page(random.Random(1), 4))
    assert len(targets) == 4 and all(len(target.labels) == 1 for target in targets)


def test_labels_name_one_element_only():
    for seed in SEEDS:
        targets = find_targets(generate_page(random.Random(seed), 20))
        labels = [label for target in targets for label in target.labels]
        assert len(labels) == len(set(labels)) and len(targets) > 10


def test_labels_follow_the_rule_of_the_demo():
    nodes = [
        PageNode(0, "", "Name"),
        PageNode(0, "input", "", 1, {"type": "text"}),
        PageNode(0, "input", "", 2, {"id": "ch0", "type": "checkbox"}),
        PageNode(0, "", "apples"),
        PageNode(0, "", "Fruit"),
        PageNode(0, "select", "", 3, {"id": "fruit", "value": "fig", "options": "fig|plum"}),
        PageNode(0, "button", "", 4, {"id": "go"}),
        PageNode(1, "", "Submit"),
        PageNode(0, "button", "", 5),
        PageNode(1, "", "Twice"),
        PageNode(0, "button", "", 6),
        PageNode(1, "", "Twice"),
    ]
    found = {target.index: (target.action, target.labels) for target in find_targets(nodes)}
    assert found[1] == ("type", ("Name",))
    assert found[2] == ("click", ("apples", "ch0"))
    assert found[3][0] == "select" and {"fruit", "Fruit"} <= set(found[3][1])
    assert found[4] == ("click", ("Submit", "go"))
    assert 5 not in found and 6 not in found


def test_every_answer_is_canonical_and_earns_the_full_reward():
    for seed in SEEDS:
        rng = random.Random(seed)
        prompt = state_prompt(rng, generated(rng, 4, 12))
        if prompt is None:
            continue
        for question, begin in take(questions(rng, prompt), 10):
            assert begin == 0
            assert render_reply(parse_reply(question.reply)) == question.reply
            assert score_response(question.reply, question.reply) == 1.0


def test_spans_lie_where_they_say():
    for seed in SEEDS:
        rng = random.Random(seed)
        prompt = state_prompt(rng, generated(rng, 4, 12))
        if prompt is None:
            continue
        indices = {target.index for target in prompt.targets}
        for question, _ in take(questions(rng, prompt), 10):
            action = parse_reply(question.reply).actions[0]
            if question.index_span is None:
                assert question.kind in ("scroll", "finish")
            else:
                first, last = question.index_span
                assert int(question.reply[first:last]) == action.params.model_dump()["index"]
                assert int(question.reply[first:last]) in indices
            assert question.learned[-1][1] == len(question.reply)
            if question.dictated:
                goal = question.reply.index(prompt.dictated.next_goal)
                assert any(begin <= goal < end for begin, end in question.learned)


def test_the_label_in_the_goal_is_that_of_the_element():
    rng = random.Random(5)
    targets = find_targets(generate_page(rng, 12))
    for target in targets:
        goal = goal_for(rng, target, targets)
        question = ask(rng, goal, dictated=False, first_step=True)
        assert goal.label in target.labels and f"'{goal.label}'" in question.reply
        assert f'"index":{target.index}' in question.reply


def test_a_dictated_goal_is_in_the_request():
    seen = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        prompt = state_prompt(rng, generated(rng, 3, 8))
        if prompt is not None and prompt.dictated is not None:
            assert prompt.dictated.label in prompt.messages[1].text
            assert prompt.dictated.request in prompt.messages[1].text
            seen += 1
    assert seen > 10


def test_recalls_are_label_and_index():
    rng = random.Random(2)
    prompt = bare_prompt(plain(rng, 3, 3))
    pairs = {question.reply for question, _ in take(recalls(rng, prompt), 6)}
    assert pairs == {f"{target.labels[0]}\t{target.index}" for target in prompt.targets}


def test_streams_repeat_with_their_seed():
    def sample(seed):
        rng = random.Random(seed)
        prompt = state_prompt(rng, generated(rng, 5, 9))
        return prompt and (prompt.messages, [question for question, _ in take(questions(rng, prompt), 5)])

    assert sample(3) == sample(3) != sample(4)
    assert tokenizer_texts(1, 50) == tokenizer_texts(1, 50) != tokenizer_texts(2, 50)
