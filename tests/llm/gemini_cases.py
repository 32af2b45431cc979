"""Answers of the Gemini API, and the expected behaviour of the wrapper."""

from __future__ import annotations

import dataclasses

from tests.llm.answers import (
    BACKOFF,
    GOOD,
    PER_DAY,
    TEXT,
    Case,
    candidate,
    delay,
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
    signed = candidate([{"text": TEXT, "thoughtSignature": "EqQKCqEKAdHtim9y"}], index=0)
    return [
        Case("answer", "a candidate", (GOOD,), 1, TEXT),
        Case("thinking", "a thought and two parts of text", (thought,), 1, TEXT),
        Case("Gemini 3: thought signature", "a signed part, counts of thoughts", (signed,), 1, TEXT),
        Case("no finish reason", "a candidate without one", (candidate([{"text": TEXT}], None),), 1, TEXT),
    ]


def _no_replies() -> list[Case]:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": [_DANGER]}}
    call = {"functionCall": {"name": "click", "args": {"index": 1}}}
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    cut = "the reply was cut off after 64 tokens"
    danger = "the reply was blocked: SAFETY (HARM_CATEGORY_DANGEROUS_CONTENT: HIGH)"
    too_long = "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576)"
    return [
        Case(
            "prompt blocked",
            "no candidate, `blockReason` SAFETY",
            (Answer(body=blocked),),
            1,
            "",
            "the prompt was blocked: SAFETY",
        ),
        Case(
            "reply blocked",
            "`finishReason` SAFETY, no content",
            (candidate(None, "SAFETY", safetyRatings=[_DANGER]),),
            1,
            "",
            danger,
        ),
        Case(
            "recitation",
            "`finishReason` RECITATION, no parts",
            (candidate([], "RECITATION"),),
            1,
            "",
            "the reply was blocked: RECITATION",
        ),
        Case(
            "unknown reason",
            "a `finishReason` that the client does not know",
            (candidate([{"text": "x"}], "NEW_REASON"),),
            1,
            "x",
            "the reply was blocked: NEW_REASON",
        ),
        Case(
            "cut off",
            "JSON that breaks off, MAX_TOKENS",
            (candidate([{"text": '{"a":'}], "MAX_TOKENS"),),
            1,
            '{"a":',
            cut,
        ),
        Case("all thinking", "MAX_TOKENS without any text", (candidate(None, "MAX_TOKENS"),), 1, "", cut),
        Case(
            "no candidates",
            "an empty list",
            (Answer(body={"candidates": []}),),
            1,
            "",
            "the model sent no candidate",
        ),
        Case("nothing", "an empty object", (Answer(body={}),), 1, "", "the model sent no candidate"),
        Case("no parts", "content without parts", (candidate([]),), 1, "", "the reply holds no text"),
        Case("null content", "`content` null", (candidate(None),), 1, "", "the reply holds no text"),
        Case(
            "function call",
            "a functionCall part alone",
            (candidate([call]),),
            1,
            "",
            "the reply holds no text but function_call",
        ),
        Case(
            "inline data",
            "an image part alone",
            (candidate([image]),),
            1,
            "",
            "the reply holds no text but inline_data",
        ),
        Case(
            "blank",
            "a part of white space",
            (candidate([{"text": " \n"}]),),
            1,
            "",
            "the reply holds no text",
        ),
        Case(
            "prompt too long",
            "400, token count exceeded",
            (gemini_error(400, too_long, "INVALID_ARGUMENT"),),
            1,
            "",
            f"the model refused the request: status 400: {too_long}",
        ),
    ]


def _again() -> list[Case]:
    busy = gemini_error(503, "The model is overloaded.", "UNAVAILABLE")
    slow = gemini_error(429, "Quota exceeded.", _EXHAUSTED, _PER_MINUTE, retry_info("31.5s"))
    late = dataclasses.replace(gemini_error(429, "Slow down.", _EXHAUSTED), headers={"Retry-After": "7"})
    dated = dataclasses.replace(busy, headers={"Retry-After": "+40"})
    both = dataclasses.replace(slow, headers={"Retry-After": "5"})
    page = Answer(502, b"<html>Bad gateway</html>", {"Content-Type": "text/html"})
    short = dataclasses.replace(GOOD, short=9)
    return [
        Case(
            "429, RetryInfo",
            "429 with `retryDelay` 31.5s, then an answer",
            (slow, GOOD),
            2,
            TEXT,
            waits=(delay(31.5),),
        ),
        Case(
            "429, Retry-After",
            "429 with `Retry-After: 7`, then an answer",
            (late, GOOD),
            2,
            TEXT,
            waits=(delay(7),),
        ),
        Case(
            "503, Retry-After as a date",
            "503 with a date 40 to 41 s ahead",
            (dated, GOOD),
            2,
            TEXT,
            waits=((35.0, 42.0),),
        ),
        Case(
            "429, both",
            "`Retry-After: 5` and `retryDelay` 31.5s",
            (both, GOOD),
            2,
            TEXT,
            waits=(delay(31.5),),
        ),
        Case("503", "503 three times, then an answer", (busy, busy, busy, GOOD), 4, TEXT, waits=BACKOFF[:3]),
        Case("500", "500 with an empty body", (Answer(500, b""), GOOD), 2, TEXT, waits=BACKOFF[:1]),
        Case("gateway's page", "502 with HTML", (page, GOOD), 2, TEXT, waits=BACKOFF[:1]),
        Case(
            "reset",
            "the connection reset before an answer",
            (Answer(reset=True), GOOD),
            2,
            TEXT,
            waits=BACKOFF[:1],
            lost=1,
        ),
        Case(
            "half an answer",
            "the connection closed within the body",
            (short, GOOD),
            2,
            TEXT,
            waits=BACKOFF[:1],
            lost=1,
        ),
        Case(
            "no JSON",
            "200 with half of a JSON text",
            (Answer(body=b'{"candidates": ['), GOOD),
            2,
            TEXT,
            waits=BACKOFF[:1],
            lost=1,
        ),
        Case(
            "wrong shape",
            "200, `parts` is text",
            (candidate("no"), GOOD),
            2,
            TEXT,
            waits=BACKOFF[:1],
            lost=1,
        ),
        Case(
            "silence",
            "nothing within the timeout",
            (Answer(silent=True), GOOD),
            2,
            TEXT,
            waits=BACKOFF[:1],
            lost=1,
        ),
    ]


def _for_good() -> list[Case]:
    invalid = "API key not valid. Please pass a valid API key."
    down = gemini_error(503, "The model is overloaded.", "UNAVAILABLE")
    day = gemini_error(429, "Quota exceeded.", _EXHAUSTED, PER_DAY, retry_info("20s"))
    hours = gemini_error(429, "Quota exceeded.", _EXHAUSTED, retry_info("7200s"))
    complex_schema = "The specified schema produces a constraint that has too many states for serving."
    return [
        Case("503 for good", "503 every time", (down,), 5, None, "no answer after 5 calls", BACKOFF),
        Case(
            "429, a day's quota",
            "429, `quotaId` per day, `retryDelay` 20s",
            (day,),
            1,
            None,
            "the quota is used up: continue tomorrow",
        ),
        Case(
            "429, prepaid credits",
            "429, RESOURCE_EXHAUSTED, credits depleted",
            (gemini_error(429, "Your prepayment credits are depleted.", _EXHAUSTED),),
            1,
            None,
            "the quota is used up",
        ),
        Case(
            "thinking level",
            "400, the level is not supported",
            (gemini_error(400, "Thinking level is not supported for this model.", "INVALID_ARGUMENT"),),
            1,
            None,
            "this model does not take this config.actor.reasoning_effort",
        ),
        Case("429, two hours", "429 with `retryDelay` 7200s", (hours,), 1, None, "asks to wait 7200 s"),
        Case(
            "invalid key",
            "400, API_KEY_INVALID",
            (gemini_error(400, invalid, "INVALID_ARGUMENT", _INVALID_KEY),),
            1,
            None,
            "check GEMINI_API_KEY",
        ),
        Case(
            "forbidden",
            "403",
            (gemini_error(403, "Permission denied.", "PERMISSION_DENIED"),),
            1,
            None,
            "check GEMINI_API_KEY",
        ),
        Case(
            "unknown model",
            "404",
            (gemini_error(404, "models/gem is not found", "NOT_FOUND"),),
            1,
            None,
            "check config.actor.model",
        ),
        Case(
            "schema refused",
            "400, the schema is too complex",
            (gemini_error(400, complex_schema, "INVALID_ARGUMENT"),),
            1,
            None,
            "set config.actor.structured=json",
        ),
    ]
