"""The machine that pages see: the same in headers, pages and workers."""

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser
from rmsweb_jax.errors import UserError
from tests.loopback import PageHandler, serving

# Of a page and of a worker.
SEEN = """
const done = arguments[0];
const languages = 'navigator.languages.join()', zone = 'Intl.DateTimeFormat().resolvedOptions().timeZone';
const code = `postMessage([${languages}, ${zone}, navigator.userAgent])`;
const worker = new Worker(URL.createObjectURL(new Blob([code])));
worker.onmessage = (event) => done([[eval(languages), eval(zone), navigator.userAgent], event.data,
  [screen.width, screen.height], [innerWidth, innerHeight]]);
"""


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


def test_it_is_the_same_everywhere(asked):
    place = {"screen": "1440x900", "locale": "de-AT", "timezone": "Europe/Vienna"}
    config = BrowserConfig(width=600, height=400, user_agent="desktop", **place)
    with Browser(config) as browser:
        browser.goto(asked["url"])
        page, worker, screen, window = browser.driver.execute_async_script(SEEN)
    assert page == worker and page[:2] == ["de-AT,de", "Europe/Vienna"]
    assert "Headless" not in page[2] and asked["User-Agent"] == page[2]
    assert asked["Accept-Language"].startswith("de-AT,de")
    assert (screen, window) == ([1440, 900], [600, 400])


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
