"""Answers of chat-completions endpoints, and the expected behaviour of the wrapper."""

from __future__ import annotations

import dataclasses

from tests.llm.answers import BACKOFF, PER_DAY, TEXT, WELL, Case, completion, delay, retry_info
from tests.llm.server import Answer


def chat_cases() -> list[Case]:
    slow = Answer(429, {"error": {"message": "Rate limit reached", "type": "requests"}})
    late = dataclasses.replace(slow, headers={"Retry-After": "3"})
    dated = dataclasses.replace(slow, headers={"Retry-After": "+40"})
    fine = dataclasses.replace(slow, headers={"retry-after-ms": "1500"})
    # Gemini's own chat-completions address puts its error into a list.
    listed = Answer(429, [{"error": {"code": 429, "message": "Slow", "details": [retry_info("12s")]}}])
    daily = Answer(429, [{"error": {"code": 429, "message": "Out", "details": [PER_DAY, retry_info("9s")]}}])
    paid = Answer(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    longer = Answer(400, {"error": {"message": "messages: 40000 tokens, at most 256 are served"}})
    long = Answer(400, {"error": {"message": "maximum context length is 4096 tokens", "code": 400}})
    key = Answer(401, {"error": {"message": "Incorrect API key provided"}})
    return [
        Case("answer", "a choice", (WELL,), 1, TEXT),
        Case("cut off", "`finish_reason` length", (completion('{"a":', "length"),), 1, '{"a":',
             "the reply was cut off after 64 tokens"),
        Case("filtered", "`finish_reason` content_filter", (completion(None, "content_filter"),), 1, "",
             "the reply was blocked: content_filter"),
        Case("null content", "`content` null", (completion(None),), 1, "", "the reply holds no text"),
        Case("prompt too long", "400, maximum context length", (long,), 1, "",
             "the model refused the request: status 400: maximum context length is 4096 tokens"),
        Case("prompt too long", "400, as our own server says it", (longer,), 1, "",
             "the model refused the request: status 400: messages: 40000 tokens, at most 256 are served"),
        Case("429, Retry-After", "429 with `Retry-After: 3`", (late, WELL), 2, TEXT, waits=(delay(3),)),
        Case("429, as a date", "429 with a date 40 to 41 s ahead", (dated, WELL), 2, TEXT,
             waits=((35.0, 42.0),)),
        Case("429, ms", "429 with `retry-after-ms: 1500`", (fine, WELL), 2, TEXT, waits=(delay(1.5),)),
        Case("429, RetryInfo", "429, a list with `retryDelay` 12s", (listed, WELL), 2, TEXT,
             waits=(delay(12),)),
        Case("no choices", "200, `choices` empty", (Answer(body={"choices": []}), WELL), 2, TEXT,
             waits=BACKOFF[:1]),
        Case("reset", "the connection reset", (Answer(reset=True), WELL), 2, TEXT, waits=BACKOFF[:1],
             lost=1),
        Case("429, a day's quota", "429, `quotaId` per day", (daily,), 1, None, "the quota is used up"),
        Case("429, paid out", "429, `insufficient_quota`", (paid,), 1, None, "the quota is used up"),
        Case("invalid key", "401", (key,), 1, None, "check the API key"),
        Case("another server", "200 with HTML", (Answer(body=b"<html>"),), 1, None, "not a chat completion"),
    ]  # fmt: skip
