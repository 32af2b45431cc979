"""The user agent in real Chromium, on the run's pages and on sites with their own setting."""

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import Browser
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task
from tests.loopback import PageHandler, serving

OWN = "Mozilla/5.0 (Macintosh) Somebody/1.0"
PAGES = {
    "/": '<a id=open href=/opened target=_blank>x</a><iframe src="/frame"></iframe>',
    "/opened": "<title>opened</title>",
    "/frame": "frame",
    "/worker.js": "postMessage(navigator.userAgent)",
}
# Of the page, of a worker, and the version that client hints tell.
NAMES = """
const done = arguments[0];
new Worker('/worker.js').onmessage = (event) => {
  const hint = navigator.userAgentData?.brands.find((one) => one.brand === 'Chromium');
  done([navigator.userAgent, event.data, hint ? hint.version : '']);
};
"""


@pytest.fixture(scope="module")
def echo():
    """A server on two names, and the headers that came: (host, path) -> (user agent, client hints)."""
    seen = {}

    class Handler(PageHandler):
        def get(self):
            host = self.headers["Host"].partition(":")[0]
            seen[host, self.path] = self.headers["User-Agent"], self.headers.get("Sec-CH-UA", "")
            kind = "javascript" if self.path.endswith(".js") else "html"
            self.reply(PAGES.get(self.path, ""), f"text/{kind}")

    with serving(Handler) as address:
        yield int(address.partition(":")[2]), seen


def look(browser: Browser, url: str) -> list[str]:
    """Opens a page and, by a click, another one; names as scripts see them."""
    browser.goto(url)
    names = browser.driver.execute_async_script(NAMES)
    browser.script("document.getElementById('open').click()")
    browser.switch_handle(browser.handles()[-1])
    browser.goto(url.rstrip("/") + "/opened")
    browser.reset()
    return names


@pytest.mark.slow
def test_sites_may_be_visited_under_another_name(echo):
    port, seen = echo
    sites = [f"http://{host}:{port}/" for host in ("127.0.0.1", "localhost")]
    tasks = [Task(task_id=site, website=site, objective="") for site in sites]
    config = BrowserConfig(width=500, height=320, user_agent="desktop", user_agents=("localhost=",))
    recycle = RecyclePolicy(browser_max_age_s=600.0, browser_max_mb=0.0, browser_max_episodes=100)
    with BrowserPool(config, GuardConfig(private=tuple(sites)), recycle) as pool:
        first = pool.browser(tasks[0])
        names = look(first, sites[0])
        assert pool.browser(tasks[0]) is first
        plain = look(pool.browser(tasks[1]), sites[1])
        assert pool.browser(tasks[0]) is not first
    desktop, _, version = names
    assert "HeadlessChrome" in plain[0] and plain[0] == plain[1]
    assert desktop == plain[0].replace("HeadlessChrome", "Chrome") == names[1]
    # The version is the one of the client hints.
    assert f"Chrome/{version}.0.0.0" in desktop
    for path in ("/", "/frame", "/opened", "/worker.js"):
        assert seen["127.0.0.1", path][0] == desktop and seen["localhost", path][0] == plain[0]
    hints = seen["127.0.0.1", "/"][1]
    assert f'"Chromium";v="{version}"' in hints and "Headless" not in hints


def test_a_name_of_ones_own(echo):
    port, seen = echo
    with Browser(BrowserConfig(width=500, height=320, user_agent=OWN)) as browser:
        assert look(browser, f"http://127.0.0.1:{port}/")[:2] == [OWN, OWN]
    assert {seen["127.0.0.1", path][0] for path in PAGES} == {OWN}


def test_the_nearest_host_decides():
    config = BrowserConfig(user_agent="a", user_agents=("example.org=b", "plain.example.org=", "x=c=d"))
    assert {
        website: config.user_agent_for(website)
        for website in (
            *("https://example.org/x", "http://WWW.example.org", "https://deep.plain.example.org/"),
            *("https://notexample.org/", "http://x:80/", "", "about:blank"),
        )
    } == {
        "https://example.org/x": "b",
        "http://WWW.example.org": "b",
        "https://deep.plain.example.org/": "",
        "https://notexample.org/": "a",
        "http://x:80/": "c=d",
        "": "a",
        "about:blank": "a",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user_agents": ("example.org",)}, "'example.org' must be HOST=AGENT, or HOST="),
        ({"user_agents": ("=x",)}, "'=x' must be HOST=AGENT, or HOST="),
        ({"user_agent": "desktop", "chromium": "/bin/true"}, "/bin/true --version: no version; give config"),
    ],
)
def test_names_that_cannot_be_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Browser(BrowserConfig(**settings))
