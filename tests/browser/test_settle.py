"""Waiting for a page's images, and windows of the browser's own UI."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from PIL import Image
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from collection.browser import chromium, tabs
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from tests.loopback import PageHandler, serving

QUIET_MS, SETTLE_MS = 20, 2000
RED = (255, 0, 0)
STYLE = """
* { margin: 0; padding: 0 } .box { width: 90px; height: 90px }
.late { background-image: url(/late.png) } .plain { background-image: url(/plain.png) }
.mark::before { content: ''; display: block; width: 90px; height: 90px; background: url('/late.png#part') }
.mark::after { background: url(/unseen.png) } .none { display: none; background: url(/unseen.png) }
.far { position: absolute; top: 9000px } .lost { background-image: url(/lost.png) }
.wide { list-style: inside url(/late.png) }
"""
# What a page adds once it has loaded; each fills the window's corner with the picture.
LATE = {
    "background": "<div class='box late'></div>",
    "before": "<div class=mark></div>",
    "img": "<img src=/late.png>",
    "list": "<ul><li class=wide></ul>",
    "mask": "<div class=box style='background: red; mask-image: url(/late.png)'></div>",
    "next to a missing image": "<div class='box late'></div><img class=far loading=lazy src=/unseen.png>"
    "<div class='none'></div>",
}


class _Pictures:
    """Serves `/late.png` only after a request for `/go`, and counts the requests for every path."""

    def __init__(self) -> None:
        self.go, self.asked, self.url = threading.Event(), Counter[str](), ""


@pytest.fixture
def pictures() -> Iterator[_Pictures]:
    site = _Pictures()
    picture = io.BytesIO()
    Image.new("RGB", (90, 90), RED).save(picture, "PNG")

    class Handler(PageHandler):
        def get(self) -> None:
            site.asked[self.path] += 1
            if self.path == "/go":
                site.go.set()
            elif self.path == "/late.png":
                site.go.wait()
            status = 404 if self.path == "/lost.png" else 200
            if self.path.endswith(".png"):
                self.reply(picture.getvalue(), "image/png", status)
            else:
                self.reply(f"<!DOCTYPE html><style>{STYLE}</style>")

    with serving(Handler) as address:
        site.url = f"http://{address}"
        yield site
        site.go.set()


@pytest.fixture(scope="module")
def patient() -> Iterator[Browser]:
    with Browser(BrowserConfig(width=300, height=200, quiet_ms=QUIET_MS, settle_ms=SETTLE_MS)) as browser:
        yield browser


def show(browser: Browser, pictures: _Pictures, html: str) -> None:
    browser.reset()
    browser.goto(pictures.url)
    browser.script("document.body.innerHTML = arguments[0]", html)


def corner(browser: Browser) -> tuple[int, ...]:
    found = Image.open(io.BytesIO(browser.screenshot())).convert("RGB").getpixel((5, 5))
    assert isinstance(found, tuple)
    return found


def seconds(browser: Browser) -> float:
    start = time.monotonic()
    browser.settle()
    return time.monotonic() - start


@pytest.fixture
def very_patient(patient: Browser, monkeypatch: pytest.MonkeyPatch) -> Browser:
    """Waits for a picture as long as a busy machine may need; one that comes ends the wait."""
    monkeypatch.setattr(patient, "config", patient.config.model_copy(update={"settle_ms": 20_000}))
    return patient


@pytest.mark.parametrize("kind", LATE)
def test_a_picture_that_comes_after_the_page_has_become_quiet_is_on_the_screenshot(
    very_patient: Browser, pictures: _Pictures, kind: str
) -> None:
    patient = very_patient
    show(patient, pictures, LATE[kind])
    # The page changes no more; long after it has become quiet, the picture is answered.
    patient.script("setTimeout(() => fetch('/go'), arguments[0])", 8 * QUIET_MS)
    patient.settle()
    assert corner(patient) == RED
    assert pictures.asked["/late.png"] == 1 and pictures.asked["/unseen.png"] == 0


@pytest.mark.parametrize("kind", ["background", "img"])
def test_a_picture_that_never_comes_is_waited_for_once(
    patient: Browser, pictures: _Pictures, kind: str
) -> None:
    show(patient, pictures, LATE[kind])
    first = seconds(patient)
    assert SETTLE_MS / 1000 <= first < patient.config.script_seconds
    assert min(seconds(patient) for _ in range(3)) < SETTLE_MS / 1000
    assert pictures.asked["/late.png"] == 1


def test_a_page_cannot_break_the_wait_for_its_pictures(very_patient: Browser, pictures: _Pictures) -> None:
    patient = very_patient
    show(patient, pictures, LATE["background"])
    patient.page_script("window.getComputedStyle = performance.now = () => { throw new Error('no'); }")
    patient.script("setTimeout(() => fetch('/go'), arguments[0])", 8 * QUIET_MS)
    patient.settle()
    assert corner(patient) == RED


class _AtABar(chromium.DriverProcess):
    """A driver that starts on one of the browser's own UI pages."""

    def __init__(self, config: BrowserConfig, guard_flags: Sequence[str]) -> None:
        super().__init__(config, guard_flags)

        def switched(one: WebDriver) -> bool:
            for handle in one.window_handles:
                one.switch_to.window(handle)
                if one.current_url.startswith("chrome://omnibox-popup"):
                    return True
            return False

        WebDriverWait(self.driver, 20, poll_frequency=0.05).until(switched)


def test_a_driver_that_starts_on_browser_ui_is_switched_to_the_tab(
    pictures: _Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = tuple(flag for flag in chromium.FLAGS if "WebUIOmnibox" not in flag)
    monkeypatch.setattr(chromium, "FLAGS", flags)
    monkeypatch.setattr(tabs, "DriverProcess", _AtABar)
    with (
        Guard(GuardConfig(private=(pictures.url,))) as guard,
        Browser(BrowserConfig(width=300, height=200), guard) as browser,
    ):
        browser.goto(pictures.url)
        assert [tab.tab_id for tab in browser.tabs()] == ["0001"] and browser.current_tab == "0001"
        assert (browser.notices, browser.take_incidents()) == ([], ())
        infos = browser.cdp("Target.getTargets")["targetInfos"]
        bars = [one for one in infos if one["url"].startswith("chrome://omnibox-popup")]
        assert bars and browser.current_handle not in {one["targetId"] for one in bars}


def test_browser_ui_windows_are_ignored_and_others_are_reported(pictures: _Pictures) -> None:
    config = GuardConfig(private=(pictures.url,))
    with Guard(config) as guard, Browser(BrowserConfig(width=300, height=200), guard) as browser:
        urls = [one["url"] for one in browser.cdp("Target.getTargets")["targetInfos"]]
        assert set(urls) == {"about:blank"}
        # As a start page does that is late.
        browser.cdp("Page.navigate", url="chrome://version/")
        browser.cdp("Target.createTarget", url="chrome://newtab/")
        browser.cdp("Target.createTarget", url="chrome://tab-search.top-chrome/")
        assert [tab.url for tab in browser.tabs()] == ["about:blank"]
        browser.goto(pictures.url)
        browser.cdp("Target.createTarget", url="chrome://omnibox-popup.top-chrome/omnibox_popup_aim.html")
        browser.cdp("Target.createTarget", url="chrome://new-tab-page-third-party/")
        assert [tab.tab_id for tab in browser.tabs()] == ["0001"]
        assert (browser.notices, browser.take_incidents()) == ([], ())
        browser.cdp("Page.navigate", url="chrome://newtab/")
        assert [tab.url for tab in browser.tabs()] == ["about:blank"]
        assert browser.notices == ["Window closed: chrome: addresses are not opened"]
