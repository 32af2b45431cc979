"""Requests that a page makes by itself do not reach servers that are not on the list, in real Chromium."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser, PageError
from tests.browser.guard.leaks import PAGES, PARTS, SERVICE_WORKER, SILENT, WEB_RTC
from tests.browser.guard.servers import answering, page
from tests.hostile.server import ForbiddenServer


@pytest.fixture(scope="module")
def forbidden() -> Iterator[ForbiddenServer]:
    with ForbiddenServer() as server:
        yield server


@pytest.fixture(scope="module")
def hostile(forbidden: ForbiddenServer) -> Iterator[int]:
    def there(name: str) -> str:
        return f"http://{name}.forbidden.test:{forbidden.port}"

    whole = "<!doctype html>" + "\n".join(text.replace("%s", there(name)) for name, text in PARTS.items())

    def answer(connection: socket.socket, head: bytes) -> None:
        path, _, query = head.split()[1].decode().removeprefix("/").partition("?")
        if path == "redirect":
            data = page(b"", status="302 Found", extra=f"Location: {query}\r\n")
        elif path == "worker.js":
            data = page(SERVICE_WORKER.encode(), kind="text/javascript")
        elif path == "all":
            data = page(whole.encode())
        else:
            data = page(PAGES.get(path, "").replace("%s", there(path)).encode())
        connection.sendall(data)

    with answering(answer) as port:
        yield port


@pytest.fixture(scope="module")
def guard(forbidden: ForbiddenServer, hostile: int) -> Iterator[Guard]:
    # Were it let through, each name would lead to the forbidden server.
    hosts = {f"{name}.forbidden.test": f"127.0.0.1:{forbidden.port}" for name in (*PARTS, *PAGES)}
    with Guard(GuardConfig(private=(f"http://localhost:{hostile}",)), hosts) as held:
        yield held


@pytest.fixture(scope="module")
def browser(guard: Guard) -> Iterator[Browser]:
    with Browser(BrowserConfig(width=500, height=320, quiet_ms=20, flags=guard.flags)) as held:
        yield held


def refused(guard: Guard, wanted: set[str]) -> set[str]:
    """Waits until the guard has refused all expected hosts; returns the refused hosts."""
    found: set[str] = set()
    deadline = time.monotonic() + 600
    while not wanted <= found and time.monotonic() < deadline:
        found |= {incident.detail.split(".")[0] for incident in guard.incidents()}
        time.sleep(0.02)
    return found


def test_no_page_reaches_a_host_that_is_not_listed(browser, guard, forbidden, hostile):
    # The page tries all of them; otherwise the absence of requests would prove nothing.
    browser.goto(f"http://localhost:{hostile}/all")
    assert set(PARTS) - SILENT - refused(guard, set(PARTS) - SILENT) == set()
    for name in PAGES:
        # Where the page itself leads away, what opens is an error page.
        with contextlib.suppress(PageError):
            browser.goto(f"http://localhost:{hostile}/{name}")
        for button in browser.driver.find_elements("tag name", "button"):
            button.click()
        wanted = {name} - SILENT
        assert wanted <= refused(guard, wanted)
    assert forbidden.contacts == []


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433"])
def test_nor_by_address(browser, guard, forbidden, hostile, name):
    with pytest.raises(PageError, match="SOCKS"):
        browser.goto(f"http://{name}:{forbidden.port}/")
    assert forbidden.contacts == []


def test_own_ports_are_out_of_reach(browser, guard):
    with pytest.raises(PageError, match="SOCKS"):
        browser.goto(f"http://{guard.proxy_address}/")
    assert any("[own_port]" in one.detail for one in guard.incidents())


def test_secure_pages_are_refused_before_anything_is_sent(browser, forbidden):
    with pytest.raises(PageError, match="SOCKS"):
        browser.goto(f"https://location.forbidden.test:{forbidden.port}/")
    assert forbidden.contacts == []


def test_no_datagram_leaves(browser, forbidden, hostile):
    browser.goto(f"http://localhost:{hostile}/empty")
    assert browser.call(browser.driver.execute_async_script, WEB_RTC, f"127.0.0.1:{forbidden.port}")
    assert forbidden.contacts == []


def test_the_forbidden_server_would_have_noticed(forbidden):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", ("127.0.0.1", forbidden.port))
    socket.create_connection(("127.0.0.1", forbidden.port)).close()
    deadline = time.monotonic() + 600
    while len(forbidden.contacts) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(forbidden.contacts) == ["", "UDP"]
    forbidden.contacts.clear()
