"""HTTP client of both API libraries: a timeout for the whole call, and errors in one form."""

from __future__ import annotations

import datetime
import email.utils
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2

from collection.llm.model import TransientError

# Far above any real answer; protects against a server that never stops sending.
_MAX_BYTES = 32 * 2**20
# A log line per call would hide the run's own messages; the call ledger records the calls.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class HttpClient(httpx2.Client):
    """An HTTP client whose timeout covers the whole answer; httpx2's own restarts with every chunk.

    Args:
      timeout_s: limit for the connection, for each chunk, and for the whole answer.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic):
        super().__init__(timeout=timeout_s)
        self._timeout_s, self._clock = timeout_s, clock

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Raises `ReadTimeout` if the answer is not complete in time, `ReadError` if it is too long."""
        end = self._clock() + self._timeout_s
        # Always streamed, so that size and time are checked while the body arrives.
        response = super().send(request, stream=True, **options)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _BoundedStream(response.stream, end, self._clock, request)
        if not stream:
            try:
                response.read()
            finally:
                response.close()
        return response


class _BoundedStream(httpx2.SyncByteStream):
    def __init__(
        self, stream: httpx2.SyncByteStream, end: float, clock: Callable[[], float], request: httpx2.Request
    ):
        self._stream, self._end, self._clock, self._request = stream, end, clock, request

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._stream:
            size += len(piece)
            if size > _MAX_BYTES:
                raise httpx2.ReadError(f"an answer of more than {_MAX_BYTES} bytes", request=self._request)
            if self._clock() > self._end:
                raise httpx2.ReadTimeout("the answer is not complete in time", request=self._request)
            yield piece

    def close(self) -> None:
        self._stream.close()


def transport_error(endpoint: str, error: httpx2.TransportError) -> TransientError:
    """Returns the error to raise for a broken or slow connection."""
    reason = f"{endpoint}: {type(error).__name__}: {error}"
    # Once the request has been sent, the model may have answered it, and the provider may charge it.
    lost = (httpx2.ReadTimeout, httpx2.ReadError, httpx2.RemoteProtocolError)
    return TransientError(" ".join(reason.split()), billed=isinstance(error, lost))


def is_transient(status: int) -> bool:
    """Returns True for timeouts, conflicts, rate limits, and errors of servers and gateways."""
    # 501 is "Not Implemented". 520 to 529 are what gateways and overloaded vendors send.
    return status in (408, 409, 425, 429) or (status >= 500 and status != 501)


# OpenAI's error code, Google's quota ids and its prepaid accounts, Anthropic's wording with status 400.
_QUOTA = re.compile(r"insufficient_quota|PerDay|credit balance is too low|credits are depleted")


def is_quota(body: str) -> bool:
    """Returns True for an exhausted quota, which often has the status of a rate limit, but lasts."""
    return _QUOTA.search(body) is not None


_MAX_CHARS = 200
# Wordings of Gemini, OpenAI, Azure, vLLM and our own server for a prompt or an image that they do not accept.
_REQUEST = re.compile(
    r"context[ _]length|maximum context|input token|token count|tokens[,:] at most|do(es)? not fit the limit"
    r"|(request|prompt|input).{0,20} too (long|large)"
    r"|content[ _](management|policy|filter)|safety system|flagged as"
    r"|unable to process input image|(invalid|unsupported|could not process).{0,20}\bimage",
    re.IGNORECASE,
)


def is_about_this_request(status: int, message: str) -> bool:
    """Returns True if only this request is refused, so that other requests can still succeed."""
    # 413 is "Content Too Large". 400 and 422 also mean wrong settings, which affect all requests.
    return status == 413 or (status in (400, 422) and _REQUEST.search(message) is not None)


def one_line(message: str) -> str:
    """Returns an endpoint's message on one line, truncated."""
    return " ".join(message.split())[:_MAX_CHARS].rstrip(".")


# A protobuf Duration as JSON.
_DURATION = re.compile(r"(\d+(?:\.\d*)?)s")


def retry_after(headers: Mapping[str, str], body: Any, now: float) -> float | None:
    """Returns the seconds to wait before the next call; None if the server does not say.

    Reads `Retry-After` (seconds, or an HTTP date: RFC 9110, 10.2.3), `retry-after-ms`, and
    `google.rpc.RetryInfo` in the error's details. Some chat-completions endpoints send the latter too, and
    some put it into a list. The longest wait counts.

    Args:
      headers: headers of the response, with lower-case or case-insensitive names.
      body: JSON value of the response, of any shape.
      now: Unix time.
    """
    waits = [
        _seconds(headers.get("retry-after", ""), now),
        _scaled(headers.get("retry-after-ms", ""), 1e-3),
        *(_retry_info(detail) for detail in error_details(body)),
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def error_details(body: Any) -> Iterator[dict[str, Any]]:
    """Yields the objects in `error.details` of a Google-style error body, or of each error in a list."""
    for one in body if isinstance(body, list) else [body]:
        error = one.get("error", one) if isinstance(one, dict) else None
        details = error.get("details") if isinstance(error, dict) else None
        if isinstance(details, list):
            yield from (detail for detail in details if isinstance(detail, dict))


def _seconds(value: str, now: float) -> float | None:
    number = _scaled(value, 1.0)
    if number is not None or not value:
        return number
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        # HTTP dates are in GMT (RFC 9110, 5.6.7).
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, date.timestamp() - now)


def _scaled(value: str, unit: float) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number * unit if math.isfinite(number) and number >= 0 else None


def _retry_info(detail: dict[str, Any]) -> float | None:
    if not str(detail.get("@type", "")).endswith("google.rpc.RetryInfo"):
        return None
    match = _DURATION.fullmatch(str(detail.get("retryDelay", "")))
    return float(match[1]) if match else None
