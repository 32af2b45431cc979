"""langchain-openai against a server: `python langchain_client.py URL MODEL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import checks
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

URL, MODEL = sys.argv[1:3]


class Pick(BaseModel):
    """A row of the table."""

    row: Literal[1, 2, 3]
    sure: bool


def chat(**settings: object) -> ChatOpenAI:
    return ChatOpenAI(base_url=URL, api_key="none", model=MODEL, max_retries=0, **settings)


def invoke() -> str:
    answer = chat(max_tokens=8).invoke("hello")
    assert answer.usage_metadata and answer.response_metadata["finish_reason"] in ("stop", "length")
    return f"{answer.usage_metadata['output_tokens']} tokens"


def stream() -> str:
    whole = chat(max_tokens=24, temperature=0).invoke("hello").content
    chunks = list(chat(max_tokens=24, temperature=0, stream_usage=True).stream("hello"))
    assert "".join(chunk.content for chunk in chunks) == whole
    assert any(chunk.usage_metadata for chunk in chunks)
    return f"{len(chunks)} chunks"


def astream() -> str:
    async def take() -> int:
        return len([chunk async for chunk in chat(max_tokens=8).astream("hello")])

    return f"{asyncio.run(take())} chunks"


def batch() -> str:
    return f"{len(chat(max_tokens=4).batch(['one', 'two', 'three']))} replies"


def log_probs() -> str:
    answer = chat(max_tokens=4, logprobs=True, top_logprobs=2).invoke("hello")
    content = answer.response_metadata["logprobs"]["content"]
    assert all(1 <= len(entry["top_logprobs"]) <= 2 for entry in content)
    return f"{len(content)} tokens"


def bind_tools() -> str:
    question = HumanMessage("Pick a row of the table.")
    model = chat(max_tokens=128).bind_tools([Pick], tool_choice="any")
    answer = model.invoke([question])
    (call,) = answer.tool_calls
    checks.is_pick(call["args"])
    result = ToolMessage("done", tool_call_id=call["id"])
    assert chat(max_tokens=8).bind_tools([Pick]).invoke([question, answer, result]).response_metadata
    return f"{call['name']}{call['args']}, and its result sent back"


def bind_tools_stream() -> str:
    whole = None
    for chunk in chat(max_tokens=128).bind_tools([Pick], tool_choice="Pick").stream("Pick a row."):
        whole = chunk if whole is None else whole + chunk
    (call,) = whole.tool_calls
    checks.is_pick(call["args"])
    return f"{call['name']}{call['args']}"


def structured(method: str) -> str:
    answer = chat(max_tokens=128).with_structured_output(Pick, method=method).invoke("Pick a row.")
    checks.is_pick(answer.model_dump())
    return repr(answer)


checks.run(
    "langchain-openai",
    {
        "invoke": invoke,
        "stream": stream,
        "astream": astream,
        "batch": batch,
        "logprobs": log_probs,
        "bind_tools": bind_tools,
        "bind_tools, streamed": bind_tools_stream,
        "with_structured_output(json_schema)": lambda: structured("json_schema"),
        "with_structured_output(function_calling)": lambda: structured("function_calling"),
    },
)
