"""Answers of chat-completions endpoints, and the expected behaviour of the wrapper."""

from __future__ import annotations

import dataclasses

from tests.llm.answers import (
    OPENAI,
    PER_DAY,
    TEXT,
    WELL,
    Case,
    anthropic_error,
    completion,
    openai_error,
)
from tests.llm.server import Answer

NO_TEMPERATURE = openai_error(
    400,
    "Unsupported value: 'temperature' does not support 0.0 with this model. "
    "Only the default (1) value is supported.",
    "unsupported_value",
)
_USAGE = {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}
GPT = Answer(
    body={
        "id": "chatcmpl-CbW1",
        "object": "chat.completion",
        "created": 1763045000,
        "model": "gpt-5.1-2025-11-13",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT, "refusal": None, "annotations": []},
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE
        | {
            "completion_tokens": 100,
            "total_tokens": 1100,
            "completion_tokens_details": {"reasoning_tokens": 64, "accepted_prediction_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": None,
    }
)


def chat_cases() -> list[Case]:
    return [*_any_vendor(), *_vendors()]


def _vendors() -> list[Case]:
    all_thought = dataclasses.replace(
        GPT,
        body=GPT.body
        | {"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}]},
    )
    overloaded = anthropic_error(529, "Overloaded", "overloaded_error")
    low = anthropic_error(400, "Your credit balance is too low to access the Anthropic API.")
    unknown = anthropic_error(404, "model: claude-9", "not_found_error")
    apart = {"prompt_tokens": 1000, "completion_tokens": 36, "total_tokens": 1100}
    counted_apart = Answer(body=WELL.body | {"usage": apart})
    return [
        Case("GPT-5.1: answer", "a completion with reasoning tokens", (GPT,), 1, TEXT),
        Case("GPT-5.1: temperature", "400, `temperature` unsupported", (NO_TEMPERATURE,), 1, None,
             "config.actor.parameters changes what is sent, and None there leaves a parameter out"),
        Case("all thinking", "`finish_reason` length, empty", (all_thought,), 1, "",
             "the reply was cut off after 64 tokens"),
        Case("Claude: overloaded", "529, overloaded_error", (overloaded, WELL), 2, TEXT, waits=OPENAI[:1]),
        Case("Claude: no credit", "400, credit balance too low", (low,), 1, None, "the quota is used up"),
        Case("Claude: unknown model", "404, not_found_error", (unknown,), 1, None,
             "check config.actor.base_url and config.actor.model"),
        Case("thinking counted apart", "thinking in `total_tokens` alone", (counted_apart,), 1, TEXT),
    ]  # fmt: skip


def _any_vendor() -> list[Case]:
    slow = Answer(429, {"error": {"message": "Rate limit reached", "type": "requests"}})
    late = dataclasses.replace(slow, headers={"Retry-After": "3"})
    dated = dataclasses.replace(slow, headers={"Retry-After": "+40"})
    fine = dataclasses.replace(slow, headers={"retry-after-ms": "1500"})
    daily = Answer(429, [{"error": {"code": 429, "message": "Out", "details": [PER_DAY]}}])
    paid = Answer(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    longer = Answer(400, {"error": {"message": "a prompt of 40000 tokens: at most 256 are served"}})
    refused = Answer(body={"choices": [{"message": {"refusal": "I\ncannot."}}]})
    schema = Answer(400, {"error": {"message": "no response_format here"}})
    long = Answer(400, {"error": {"message": "maximum context length is 4096 tokens", "code": 400}})
    filtered = Answer(400, {"error": {"message": "Filtered: content management policy"}})
    key = Answer(401, {"error": {"message": "Incorrect API key provided"}})
    return [
        Case("answer", "a choice", (WELL,), 1, TEXT),
        Case("cut off", "`finish_reason` length", (completion('{"a":', "length"),), 1, '{"a":',
             "the reply was cut off after 64 tokens"),
        Case("filtered", "`finish_reason` content_filter", (completion(None, "content_filter"),), 1, "",
             "the reply was blocked: content_filter"),
        Case("refused", "a `refusal` of two lines", (refused,), 1, "", "the model refused: I cannot"),
        Case("schema refused", "400, response_format", (schema,), 1, None,
             "config.actor.structured=json or off"),
        Case("no JSON", "400 with a text", (Answer(400, b"nonsense"),), 1, None, "status 400"),
        Case("null content", "`content` null", (completion(None),), 1, "", "the reply holds no text"),
        Case("prompt too long", "400, maximum context length", (long,), 1, "",
             "the model refused the request: status 400: maximum context length is 4096 tokens"),
        Case("prompt too long", "400, as our own server says it", (longer,), 1, "",
             "the model refused the request: status 400: a prompt of 40000 tokens: at most 256 are served"),
        Case("prompt filtered", "400, content management policy", (filtered,), 1, "",
             "the model refused the request: status 400: Filtered: content management policy"),
        Case("429, Retry-After", "429 with `Retry-After: 3`", (late, WELL), 2, TEXT, waits=((3.0, 3.0),)),
        Case("429, as a date", "429 with a date 40 to 41 s ahead", (dated, WELL), 2, TEXT,
             waits=((35.0, 41.0),)),
        Case("429, ms", "429 with `retry-after-ms: 1500`", (fine, WELL), 2, TEXT, waits=((1.5, 1.5),)),
        Case("no choices", "200, `choices` empty", (Answer(body={"choices": []}),), 1, "",
             "the answer holds no choice"),
        Case("reset", "the connection reset", (Answer(reset=True), WELL), 2, TEXT, waits=OPENAI[:1],
             lost=1),
        Case("429, a day's quota", "429, `quotaId` per day", (daily,), 5, None, "the quota is used up",
             OPENAI),
        Case("429, paid out", "429, `insufficient_quota`", (paid,), 5, None, "the quota is used up", OPENAI),
        Case("invalid key", "401", (key,), 1, None, "check the API key"),
        Case("another server", "200 with HTML", (Answer(body=b"<html>"),), 1, None, "not a chat completion"),
    ]  # fmt: skip
