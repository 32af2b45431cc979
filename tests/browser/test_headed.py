"""Browsers with a window, on a virtual display: the same machine and the same records as without one."""

import shutil

import pytest

from collection.browser.display import VirtualDisplay
from collection.browser.session import Browser, BrowserConfig
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.errors import UserError
from tests.browser.fixtures import PAGES

NEEDS_XVFB = pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed")
# More pages than these have a proof.
NAMES = ("elements", "fields", "scroll", "shadow", "frames", "labels")
SEEN = """
const done = arguments[0];
navigator.userAgentData.getHighEntropyValues(['architecture', 'fullVersionList', 'platformVersion']).then(
  (hints) => done([navigator.userAgent, navigator.webdriver, navigator.languages, JSON.stringify(hints),
    [screen.width, screen.height, screen.colorDepth], [innerWidth, innerHeight], devicePixelRatio]));
"""


def records(pages, headed):
    """What pages see of the browser, and what the browser shows of pages, by name."""
    config = BrowserConfig(user_agent="desktop", headed=headed, screen="1440x1100")
    with Browser(config) as browser:
        shown = {}
        for name in NAMES:
            browser.goto(f"{pages}/{name}.html")
            browser.settle()
            snapshot = take_snapshot(browser)
            boxes = {index: target.box for index, target in snapshot.targets.items()}
            shown[name] = (snapshot.page_text, snapshot.stats, snapshot.fingerprint, boxes)
        return browser.driver.execute_async_script(SEEN), shown


@NEEDS_XVFB
def test_both_modes_see_and_show_the_same(local_pages, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    assert all((PAGES / f"{name}.html").exists() for name in NAMES)
    (seen, shown), (headed_seen, headed_shown) = (records(local_pages, headed) for headed in (False, True))
    assert headed_seen == seen and seen[4][:2] == [1440, 1100] and "Headless" not in seen[0]
    assert headed_shown == shown


@NEEDS_XVFB
def test_displays_are_apart_and_end():
    first, second = VirtualDisplay(800, 600), VirtualDisplay(800, 600)
    assert first.name != second.name
    for display in (first, second):
        display.close()
        assert display._process.returncode is not None


def test_without_xvfb_it_is_one_line(monkeypatch, tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="Xvfb is not found; install xvfb") as error:
        Browser(BrowserConfig(headed=True, chromium=chromium or "", chromedriver=driver or ""))
    assert "\n" not in str(error.value)
