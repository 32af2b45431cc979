"""What error messages of model endpoints are about."""

from __future__ import annotations

import re

_MAX_CHARS = 200
# Wordings of Gemini, OpenAI, vLLM and our own server for a prompt or an image that cannot be taken.
_REQUEST = re.compile(
    r"context[ _]length|maximum context|input token|token count|tokens, at most"
    r"|(request|prompt|input).{0,20} too (long|large)"
    r"|unable to process input image|(invalid|unsupported|could not process).{0,20}\bimage",
    re.IGNORECASE,
)


def is_about_this_request(status: int, message: str) -> bool:
    """Whether only the request at hand is refused, so that others are still worth making."""
    return status == 413 or (status in (400, 422) and _REQUEST.search(message) is not None)


def one_line(message: str) -> str:
    """An endpoint's message, fit for one line."""
    return " ".join(message.split())[:_MAX_CHARS].rstrip(".")
