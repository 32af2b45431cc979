"""Ways out of a real Chromium that are no requests for a page: datagrams, relays, downloads, sockets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import pathlib
import socket
import threading
import time

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, PageError
from tests.browser.guard.leaks import WEB_RTC
from tests.browser.guard.servers import answering, page
from tests.hostile.server import ForbiddenServer
from tests.loopback import ANY_CERTIFICATE, PageHandler, serving, tls_context

ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3.
PROTOCOL = "return performance.getEntriesByType('navigation')[0].nextHopProtocol"
ECHO = """
const [done] = arguments;
const socket = window.socket = new WebSocket('ws://shop.test/socket');
socket.onmessage = (event) => done(event.data);
socket.onopen = () => socket.send('hello');
socket.onerror = () => done('error');
window.lost = 0;
socket.onclose = () => { window.lost = 1; };
"""


class Shop:
    """A site with a socket that echoes, and files that come a piece at a time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.cut = threading.Event()

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        path = head.split()[1].decode()
        if path == "/socket":
            key = head.lower().index(b"sec-websocket-key: ") + 19
            digest = hashlib.sha1(head[key:].split()[0] + ACCEPT).digest()
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
            )
            connection.recv(1000)
            connection.sendall(b"\x81\x05hello")
            connection.recv(1000)
            self.cut.set()
        elif path in ("/large", "/held"):
            length = "Content-Length: 3000000\r\n" if path == "/held" else ""
            kind = f"Content-Type: application/octet-stream\r\n{length}Connection: close\r\n"
            connection.sendall(f"HTTP/1.1 200 OK\r\n{kind}\r\n".encode() + bytes(100_000))
            assert path == "/large" or self.go_on.wait(600)
            with contextlib.suppress(OSError):
                connection.sendall(bytes(2_900_000))
            connection.close()
        else:
            connection.sendall(page(b"<title>Shop</title><a href=/large>Large</a><a href=/held>Held</a>"))


@pytest.fixture(scope="module")
def relay():
    """A server of an allowed host that counts contacts, also by datagrams."""
    with ForbiddenServer() as server:
        yield server


@pytest.fixture(scope="module")
def shop():
    return Shop()


@pytest.fixture(scope="module")
def guard(shop, relay):
    with answering(shop) as port:
        hosts = {"shop.test": f"127.0.0.1:{port}", "turn.test": f"127.0.0.1:{relay.port}"}
        config = GuardConfig(allowed=("turn.test:*",), private=("http://always.test",), max_download_mb=1.0)
        with Guard(config, hosts) as held:
            yield held


@pytest.fixture
def browser(guard):
    with Browser(BrowserConfig(width=500, height=320, quiet_ms=20), guard) as held:
        guard.admit(["shop.test", "https://shop.test"])
        held.goto("http://shop.test/")
        held.take_incidents()
        yield held


def wait_for(condition) -> None:
    deadline = time.monotonic() + 600
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_a_relay_at_an_allowed_host_gets_no_datagram_and_no_byte(browser, guard, relay):
    assert browser.call(browser.driver.execute_async_script, WEB_RTC, f"turn.test:{relay.port}")
    assert "UDP" not in relay.contacts
    # It asks over TCP through the guard, which ends that at the first byte.
    (incident,) = guard.incidents()
    assert "turn.test" in incident.detail and "[not_http]" in incident.detail


def test_a_socket_is_open_as_long_as_its_site_is_allowed(browser, guard, shop):
    shop.cut.clear()
    assert browser.call(browser.driver.execute_async_script, ECHO) == "hello"
    guard.admit(["other.test"])
    assert shop.cut.wait(600)
    wait_for(lambda: browser.page_script("return window.lost"))


def test_a_download_over_the_limit_breaks_off(browser, guard):
    browser.page_script("document.querySelector('[href=\"/large\"]').click()")
    found = []
    wait_for(lambda: found.extend(guard.incidents()) or "[response_size]" in str(found))
    folder = pathlib.Path(browser.downloads.folder)
    wait_for(lambda: not any(folder.iterdir()))
    assert browser.downloads.take(None) == []


def test_a_download_ends_with_its_episode(browser, guard, shop):
    shop.go_on.clear()
    browser.page_script("document.querySelector('[href=\"/held\"]').click()")
    folder = pathlib.Path(browser.downloads.folder)
    wait_for(lambda: any(folder.iterdir()))
    guard.admit(["other.test"])
    shop.go_on.set()
    wait_for(lambda: not any(folder.iterdir()))
    assert browser.downloads.take(None) == []


class Secure(PageHandler):
    """Says that it speaks HTTP/3 as well, where the relay counts datagrams."""

    port = 0

    def get(self):
        self.reply("secure", headers={"Alt-Svc": f'h3=":{self.port}"; ma=3600; persist=1'})


@pytest.mark.parametrize("flags", [(), (ANY_CERTIFICATE,)], ids=["as it is", "any certificate"])
def test_certificates_are_the_browsers_and_quic_is_off(relay, tmp_path, flags):
    relay.contacts.clear()
    Secure.port = relay.port
    config = BrowserConfig(width=500, height=320, quiet_ms=20, flags=flags)
    with (
        serving(Secure, tls_context(tmp_path)) as address,
        Guard(GuardConfig(allowed=("secure.test",)), {"secure.test": address}) as guard,
        Browser(config, guard) as browser,
    ):
        if not flags:
            with pytest.raises(PageError, match="ERR_CERT_AUTHORITY_INVALID"):
                browser.goto("https://secure.test/")
            return
        for _ in range(3):
            browser.goto("https://secure.test/")
        assert browser.script(PROTOCOL).startswith("http/1")
    assert relay.contacts == []
