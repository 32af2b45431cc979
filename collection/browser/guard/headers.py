"""Which headers of a request or response are for the next machine only (RFC 9110, 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable

import h11

from collection.browser.guard.expansion import ACCEPTED

_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"upgrade",
}
_FOR_REQUESTS = {b"accept-encoding", b"expect", b"host"}
Pairs = list[tuple[bytes, bytes]]


def request_headers(request: h11.Request, host: str) -> Pairs:
    """What a server is sent: the judged host, framing that is said once, encodings that can be counted."""
    kept = _end_to_end(request, _FOR_REQUESTS)
    if any(name.lower() == b"transfer-encoding" for name, _ in kept):
        kept = [(name, value) for name, value in kept if name.lower() != b"content-length"]
    return [(b"Host", host.encode()), *kept, (b"Accept-Encoding", ACCEPTED)]


def response_headers(response: h11.Response) -> Pairs:
    return _end_to_end(response, set())


def values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _end_to_end(message: h11.Request | h11.Response, also: set[bytes]) -> Pairs:
    named = {
        token.strip().lower().encode("latin-1")
        for line in values(message.headers, b"connection")
        for token in line.split(",")
    }
    # A message's framing cannot be talked away.
    dropped = (_HOP | also | named) - {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in message.headers.raw_items() if name.lower() not in dropped]
