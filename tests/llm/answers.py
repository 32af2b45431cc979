"""Cases: answers of an endpoint with the expected behaviour, and building blocks for answers."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from tests.llm.server import Answer

Wait = tuple[float, float]
# Of the libraries' own retries.
GEMINI: tuple[Wait, ...] = ((1.0, 2.0), (4.0, 5.0), (16.0, 17.0), (60.0, 60.0))
OPENAI: tuple[Wait, ...] = ((0.37, 0.5), (0.75, 1.0), (1.5, 2.0), (3.0, 4.0))


@dataclasses.dataclass(frozen=True)
class Case:
    """One behaviour.

    Attributes:
      sent: the endpoint's answers in words.
      calls: how many are made.
      waits: bounds of each wait between them, in seconds.
      text: the answer's text; None when an error ends the run.
      problem: of the reply, or part of the error's line.
      lost: attempts that may be billed although their answer was lost.
    """

    name: str
    sent: str
    answers: tuple[Answer, ...]
    calls: int
    text: str | None
    problem: str = ""
    waits: tuple[Wait, ...] = ()
    lost: int = 0
    api: Literal["gemini", "chat"] = "gemini"


def candidate(parts: Any, reason: str | None = "STOP", **more: Any) -> Answer:
    """Returns a Gemini answer with one candidate; without content if `parts` is None."""
    one = {"content": {"role": "model", "parts": parts}} if parts is not None else {"content": None}
    ended = {"finishReason": reason} if reason else {}
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 60, "thoughtsTokenCount": 40}
    return Answer(body={"candidates": [one | ended | more], "usageMetadata": usage})


def gemini_error(code: int, message: str, status: str = "", *details: dict[str, Any]) -> Answer:
    return Answer(
        code, {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
    )


def retry_info(delay: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(quota_id: str) -> dict[str, Any]:
    violation = {"quotaMetric": "generativelanguage.googleapis.com/requests", "quotaId": quota_id}
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}


def completion(text: str | None, reason: str = "stop") -> Answer:
    """Returns a chat completion."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return Answer(body={"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}})


def openai_error(status: int, message: str, code: str | None = None) -> Answer:
    """Returns an error as OpenAI sends it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Answer(status, {"error": error})


def anthropic_error(status: int, message: str, code: str = "invalid_request_error") -> Answer:
    """Returns an error as Anthropic's chat-completions endpoint sends it."""
    return Answer(status, {"error": {"message": message, "type": code, "param": None, "code": code}})


GOOD = candidate([{"text": '{"a":1}'}])
WELL = completion('{"a":1}')
TEXT = '{"a":1}'
PER_DAY = quota("GenerateRequestsPerDayPerProjectPerModel")
