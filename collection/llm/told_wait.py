"""How long a server asks to be left alone, in whichever of its places it says so."""

from __future__ import annotations

import datetime
import email.utils
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

# A protobuf Duration as JSON.
_DURATION = re.compile(r"(\d+(?:\.\d*)?)s")


def told_wait(headers: Mapping[str, str], body: Any, now: float) -> float | None:
    """Seconds to wait before the next call; None when nothing is told.

    Reads `Retry-After` (seconds, or an HTTP date: RFC 9110, 10.2.3), `retry-after-ms`, and
    `google.rpc.RetryInfo` among the error's details, also in the error body of a chat-completions
    endpoint, where some servers put it into a list. The longest counts.

    Args:
      headers: of the response, by lower-case name or without regard to case.
      body: its JSON, whatever it is.
      now: Unix time.
    """
    waits = [
        _seconds(headers.get("retry-after", ""), now),
        _scaled(headers.get("retry-after-ms", ""), 1e-3),
        *(_retry_info(detail) for detail in error_details(body)),
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def error_details(body: Any) -> Iterator[dict[str, Any]]:
    """The objects in `error.details` of a Google-style error body, or of each error of a list."""
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
