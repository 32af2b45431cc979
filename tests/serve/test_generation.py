"""What answers are made of tokens."""

import json
from typing import Literal

import numpy as np
import orjson
import pytest

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Drawn, Request, Sampling
from rmsweb_jax.serve.protocol import ApiError, ChatRequest, parse_body
from rmsweb_jax.serve.replies import Generation
from rmsweb_jax.serve.tools import call_text

TOOLS = [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}]
TWO_CALLS = "So: " + call_text("a", '{"x": 1}') + "\n" + call_text("a", '{"x": 2}')


@pytest.fixture
def begin(processor):
    def begin(**settings) -> Generation:
        body = {"messages": [{"role": "user", "content": "go"}]} | settings
        tokens = np.asarray(processor.encode_text("go"), np.int32)
        prompt = Example("", tokens, len(tokens), np.zeros(0, bool))
        asked = parse_body(ChatRequest, json.dumps(body).encode())
        return Generation(asked, "tiny", Request(prompt, Sampling()), processor)

    return begin


def draw(
    generation: Generation,
    processor,
    text: str,
    each: int = 1000,
    log_prob: float = -1.0,
    finish: Literal["stop", "length"] = "stop",
) -> list[dict]:
    """Takes a reply a few tokens at a time, and returns the chunks of its stream."""
    tokens = [*processor.encode_text(text), *[processor.end_id] * (finish == "stop")]
    chunks = []
    for start in range(0, len(tokens), each):
        part = tuple(tokens[start : start + each])
        end = finish if start + each >= len(tokens) else None
        index = generation.take(Drawn(generation.request, 0, part, (log_prob,) * len(part), finish=end))
        assert index == 0
        chunks.append(generation.chunk(0))
    return [chunk["choices"][0] for chunk in chunks if chunk is not None]


@pytest.mark.parametrize(("parallel", "count"), [(None, 2), (True, 2), (False, 1)])
def test_calls_are_taken_out_of_the_text(begin, processor, parallel, count):
    call = begin(tools=TOOLS, parallel_tool_calls=parallel)
    draw(call, processor, TWO_CALLS)
    (choice,) = call.body()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "So:")
    arguments = [one["function"]["arguments"] for one in choice["message"]["tool_calls"]]
    assert arguments == ['{"x": 1}', '{"x": 2}'][:count]


def test_a_stream_holds_back_what_may_be_a_call(begin, processor):
    call = begin(tools=TOOLS, stream=True)
    chunks = draw(call, processor, TWO_CALLS, each=3)
    assert chunks[0]["delta"]["role"] == "assistant" and "role" not in chunks[1]["delta"]
    assert "".join(chunk["delta"].get("content") or "" for chunk in chunks) == "So:"
    assert [one["index"] for one in chunks[-1]["delta"]["tool_calls"]] == [0, 1]


@pytest.mark.parametrize(
    "written",
    [
        "nothing",
        '{"name": null, "arguments": {}}',
        '{"name": "a", "arguments": []}',
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "\\ud83d", "arguments": {}}',
        "[" * 3000,
    ],
)
def test_a_call_that_is_not_valid_stays_text(begin, processor, written):
    call = begin(tools=TOOLS)
    draw(call, processor, f"<tool_call>\n{written}\n</tool_call>")
    (choice,) = json.loads(orjson.dumps(call.body()))["choices"]
    assert (choice["finish_reason"], "tool_calls" in choice["message"]) == ("stop", False)
    assert written in choice["message"]["content"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cut_is_no_text(begin, processor, stream):
    """A free one is left out; a forced one is an error."""
    text = TWO_CALLS[:-20]
    free = begin(tools=TOOLS, stream=stream)
    chunks = draw(free, processor, text, each=3, finish="length")
    (choice,) = free.body()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "So:")
    assert len(choice["message"]["tool_calls"]) == 1
    assert not stream or "".join(chunk["delta"].get("content") or "" for chunk in chunks) == "So:"
    forced = begin(tools=TOOLS, tool_choice="required", stream=stream)
    with pytest.raises(ApiError, match=r"tool_choice: the call is cut after \d+ tokens: allow more"):
        draw(forced, processor, "<tool_call>", finish="length")


def test_arguments_are_written_as_the_model_wrote_them(begin, processor):
    call = begin(tools=TOOLS)
    draw(call, processor, call_text("a", '{"x": "\\ud83d"}') + call_text("a", '{"x": "ü"}'))
    (choice,) = json.loads(orjson.dumps(call.body()))["choices"]
    arguments = [one["function"]["arguments"] for one in choice["message"]["tool_calls"]]
    assert arguments == ['{"x": "\\ud83d"}', '{"x": "ü"}']


@pytest.mark.parametrize("each", [1, 3, 1000])
@pytest.mark.parametrize("text", [f"\n So:\n\n{TWO_CALLS[4:]}\nmore ", "So: <tool", "ü €, 😀 \n"])
def test_a_stream_has_the_text_of_the_answer(begin, processor, text, each):
    call = begin(tools=TOOLS, stream=True)
    chunks = draw(call, processor, text, each)
    streamed = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
    assert streamed == call.body()["choices"][0]["message"]["content"]
    assert TWO_CALLS[4:] in text or streamed == text


def test_log_probabilities_are_json(begin, processor):
    call = begin(logprobs=True)
    draw(call, processor, "a", log_prob=-np.inf)
    (entry, _) = json.loads(json.dumps(call.body(), allow_nan=False))["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("a", -9999.0, [97])


def test_a_part_of_a_character_has_no_bytes(begin, processor):
    call = begin(logprobs=True)
    draw(call, processor, "ü")
    entries = call.body()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in entries[:2]] == [None, None]
