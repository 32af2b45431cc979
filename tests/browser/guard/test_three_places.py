"""One list of URLs, judged before an action, where connections are opened, and in windows after a step."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import ada_url
import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import Reason, RequestTarget, read_url
from tests.browser.guard.raw import send
from tests.browser.guard.servers import answering, page
from tests.browser.guard.urls import ALLOWED, PRIVATE, URLS

TLS = b"\x16\x03\x01\x00\x05hello"
DEFAULT_PORTS = {"https:": 443, "wss:": 443, "http:": 80, "ws:": 80}


@pytest.fixture(scope="module")
def arrived() -> list[bytes]:
    return []


@pytest.fixture(scope="module")
def guard(arrived: list[bytes]) -> Iterator[Guard]:
    """Maps every host of the list, allowed or not, to one server that sees all requests."""

    def answer(connection: socket.socket, head: bytes) -> None:
        arrived.append(head)
        connection.sendall(page(b"through"))
        connection.close()

    targets = [found for url, _ in URLS if isinstance(found := read_url(url), RequestTarget)]
    with answering(answer) as port:
        hosts = {f"{target.host}:{target.port}": f"127.0.0.1:{port}" for target in targets}
        with Guard(GuardConfig(allowed=ALLOWED, private=PRIVATE), hosts) as held:
            held.protect(9222, 9515)
            yield held


def forwarded(guard: Guard, url: str) -> str:
    """Connects as a browser does for a URL; returns "through" or the reason of the refusal."""
    parsed = ada_url.URL(url)
    port = int(parsed.port or DEFAULT_PORTS[parsed.protocol])
    secure = DEFAULT_PORTS[parsed.protocol] == 443
    # The server sees the end of a request in no TLS: one that gets any of it was reached.
    data = (TLS if secure else b"GET / HTTP/1.1") + b"\r\n\r\n"
    guard.incidents()
    _, back, _ = send(guard, parsed.hostname.removeprefix("[").removesuffix("]"), port, data)
    if back:
        return "through"
    (incident,) = guard.incidents()
    return incident.detail.rpartition("[")[2].removesuffix("]")


@pytest.mark.parametrize(("url", "reason"), URLS, ids=[ascii(url) for url, _ in URLS])
def test_the_verdict_is_the_same_everywhere(guard, arrived, url, reason):
    before = len(arrived)
    assert guard.check(url).reason is reason
    # Of other addresses no browser makes a connection.
    if isinstance(read_url(url), RequestTarget) and not url.startswith("blob:"):
        assert forwarded(guard, url) == ("through" if reason is Reason.ALLOWED else reason)
    assert (len(arrived) > before) == (reason is Reason.ALLOWED and url.strip().lower()[:2] in ("ht", "ws"))
