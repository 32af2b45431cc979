"""litellm against a server: `python litellm_client.py URL MODEL`."""

from __future__ import annotations

import json
import os
import sys

# Its table of prices would be fetched from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import checks
import litellm

URL, MODEL = sys.argv[1:3]


def completion(provider: str, **settings: object):
    settings = {"messages": checks.QUESTION, "max_tokens": 16} | settings
    return litellm.completion(
        model=f"{provider}/{MODEL}", api_base=URL, api_key="none", num_retries=0, **settings
    )


def plain(provider: str) -> str:
    answer = completion(provider)
    return f"{answer.usage.completion_tokens} tokens"


def stream(provider: str) -> str:
    whole = completion(provider, temperature=0).choices[0].message.content
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(completion(provider, temperature=0, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole, (text, whole)
    return f"{len(chunks)} chunks"


def tools() -> str:
    tool = {"type": "function", "function": {"name": "pick", "parameters": checks.PICK}}
    answer = completion("openai", tools=[tool], tool_choice="required", max_tokens=128)
    (call,) = answer.choices[0].message.tool_calls
    checks.is_pick(json.loads(call.function.arguments))
    return call.function.arguments


def schema() -> str:
    wanted = {"type": "json_schema", "json_schema": {"name": "pick", "schema": checks.PICK, "strict": True}}
    text = completion("openai", response_format=wanted, max_tokens=64).choices[0].message.content
    checks.is_pick(json.loads(text))
    return text


checks.run(
    "litellm",
    {
        "openai/": lambda: plain("openai"),
        "openai/, streamed": lambda: stream("openai"),
        "hosted_vllm/": lambda: plain("hosted_vllm"),
        "hosted_vllm/, streamed": lambda: stream("hosted_vllm"),
        "tools": tools,
        "response_format=json_schema": schema,
    },
)
