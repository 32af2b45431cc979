"""The machine that pages see: the same in headers, pages and workers, without a window and with one."""

import shutil

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.errors import UserError
from tests.loopback import PageHandler, serving

PAGES = ("elements", "fields", "scroll", "shadow", "frames", "labels")
# Of a page and of a worker.
SEEN = """
const done = arguments[0];
const languages = 'navigator.languages.join()', zone = 'Intl.DateTimeFormat().resolvedOptions().timeZone';
const code = `postMessage([${languages}, ${zone}, navigator.userAgent])`;
const worker = new Worker(URL.createObjectURL(new Blob([code])));
const wanted = ['architecture', 'fullVersionList', 'platformVersion'];
const hints = navigator.userAgentData.getHighEntropyValues(wanted);
worker.onmessage = async (event) => done([[eval(languages), eval(zone), navigator.userAgent], event.data,
  [screen.width, screen.height, screen.colorDepth], [innerWidth, innerHeight],
  [JSON.stringify(await hints), navigator.webdriver, devicePixelRatio]]);
"""
PLACE = {"screen": "1440x1100", "locale": "de-AT", "timezone": "Europe/Vienna"}


@pytest.fixture
def asked():
    """Headers of the requests to a server, whose URL is under its name."""
    headers = {}

    class Handler(PageHandler):
        def get(self):
            headers.update(self.headers)
            self.reply("<title>Page</title>")

    with serving(Handler) as address:
        headers["url"] = f"http://{address}/"
        yield headers


def see(asked, local_pages, headed):
    """What a page sees of the machine, and what is recorded of the test pages."""
    shown = {}
    config = BrowserConfig(width=600, height=400, user_agent="desktop", headed=headed, **PLACE)
    with Browser(config) as browser:
        browser.goto(asked["url"])
        seen = browser.driver.execute_async_script(SEEN)
        for name in PAGES:
            browser.goto(f"{local_pages}/{name}.html")
            browser.settle()
            snapshot = take_snapshot(browser)
            boxes = {index: target.box for index, target in snapshot.targets.items()}
            shown[name] = (snapshot.page_text, snapshot.stats, snapshot.fingerprint, boxes)
    return seen, shown


def check_identity(seen, asked):
    page, worker, screen, window, _ = seen
    assert page == worker and page[:2] == ["de-AT,de", "Europe/Vienna"]
    assert "Headless" not in page[2] and asked["User-Agent"] == page[2]
    assert asked["Accept-Language"].startswith("de-AT,de")
    assert (screen[:2], window) == ([1440, 1100], [600, 400])


def test_it_is_the_same_everywhere(asked, local_pages, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    without = see(asked, local_pages, headed=False)
    check_identity(without[0], asked)
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    assert see(asked, local_pages, headed=True) == without


def test_without_xvfb_it_is_one_line(monkeypatch, tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    monkeypatch.delenv("DISPLAY", raising=False)
    (tmp_path / "setpriv").symlink_to(shutil.which("setpriv") or pytest.fail("no setpriv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"Xvfb is not found; install xvfb[^\n]*$"):
        Browser(BrowserConfig(headed=True, chromium=chromium or "", chromedriver=driver or ""))


@pytest.mark.parametrize(
    "setting,line",
    [
        ({"screen": "1000x1200"}, "write WIDTHxHEIGHT, at least 1280x1100"),
        ({"screen": "large"}, "write WIDTHxHEIGHT"),
        ({"locale": "Deutsch, bitte"}, "write it as en-US or de"),
        ({"timezone": "Vienna"}, "unknown; write it as Europe/Vienna"),
        ({"timezone": "../../etc/passwd"}, "unknown; write it as Europe/Vienna"),
    ],
)
def test_what_is_no_such_place_is_one_line(setting, line):
    with pytest.raises(UserError, match=line):
        BrowserConfig(**setting)
