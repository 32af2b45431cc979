"""Rows: what is learned of a reply, and that slots do not see each other."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from experiments.studies.tiny_base.batches import IGNORED, INDEX_WEIGHT, RowEncoder
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.schema import Message, TextPart


@dataclasses.dataclass(frozen=True)
class Labelled:
    kind: str
    reply: str
    learned: tuple[tuple[int, int], ...]
    index_span: tuple[int, int] | None
    choices: int = 2


PAGE = "[1]<button />\n\tOk\n[2]<button />\n\tNo\n"


def click(label: str, index: int) -> Labelled:
    goal = f"Click '{label}'"
    reply = f'{goal}","action":[{{"click_element_by_index":{{"index":{index}}}}}]}}'
    at = reply.index('"index":') + len('"index":')
    return Labelled("click", reply, ((len(goal), len(reply)),), (at, at + 1))


@pytest.fixture(scope="module")
def encoder():
    return make_encoder()


def make_encoder(recurrent: bool = False) -> RowEncoder:
    tokenizer = Tokenizer.from_file(str(resolve_model("tiny_base") / "tokenizer.json"))
    return RowEncoder(tokenizer, ("click",), recurrent)


def test_generated_chats_have_the_tokens_that_the_agent_sends(recurrent_policy):
    chat = (("system", "You act in a browser."), ("user", "Click on it."))
    messages = [Message(role=role, content=(TextPart(text=text),)) for role, text in chat]
    for recurrent, folder in ((False, resolve_model("tiny_base")), (True, recurrent_policy)):
        expected = Processor.from_pretrained(folder).encode_prompt(messages, lambda _: None).tokens
        assert make_encoder(recurrent).encode_chat(chat) == expected.tolist()


def test_a_row_holds_the_prompt_once_and_each_reply_in_its_slot(encoder):
    prompt = encoder.encode(PAGE)
    row = encoder.row(prompt, [(click("Ok", 1), 0), (click("No", 2), 0)], 64)
    assert row.tokens[: len(prompt)] == prompt
    assert row.slots[: len(prompt)] == [0] * len(prompt)
    assert sorted(set(row.slots)) == [0, 1, 2]
    for slot in (1, 2):
        at = row.slots.index(slot)
        assert row.positions[:, at].tolist() == [len(prompt)] * 3


def test_index_tokens_are_marked_with_kind_weight_and_choices(encoder):
    row = encoder.row(encoder.encode(PAGE), [(click("No", 2), 0)], 64)
    batch = encoder.batch([row], 64, 16)
    marked = batch.index[0] > 0
    assert batch.target[0][marked].tolist() == [encoder.encode("2")[0]]
    assert batch.weight[0][marked].tolist() == [INDEX_WEIGHT]
    assert batch.choices[0][marked].tolist() == [2]
    learned = batch.target[0] != IGNORED
    following = batch.inputs.tokens[0][batch.source[0][learned] + 1]
    assert np.array_equal(following, batch.target[0][learned])


def test_only_predictable_tokens_are_learned(encoder):
    row = encoder.row(encoder.encode(PAGE), [(click("Ok", 1), 0)], 64)
    free = encoder.encode("Click 'Ok")
    assert not set(free) & {token for _, token, _, _, _ in row.learned}
    assert encoder.end_of_turn[0] in {token for _, token, _, _, _ in row.learned}


def test_replies_that_do_not_fit_are_left_out(encoder):
    prompt = encoder.encode(PAGE)
    asked = [(click("Ok", 1), 0)] * 50
    row = encoder.row(prompt, asked, 64)
    assert len(row.tokens) <= 64 and max(row.slots) < 50
    assert encoder.row(prompt, asked, len(prompt) + 3) is None


def test_a_repetition_learns_its_second_half(encoder):
    row = encoder.repetition(np.random.default_rng(0), 20)
    assert row.tokens[:10] == row.tokens[10:]
    assert [(source, target) for source, target, *_ in row.learned] == [
        (at, row.tokens[at + 1]) for at in range(10, 19)
    ]


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_slot_is_read_as_if_it_were_alone(recurrent_policy, recurrent):
    folder = recurrent_policy if recurrent else resolve_model("tiny_base")
    encoder, model = make_encoder(recurrent), load_model(folder)
    prompt = encoder.encode(PAGE)
    both = encoder.row(prompt, [(click("Ok", 1), 0), (click("No", 2), 0)], 64)
    alone = encoder.row(prompt, [(click("No", 2), 0)], 64)
    hidden, single = (model(encoder.batch([row], 64, 32).inputs)[0] for row in (both, alone))
    places, same = np.equal(both.slots, 2).nonzero()[0], np.equal(alone.slots, 1).nonzero()[0]
    assert jnp.allclose(hidden[places], single[same], atol=1e-4)
