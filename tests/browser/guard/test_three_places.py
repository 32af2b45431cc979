"""One list of URLs, judged before an action, by the proxy, and in windows after a step."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import ada_url
import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import Reason, RequestTarget, read_url
from tests.browser.guard.raw import ask, connect, receive
from tests.browser.guard.servers import answering, page
from tests.browser.guard.urls import ALLOWED, PRIVATE, URLS

TLS = b"\x16\x03\x01\x00\x05hello"
# Shown by a browser without a request, so it is nothing to ask a proxy for.
INTERNAL = ("about:", "chrome-error:")


@pytest.fixture(scope="module")
def arrived() -> list[bytes]:
    return []


@pytest.fixture(scope="module")
def guard(arrived: list[bytes]) -> Iterator[Guard]:
    """Maps every host of the list, allowed or not, to one server that sees all requests."""

    def answer(connection: socket.socket, head: bytes) -> None:
        arrived.append(head)
        connection.sendall(page(b"through"))

    targets = [found for url, _ in URLS if isinstance(found := read_url(url), RequestTarget)]
    with answering(answer) as port:
        hosts = {f"{target.host}:{target.port}": f"127.0.0.1:{port}" for target in targets}
        with Guard(GuardConfig(allowed=ALLOWED, private=PRIVATE), hosts) as held:
            held.protect(9222, 9515)
            yield held


def forwarded(guard: Guard, url: str) -> str:
    """Requests a URL as a browser does; returns "through" or the reason of the refusal."""
    parsed = ada_url.URL(url)
    port = parsed.port or {"https:": 443, "wss:": 443, "ws:": 80}.get(parsed.protocol, "")
    if parsed.protocol not in ("https:", "wss:", "ws:"):
        return verdict(ask(guard, parsed.href.partition("#")[0], parsed.host).body)
    authority = f"{parsed.hostname}:{port}"
    with connect(guard) as connection:
        connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        answer = receive(connection, "CONNECT")
        if answer.status != 200:
            return verdict(answer.body)
        if parsed.protocol == "ws:":
            connection.sendall(
                b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Host: " + parsed.host.encode() + b"\r\n\r\n"
            )
            return receive(connection).body.decode()
        # The server sees the end of a request in no TLS: one that gets any of it was reached.
        connection.sendall(TLS + b"\r\n\r\n")
        try:
            return "through" if receive(connection).body == b"through" else Reason.NOT_LISTED
        except ConnectionError:
            return Reason.NOT_LISTED


def verdict(body: bytes) -> str:
    text = body.decode()
    if not text.startswith("refused"):
        return text
    return text.removeprefix("refused by the collector's guard: ").partition(":")[0]


@pytest.mark.parametrize(("url", "reason"), URLS, ids=[ascii(url) for url, _ in URLS])
def test_the_verdict_is_the_same_everywhere(guard, arrived, url, reason):
    before = len(arrived)
    assert guard.check(url).reason is reason
    assert guard.check(url).reason == reason
    if not ada_url.check_url(url):
        # No browser makes a request of it; asked all the same, the proxy sends nothing on.
        assert ask(guard, url or "-", "example.com").status in (400, 403)
    elif url.lower().startswith(INTERNAL):
        assert verdict(ask(guard, url, "example.com").body) in (Reason.SCHEME, reason)
    elif url.startswith("blob:http") or (reason is Reason.CREDENTIALS and not url.startswith("http:")):
        # Requested unchanged; browsers remove the parts that a server does not need.
        asked = verdict(ask(guard, ada_url.URL(url).href, "example.com").body)
        assert asked == (Reason.SCHEME if reason is Reason.ALLOWED else reason)
    else:
        expected = "through" if reason is Reason.ALLOWED else reason
        assert forwarded(guard, url) == expected
    assert (len(arrived) > before) == (reason is Reason.ALLOWED and url.strip().lower()[:2] in ("ht", "ws"))


def test_as_written_is_refused_as_well(guard, arrived):
    """Sends the list unchanged, without the corrections that browsers make."""
    before = len(arrived)
    for url, reason in URLS:
        if reason is not Reason.ALLOWED:
            answer = ask(guard, url or "-", "example.com")
            assert answer.status in (400, 403), url
    assert len(arrived) == before
