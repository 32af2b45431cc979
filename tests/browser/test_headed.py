"""Browsers with a window, on a virtual display: the same machine and the same records as without one."""

import shutil

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.errors import UserError
from tests.browser.fixtures import PAGES

NEEDS_XVFB = pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed")
NAMES = ("elements", "fields", "scroll", "shadow", "frames", "labels")
SEEN = """
const done = arguments[0];
navigator.userAgentData.getHighEntropyValues(['architecture', 'fullVersionList', 'platformVersion']).then(
  (hints) => done([navigator.userAgent, navigator.webdriver, navigator.languages, JSON.stringify(hints),
    [screen.width, screen.height, screen.colorDepth], [innerWidth, innerHeight], devicePixelRatio]));
"""


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)


def in_both_modes(run, **settings):
    """Returns what `run(browser)` returns without a window and with one."""
    answers = []
    for headed in (False, True):
        with Browser(BrowserConfig(user_agent="desktop", headed=headed, **settings)) as browser:
            answers.append(run(browser))
    return answers


def record(browser):
    browser.settle()
    snapshot = take_snapshot(browser)
    boxes = {index: target.box for index, target in snapshot.targets.items()}
    return snapshot.page_text, snapshot.stats, snapshot.fingerprint, boxes


@NEEDS_XVFB
def test_both_modes_see_and_show_the_same(local_pages):
    assert all((PAGES / f"{name}.html").exists() for name in NAMES)

    def run(browser):
        shown = {}
        for name in NAMES:
            browser.goto(f"{local_pages}/{name}.html")
            shown[name] = record(browser)
        return browser.driver.execute_async_script(SEEN), shown

    (seen, shown), (headed_seen, headed_shown) = in_both_modes(run, screen="1440x1100")
    assert headed_seen == seen and seen[4][:2] == [1440, 1100] and "Headless" not in seen[0]
    assert headed_shown == shown


def test_without_xvfb_it_is_one_line(monkeypatch, tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    (tmp_path / "setpriv").symlink_to(shutil.which("setpriv") or pytest.fail("no setpriv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="Xvfb is not found; install xvfb") as error:
        Browser(BrowserConfig(headed=True, chromium=chromium or "", chromedriver=driver or ""))
    assert "\n" not in str(error.value)
