"""Documents by list, and parts of pages by mode, in real Chromium over TLS."""

import contextlib
import threading
import time

import pytest

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig, BrowserLostError
from collection.browser.devtools import Answer, DevToolsConnection
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.pages import ActionContext
from collection.browser.session import Browser, PageError
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from tests.browser.guard.raw import GRANTED, REFUSED, connect
from tests.loopback import ANY_CERTIFICATE, PageHandler, serving, tls_context

PARTS = ("script", "img", "css", "fetch", "frame", "worker")
# Every way in which a page can open the document of another site in a window.
WAYS = {
    "link": "<a href={0}>Go</a>",
    "form": "<form action={0} method=post><button>Go</button></form>",
    "popup": "<button onclick=\"window.open('{0}')\">Go</button>",
    "blank": "<a href={0} target=_blank>Go</a>",
    "location": "<button onclick=\"location = '{0}'\">Go</button>",
    "redirect": "<a href='/redirect?{0}'>Go</a>",
    "top": "<iframe width=300 height=220 srcdoc=\"<button onclick=top.location='{0}'>Go</button>\"></iframe>",
    "prefetched": """<link rel=prefetch href={0}><script type=speculationrules>
{{"prefetch": [{{"source": "list", "urls": ["{0}"]}}], "prerender": [{{"source": "list", "urls": ["{0}"]}}]}}
</script><a href={0}>Go</a>""",
}
SHOP = """<title>Shop</title><script src=https://cdn-b.com/script></script><img src=https://cdn-b.com/img>
<link rel=stylesheet href=https://cdn-b.com/css><iframe src=https://cdn-b.com/frame></iframe>
<img src=https://www.shop-a.com/same><img src=https://10.1.2.3/private><img src=https://localhost:{port}/private>
<script>fetch('https://cdn-b.com/fetch'); new WebSocket('wss://cdn-b.com/socket');
new Worker(URL.createObjectURL(new Blob(["importScripts('https://cdn-b.com/worker')"])));</script>"""
KINDS = {"script": "text/javascript", "worker": "text/javascript", "css": "text/css"}


class Site:
    """A server for all names, and what was asked of it as `host/path`."""

    def __init__(self):
        self.asked: list[str] = []
        site, self.changed = self, threading.Condition()

        class Handler(PageHandler):
            def get(self):
                path, _, query = self.path.partition("?")
                with site.changed:
                    site.asked.append(self.headers["Host"] + path)
                    site.changed.notify_all()
                if path == "/redirect":
                    self.move(query)
                elif path.startswith("/way/"):
                    self.reply("<title>Way</title>" + WAYS[path[5:]].format("https://evil-c.com/page"))
                elif path == "/":
                    self.reply(SHOP.format(port=self.server.server_port))
                else:
                    kind = KINDS.get(path[1:], "text/html")
                    self.reply("", kind, headers={"Access-Control-Allow-Origin": "*"})

            post = get

        self.handler = Handler

    def wait(self, wanted: set[str]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: wanted <= set(self.asked), timeout=600)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return tls_context(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def site(tls):
    site = Site()
    with serving(site.handler, tls) as site.address:
        yield site


def open_browser(site, **settings):
    hosts = dict.fromkeys(
        ("shop-a.com", "www.shop-a.com", "cdn-b.com", "evil-c.com", "new-d.com"), site.address
    )
    guard = Guard(GuardConfig(allowed=("shop-a.com",), **settings), hosts)
    config = BrowserConfig(width=500, height=320, quiet_ms=20, flags=(ANY_CERTIFICATE,))
    return guard, lambda: Browser(config, guard)


@pytest.fixture(scope="module")
def browser(site):
    guard, start = open_browser(site, subresources="public")
    with guard, start() as browser:
        yield browser


def test_parts_of_public_sites_are_loaded(browser, site):
    browser.goto("https://shop-a.com/")
    site.wait({f"cdn-b.com/{part}" for part in (*PARTS, "socket")} | {"www.shop-a.com/same"})
    assert "localhost" not in "".join(site.asked)
    lines = " ".join(incident.detail for incident in browser.take_incidents())
    assert "10.1.2.3" in lines and "localhost" in lines and "cdn-b.com" not in lines


def test_an_empty_page_that_was_not_requested_does_not_replace_a_start_page(browser, site):
    browser.reset()
    browser.guard.serve_empty("https://shop-a.com/")
    browser.guard.expect_start_page()
    browser.goto("https://shop-a.com/")
    browser.guard.start_page_arrived()
    assert [tab.title for tab in browser.tabs()] == ["Shop"]


@pytest.mark.parametrize("way", WAYS)
def test_no_window_opens_a_document_of_a_site_that_is_not_listed(browser, site, way):
    browser.reset()
    browser.goto(f"https://shop-a.com/way/{way}")
    browser.settle()
    (index,) = take_snapshot(browser).targets
    before = browser.current_handle
    result = execute(browser, normalize_action({"click_element_by_index": {"index": index}}), ActionContext())
    assert "https://evil-c.com/page: evil-c.com is not one of the sites" in result.text
    assert "evil-c.com/page" not in site.asked or way == "prefetched"
    assert not any("evil" in tab.url for tab in browser.tabs())
    assert any("evil-c.com" in one.detail for one in browser.take_incidents())
    # The page stays where it was, unless nothing but the new document would have been there.
    if way != "redirect":
        assert browser.switch_tab(next(tab.tab_id for tab in browser.tabs()))
        assert (browser.current_handle, browser.tabs()[0].title) == (before, "Way")


def test_an_address_is_refused_as_before(browser):
    with pytest.raises(PageError, match="Refused to open https://evil"):
        browser.goto("https://evil-c.com/page")
    with pytest.raises(PageError, match="BLOCKED_BY_CLIENT"):
        browser.goto("https://shop-a.com/redirect?https://evil-c.com/page")


def test_same_site_and_none(site):
    for mode, wanted in (("same_site", ["www.shop-a.com/same"]), ("none", [])):
        site.asked.clear()
        guard, start = open_browser(site, subresources=mode, redirects="start")
        with guard, start() as browser:
            browser.goto("https://shop-a.com/")
            browser.settle()
        assert [one for one in site.asked if "favicon" not in one] == ["shop-a.com/", *wanted]


def test_parts_are_refused_as_long_as_no_browser_is_watched(site):
    guard, start = open_browser(site, subresources="public")
    with guard:
        with connect(guard, "cdn-b.com", 443) as (status, _):
            assert status == REFUSED
        with contextlib.ExitStack() as stack:
            with start():
                status, kept = stack.enter_context(connect(guard, "cdn-b.com", 443))
                assert status == GRANTED
            # A browser that has ended, or cannot be watched any more, is let nowhere.
            with contextlib.suppress(ConnectionError):
                assert kept.recv(1) == b""
        deadline = time.monotonic() + 600
        while guard.alive and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not guard.alive
        with pytest.raises(ConnectionError), connect(guard, "cdn-b.com", 443):
            pass


def test_a_gate_that_is_lost_ends_the_browser(site):
    guard, start = open_browser(site, subresources="public")
    with guard, start() as browser:
        browser.goto("https://shop-a.com/way/link")
        site.asked.clear()
        assert guard._gate is not None
        guard._gate.close()
        deadline = time.monotonic() + 600
        while guard.alive and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not guard.alive
        with contextlib.suppress(PageError, BrowserLostError):
            browser.goto("https://shop-a.com/")
        with pytest.raises(BrowserLostError, match="lost its connection"):
            browser.sweep()
        with pytest.raises(BrowserLostError, match="lost its connection"):
            browser.take_incidents()
        # The icon of the page before it may be on its way.
        assert [one for one in site.asked if "favicon" not in one] == []


def test_a_browser_that_does_not_answer_its_gate_is_lost(site, monkeypatch):
    monkeypatch.setattr("collection.browser.guard.documents._ANSWER_S", 0.1)
    silent = type("Silent", (DevToolsConnection,), {"send": lambda *_, **__: Answer()})
    monkeypatch.setattr("collection.browser.guard.documents.DevToolsConnection", silent)
    guard, start = open_browser(site, subresources="public")
    with guard, pytest.raises(BrowserLostError, match="does not answer after its start"):
        start()


def test_an_error_of_the_gate_fails_the_document_alone(site, monkeypatch):
    guard, start = open_browser(site, subresources="public")
    with guard, start() as browser:
        browser.goto("https://shop-a.com/way/link")
        assert guard._gate is not None
        judge = guard._gate._judge
        monkeypatch.setattr(guard._gate, "_judge", lambda url: 1 / 0)
        with pytest.raises(PageError, match="FAILED"):
            browser.goto("https://shop-a.com/")
        monkeypatch.setattr(guard._gate, "_judge", judge)
        browser.goto("https://shop-a.com/way/form")
        assert browser.tabs()[0].title == "Way"
