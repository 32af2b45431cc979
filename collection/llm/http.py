"""What both API libraries share: an HTTP client that counts attempts, and kinds of errors."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx2

from collection.llm.model import attempts

# A log line per call would hide the run's own messages; the run's file records the calls.
for _name in ("httpx2", "google_genai._api_client", "openai"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class HttpClient(httpx2.Client):
    """An HTTP client that counts the attempts of this thread's call.

    Its timeout is the longest silence of an endpoint: it restarts with every piece of an answer.
    """

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        attempts.begin()
        try:
            response = super().send(request, **options)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            # Of the errors of a connection, google-genai repeats a call after these alone.
            raise httpx2.ReadTimeout(f"{type(error).__name__}: {error}", request=request) from error
        except httpx2.ReadTimeout:
            raise
        except (httpx2.TransportError, httpx2.InvalidURL):
            attempts.lost -= 1  # It was not sent.
            raise
        attempts.lost -= 1
        return response


def is_transient(status: int) -> bool:
    """Returns True for timeouts, conflicts, rate limits, and errors of servers and gateways."""
    # 501 is "Not Implemented".
    return status in (408, 409, 425, 429) or (status >= 500 and status != 501)


# OpenAI's error code, Google's quota ids and its prepaid accounts, Anthropic's wording with status 400.
_QUOTA = re.compile(r"insufficient_quota|PerDay|credit balance is too low|credits are depleted")
# Wordings of Gemini, OpenAI, Azure, vLLM and our own server for a prompt or an image that they do not accept.
_REQUEST = re.compile(
    r"context[ _]length|maximum context|input token|token count|tokens[,:] at most|do(es)? not fit the limit"
    r"|(request|prompt|input).{0,20} too (long|large)"
    r"|content[ _](management|policy|filter)|safety system|flagged as"
    r"|unable to process input image|(invalid|unsupported|could not process).{0,20}\bimage",
    re.IGNORECASE,
)
# Wordings of llama.cpp (with status 500), ollama, vLLM and OpenAI for a model that takes text alone.
_TEXT_ALONE = re.compile(
    r"image input|multimodal|at most 0 image|images? (is|are) not supported|image_url is only supported",
    re.IGNORECASE,
)
_MAX_CHARS = 200


def is_quota(body: str) -> bool:
    """Returns True for an exhausted quota, which often has the status of a rate limit, but lasts."""
    return _QUOTA.search(body) is not None


def takes_text_alone(message: str) -> bool:
    """Returns True if an image was sent to a model that takes none."""
    return _TEXT_ALONE.search(message) is not None


def is_about_this_request(status: int, message: str) -> bool:
    """Returns True if only this request is refused, so that other requests can still succeed."""
    # 413 is "Content Too Large". 400 and 422 also mean wrong settings, which affect all requests.
    return status == 413 or (status in (400, 422) and _REQUEST.search(message) is not None)


def one_line(message: str) -> str:
    """Returns an endpoint's message on one line, truncated."""
    return " ".join(message.split())[:_MAX_CHARS].rstrip(".")


def remedy(status: int, body: str, key: str) -> str:
    """Returns what to do about a refused call.

    Args:
      key: what holds the API key.
    """
    if status in (401, 403) or "API key" in body:
        return f"check {key}"
    if status in (402, 429) or is_quota(body):
        return "the quota is used up: raise it or wait, then run the same command again"
    if status == 404:
        return "check config.actor.base_url and config.actor.model"
    if takes_text_alone(body):
        return (
            "a model that takes text alone needs config.prompt.screenshot=False, and as a judge "
            "config.judge.screenshots=False"
        )
    if "response_format" in body or "schema" in body.lower():
        return "this endpoint does not support the schema: set config.actor.structured=json or off"
    return "config.actor.parameters changes what is sent, and None there leaves a parameter out"
