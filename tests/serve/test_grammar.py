"""Replies of an untrained model that must follow a schema."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.actions.json_schema import bounded_reply_schema
from rmsweb_jax.actions.parse import parse_reply
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.protocol import Tool
from rmsweb_jax.serve.tools import parse_calls
from tests.serve.conftest import serving


@pytest.fixture(scope="module")
def words() -> Processor:
    """A tokenizer whose tokens are words and parts of JSON, not bytes."""
    return Processor.from_pretrained(resolve_model("tiny_base"))


@pytest.fixture(scope="module")
def grammars(words) -> Grammars:
    return Grammars(words)


def drawn(processor: Processor, grammar: Grammar, seed: int) -> str:
    """A text of a grammar: each token is drawn among those allowed, all alike."""
    matching, tokens = grammar(), []
    choose = random.Random(seed).choice
    while not tokens or tokens[-1] != processor.end_id:
        mask = np.zeros(-(-processor.config.text.vocab_size // 32), np.int32)
        matching.allowed(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        assert not set(allowed) & set(processor.banned_ids)
        tokens.append(int(choose(allowed)))
        matching.take(tokens[-1:])
    return processor.decode_response(tokens)


@given(seed=st.integers(0, 2**32))
def test_every_text_of_the_agents_schema_is_a_reply(words, grammars, seed):
    text = drawn(words, grammars.compile(bounded_reply_schema(max_chars=30, max_actions=2)), seed)
    reply = parse_reply(text)
    assert len(reply.memory) <= 30 and 1 <= len(reply.actions) <= 2


def test_only_the_actions_named_may_be_taken(words, grammars):
    grammar = grammars.compile(bounded_reply_schema(("wait", "scroll"), max_chars=5, max_actions=3))
    replies = [parse_reply(drawn(words, grammar, seed)) for seed in range(20)]
    assert {action.name for reply in replies for action in reply.actions} == {"wait", "scroll"}


ROW = {
    "type": "object",
    "properties": {"row": {"$ref": "#/$defs/Row"}},
    "required": ["row"],
    "$defs": {"Row": {"enum": [1, 2]}},
}
TOOLS = [
    Tool.model_validate({"type": "function", "function": {"name": name, "parameters": ROW}})
    for name in ("pick", 'a "b" ü')
]


def test_calls_may_refer_to_definitions_of_their_own_schema(words, grammars):
    grammar, names = grammars.compile(None, TOOLS), set()
    for seed in range(20):
        text, ((name, arguments),) = parse_calls(drawn(words, grammar, seed))
        assert text == "" and json.loads(arguments)["row"] in (1, 2)
        names.add(name)
    assert names == {"pick", 'a "b" ü'}


def test_a_reply_follows_the_schema_or_is_a_call(words, grammars):
    grammar = grammars.compile({"enum": ["a"]}, TOOLS)
    texts = [drawn(words, grammar, seed) for seed in range(20)]
    assert {text for text in texts if not parse_calls(text)[1]} == {'"a"'}
    assert any(parse_calls(text)[1] for text in texts)


def test_replies_of_an_untrained_model_all_parse(make, processor):
    schema = bounded_reply_schema(max_chars=12, max_actions=1)
    engine = make(max_new_tokens=384, lanes=32)
    engine.start()
    with serving(engine, processor, schema, max_new_tokens=384) as url:

        def post(body: dict) -> list[dict]:
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=3000)
            return answer.raise_for_status().json()["choices"]

        bodies = [
            {"messages": [{"role": "user", "content": f"go {seed}"}], "n": 4, "seed": seed}
            | {"temperature": 1.2}
            for seed in range(8)
        ]
        with ThreadPoolExecutor(8) as pool:
            replies = [reply for choices in pool.map(post, bodies) for reply in choices]
        free = bodies[0] | {"response_format": {"type": "text"}, "max_tokens": 4}
        unbound = [choice["message"]["content"] for choice in post(free)]
    engine.close()
    assert len(replies) == 32 and all(reply["finish_reason"] == "stop" for reply in replies)
    assert len({parse_reply(reply["message"]["content"]).memory for reply in replies}) > 27
    # What the client asks for comes first.
    assert not all(text.startswith('{"') for text in unbound)


def test_log_probs_under_a_grammar_are_the_models_own(url):
    """Log-probabilities are those without the grammar: its mask does not enter them."""
    only = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}
    body = {"messages": [{"role": "user", "content": "go"}], "seed": 1, "response_format": only}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body | {"logprobs": True}, timeout=3000)
    (bound,) = answer.raise_for_status().json()["choices"]
    assert json.loads(bound["message"]["content"]) == "a" and bound["finish_reason"] == "stop"
    # A model that has learned nothing gives each of about 250 tokens some of the mass, and here one was left.
    assert max(entry["logprob"] for entry in bound["logprobs"]["content"]) < -0.5
