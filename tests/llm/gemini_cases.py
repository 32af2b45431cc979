"""Answers of the Gemini API, and the expected behaviour of the wrapper."""

from __future__ import annotations

import dataclasses

from tests.llm.answers import (
    GEMINI,
    GOOD,
    PER_DAY,
    TEXT,
    Case,
    candidate,
    gemini_error,
    quota,
    retry_info,
)
from tests.llm.server import Answer

_EXHAUSTED = "RESOURCE_EXHAUSTED"
_PER_MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel")
_INVALID_KEY = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}
_DANGER = {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}


def gemini_cases() -> list[Case]:
    return [*_replies(), *_no_replies(), *_again(), *_for_good()]


def _replies() -> list[Case]:
    thought = candidate([{"text": "Hm.", "thought": True}, {"text": '{"a"'}, {"text": ":1}"}])
    signed = candidate([{"text": TEXT, "thoughtSignature": "EqQKCqEKAdHtim9y"}], None, index=0)
    return [
        Case("answer", "a candidate", (GOOD,), 1, TEXT),
        Case("thinking", "a thought and two parts of text", (thought,), 1, TEXT),
        Case("thought signature", "a signed part, no finish reason", (signed,), 1, TEXT),
    ]


def _no_replies() -> list[Case]:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": [_DANGER]}}
    call = {"functionCall": {"name": "click", "args": {"index": 1}}}
    cut = "the reply was cut off after 64 tokens"
    danger = "the reply was blocked: SAFETY (HARM_CATEGORY_DANGEROUS_CONTENT: HIGH)"
    too_long = "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576)"
    refused = gemini_error(400, too_long, "INVALID_ARGUMENT")
    return [
        Case("prompt blocked", "no candidate, `blockReason` SAFETY", (Answer(body=blocked),), 1, "",
             "the prompt was blocked: SAFETY"),
        Case("reply blocked", "`finishReason` SAFETY, no content",
             (candidate(None, "SAFETY", safetyRatings=[_DANGER]),), 1, "", danger),
        Case("unknown reason", "a `finishReason` that the client does not know",
             (candidate([{"text": "x"}], "NEW_REASON"),), 1, "x", "the reply was blocked: NEW_REASON"),
        Case("cut off", "JSON that breaks off, MAX_TOKENS",
             (candidate([{"text": '{"a":'}], "MAX_TOKENS"),), 1, '{"a":', cut),
        Case("all thinking", "MAX_TOKENS without any text", (candidate(None, "MAX_TOKENS"),), 1, "", cut),
        Case("nothing", "an empty object", (Answer(body={}),), 1, "", "the model sent no candidate"),
        Case("null content", "`content` null", (candidate(None),), 1, "", "the reply holds no text"),
        Case("function call", "a functionCall part alone", (candidate([call]),), 1, "",
             "the reply holds no text but function_call"),
        Case("blank", "a part of white space", (candidate([{"text": " \n"}]),), 1, "",
             "the reply holds no text"),
        Case("prompt too long", "400, token count exceeded", (refused,), 1, "",
             f"the model refused the request: status 400: {too_long}"),
    ]  # fmt: skip


def _again() -> list[Case]:
    busy = gemini_error(503, "The model is overloaded.", "UNAVAILABLE")
    slow = gemini_error(429, "Quota exceeded.", _EXHAUSTED, _PER_MINUTE, retry_info("31.5s"))
    short = dataclasses.replace(GOOD, short=9)
    half = Answer(body=b'{"candidates": [')
    return [
        Case("429", "429 with `retryDelay` 31.5s, then an answer", (slow, GOOD), 2, TEXT, waits=GEMINI[:1]),
        Case("503", "503 three times, then an answer", (busy, busy, busy, GOOD), 4, TEXT, waits=GEMINI[:3]),
        Case("500", "500 with an empty body", (Answer(500, b""), GOOD), 2, TEXT, waits=GEMINI[:1]),
        Case("reset", "the connection reset before an answer", (Answer(reset=True), GOOD), 2, TEXT,
             waits=GEMINI[:1], lost=1),
        Case("half an answer", "the connection closed within the body", (short, GOOD), 2, TEXT,
             waits=GEMINI[:1], lost=1),
        Case("no JSON", "200 with half of a JSON text", (half,), 1, "", "a malformed answer", lost=1),
        Case("wrong shape", "200, `parts` is text", (candidate("no"),), 1, "", "a malformed answer", lost=1),
        Case("silence", "nothing within the timeout", (Answer(silent=True), GOOD), 2, TEXT, waits=GEMINI[:1],
             lost=1),
    ]  # fmt: skip


def _for_good() -> list[Case]:
    down = gemini_error(503, "The model is overloaded.", "UNAVAILABLE")
    day = gemini_error(429, "Quota exceeded.", _EXHAUSTED, PER_DAY, retry_info("20s"))
    paid = gemini_error(429, "Your prepayment credits are depleted.", _EXHAUSTED)
    level = gemini_error(400, "Thinking level is not supported for this model.", "INVALID_ARGUMENT")
    key = gemini_error(
        400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", _INVALID_KEY
    )
    unknown = gemini_error(404, "models/gem is not found", "NOT_FOUND")
    complex_schema = "The specified schema produces a constraint that has too many states for serving."
    schema = gemini_error(400, complex_schema, "INVALID_ARGUMENT")
    return [
        Case("503 for good", "503 every time", (down,), 5, None, "no answer after 5 calls", GEMINI),
        Case("429, a day's quota", "429, `quotaId` per day", (day,), 5, None, "the quota is used up", GEMINI),
        Case("429, prepaid credits", "429, RESOURCE_EXHAUSTED, credits depleted", (paid,), 5, None,
             "the quota is used up", GEMINI),
        Case("thinking level", "400, the level is not supported", (level,), 1, None,
             "config.actor.parameters changes what is sent"),
        Case("invalid key", "400, API_KEY_INVALID", (key,), 1, None, "check GEMINI_API_KEY"),
        Case("forbidden", "403", (gemini_error(403, "Permission denied.", "PERMISSION_DENIED"),), 1, None,
             "check GEMINI_API_KEY"),
        Case("unknown model", "404", (unknown,), 1, None,
             "check config.actor.base_url and config.actor.model"),
        Case("schema refused", "400, the schema is too complex", (schema,), 1, None,
             "set config.actor.structured=json"),
    ]  # fmt: skip
