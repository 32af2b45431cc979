"""The openai package against a server: `python openai_client.py URL MODEL`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Literal

import checks
import openai
from pydantic import BaseModel

URL, MODEL = sys.argv[1:3]
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
PICK_TOOL = {"type": "function", "function": {"name": "pick", "parameters": checks.PICK}}


class Pick(BaseModel):
    """A row of the table."""

    row: Literal[1, 2, 3]
    sure: bool


def create(**settings: object):
    settings = {"model": MODEL, "messages": checks.QUESTION, "max_tokens": 16} | settings
    return client.chat.completions.create(**settings)


def chat() -> str:
    answer = create(n=4, seed=1, top_p=0.9, presence_penalty=0.5, logprobs=True, top_logprobs=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(entry.top_logprobs for choice in answer.choices for entry in choice.logprobs.content)
    return f"{answer.usage.completion_tokens} tokens in 4 choices"


def stream() -> str:
    whole = create(temperature=0).choices[0].message.content
    chunks = list(create(temperature=0, stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole and chunks[-1].usage
    return f"{len(chunks)} chunks"


def astream() -> str:
    async def take() -> int:
        async with openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0) as other:
            chunks = await other.chat.completions.create(
                model=MODEL, messages=checks.QUESTION, max_tokens=8, stream=True
            )
            return len([chunk async for chunk in chunks])

    return f"{asyncio.run(take())} chunks"


def tools() -> str:
    answer = create(tools=[PICK_TOOL], tool_choice="required", max_tokens=128).choices[0]
    (call,) = answer.message.tool_calls
    checks.is_pick(json.loads(call.function.arguments))
    more = [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert create(messages=[*checks.QUESTION, *more], tools=[PICK_TOOL]).choices[0].finish_reason
    return f"{call.function.arguments}, and its result sent back"


def tools_stream() -> str:
    choice = {"type": "function", "function": {"name": "pick"}}
    with client.chat.completions.stream(
        model=MODEL, messages=checks.QUESTION, tools=[PICK_TOOL], tool_choice=choice, max_tokens=128
    ) as events:
        answer = events.get_final_completion().choices[0]
    (call,) = answer.message.tool_calls
    checks.is_pick(json.loads(call.function.arguments))
    return answer.finish_reason


def parsed() -> str:
    answer = client.chat.completions.parse(
        model=MODEL, messages=checks.QUESTION, response_format=Pick, max_tokens=64
    )
    return repr(answer.choices[0].message.parsed)


def models() -> str:
    assert client.models.retrieve(MODEL).id == MODEL
    return ", ".join(model.id for model in client.models.list())


def errors() -> str:
    for settings, kind in (
        ({"temperature": 9}, openai.BadRequestError),
        ({"model": "nobody"}, openai.NotFoundError),
        ({"max_tokens": 10**6}, openai.BadRequestError),
        ({"extra_body": {"unheard_of": 1}}, openai.BadRequestError),
    ):
        try:
            create(**settings)
        except kind as error:
            assert error.body["message"] and error.type == "invalid_request_error", error.body
        else:
            raise AssertionError(settings)
    return "4 of 4 are error objects"


checks.run(
    "openai",
    {
        "chat: n, seed, top_p, penalties, logprobs": chat,
        "stream": stream,
        "stream, asynchronous": astream,
        "tools": tools,
        "tools, streamed": tools_stream,
        "parse(response_format=a pydantic model)": parsed,
        "models": models,
        "errors": errors,
    },
)
