"""Fixtures: a browser per test module; servers of MiniWoB++ and of test pages per test process."""

from __future__ import annotations

import functools
import http.server
import pathlib
from collections.abc import Iterator

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer
from tests.loopback import PageHandler, serving

PAGES = pathlib.Path(__file__).with_name("pages")


@pytest.fixture(scope="session")
def miniwob_server() -> Iterator[MiniWobServer]:
    with MiniWobServer() as server:
        yield server


@pytest.fixture(scope="session")
def local_pages() -> Iterator[str]:
    """The URL of the test pages, at `http://127.0.0.1:PORT`; `other.test` is the same server."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        log_message = PageHandler.log_message  # pyright: ignore[reportAssignmentType]

    with serving(functools.partial(Handler, directory=str(PAGES))) as address:
        yield f"http://{address}"


# Of a module: tests of other modules end the drivers of their process to see what is left.
@pytest.fixture(scope="module")
def shared_browser(miniwob_server: MiniWobServer, local_pages: str) -> Iterator[Browser]:
    rules = (f"MAP other.test {local_pages.removeprefix('http://')}", *miniwob_server.host_rules)
    with Browser(BrowserConfig(width=500, height=320, host_rules=rules, quiet_ms=20)) as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Browser:
    """The shared browser with one empty tab."""
    shared_browser.reset()
    return shared_browser


@pytest.fixture
def episode(browser: Browser) -> MiniWobEpisode:
    return MiniWobEpisode(browser)
