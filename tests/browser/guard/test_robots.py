"""robots.txt: read as RFC 9309 says, and obeyed or recorded in real Chromium."""

import asyncio
import contextlib
import threading

import pytest

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.robots import Robots
from collection.browser.pages import ActionContext
from collection.browser.session import Browser, PageError
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from tests.loopback import PageHandler, serving, tls_context

NO = "User-agent: *\nDisallow: /\n"
# host -> robots.txt
FILES = {
    "paths": "User-agent: *\nDisallow: /no\n",
    "ours": "User-agent: RMSWeb-JAX\nDisallow: /ours\n\nUser-agent: *\nDisallow: /all\n",
    "long": "User-agent: *\nDisallow: /no\n" + "#" * 512_000 + "\n" + "Disallow: /late\n",
    "cut": "User-agent: *\n" + "#" * 511_970 + "\nDisallow: /cut-off-here\n",
    "marked": "\ufeff" + NO,
    "held": NO,
}
STATUSES = {"gone": 404, "denied": 403, "broken": 500}


class Site:
    """Answers for all names, and what was asked of it as `host/path`."""

    def __init__(self):
        self.address = ""
        self.asked: list[str] = []
        self.agents: set[str] = set()
        self.hold = threading.Event()
        site = self

        class Handler(PageHandler):
            def get(self):
                host = self.headers["Host"].partition(".")[0]
                site.asked.append(host + self.path)
                if self.path == "/robots.txt":
                    site.agents.add(self.headers["User-Agent"])
                with contextlib.suppress(ConnectionError):
                    site.answer(self, host)

        self.handler = Handler

    def answer(self, handler, host):
        if host == "held":
            assert self.hold.wait(600)
        if host in STATUSES:
            handler.reply(NO, status=STATUSES[host])
        elif host == "silent":
            handler.close_connection = True
        elif host.startswith("hops"):
            left = int(host[4:])
            handler.move(f"http://hops{left - 1}.test/r" if left else "http://marked.test/robots.txt")
        elif host == "inside":
            handler.move("http://10.0.0.1/robots.txt")
        else:
            handler.reply(FILES[host], "text/plain; charset=utf-8")


@pytest.fixture(scope="module")
def site():
    site = Site()
    with serving(site.handler) as site.address:
        yield site


@contextlib.contextmanager
def guarded(address, hosts=None):
    names = (*FILES, *STATUSES, "silent", "inside", *(f"hops{number}" for number in range(9)))
    hosts = hosts or {f"{name}.test": address for name in names}
    with Guard(GuardConfig(allowed=("*.test",)), hosts) as guard:
        yield Robots(int(guard.proxy_address.rpartition(":")[2]), guard.check), guard


def problem_at(address, url, hosts=None):
    with guarded(address, hosts) as (robots, guard):
        found = asyncio.run(robots.problem(url))
        # A request of our own is no refusal of the page's.
        assert guard.incidents() == ()
        return found


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("paths.test/", ""),
        ("paths.test/no", "disallows this page to rmsweb-jax"),
        ("ours.test/ours", "disallows"),
        ("ours.test/all", ""),
        ("long.test/no", "disallows"),
        ("long.test/late", ""),
        ("cut.test/cut-on", ""),
        ("marked.test/", "disallows"),
        ("marked.test/robots.txt", ""),
        ("gone.test/", ""),
        ("denied.test/", ""),
        ("broken.test/", "cannot be read (status 500), which disallows all its pages"),
        ("silent.test/", "cannot be read (its answer is broken)"),
        ("hops4.test/", "disallows this page"),
        ("hops5.test/", ""),  # The sixth redirect is not followed.
        ("inside.test/", "cannot be read (not_listed: 10.0.0.1"),
    ],
)
def test_rules(site, url, problem):
    found = problem_at(site.address, f"http://{url}")
    assert problem in found and bool(found) == bool(problem) and "\n" not in found


def test_a_file_is_read_once_for_all_that_wait(site):
    site.asked.clear()
    site.agents.clear()

    async def ask(one):
        return await asyncio.gather(
            *(one.problem(f"http://paths.test/{path}") for path in ("no", "a", "no/x"))
        )

    with guarded(site.address) as (one, _):
        assert [bool(problem) for problem in asyncio.run(ask(one))] == [True, False, True]
    assert site.asked == ["paths/robots.txt"] and site.agents == {"rmsweb-jax"}


def test_no_answer_in_time_disallows(site, monkeypatch):
    monkeypatch.setattr("collection.browser.guard.robots._SECONDS", 2.0)
    site.hold.clear()
    found = problem_at(site.address, "http://held.test/")
    site.hold.set()
    assert "cannot be read (no answer in 2 s)" in found


def test_what_is_not_reached_at_all_is_left_to_the_browser():
    assert problem_at("", "http://gone.test/", {"gone.test": "127.0.0.1:9"}) == ""


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_over_tls(tmp_path):
    site = Site()
    with serving(site.handler, tls_context(tmp_path)) as address:
        assert "disallows" in problem_at(address, "https://marked.test/")
        # No TLS there, as at a site that has http only.
    with serving(site.handler) as address:
        assert problem_at(address, "https://marked.test/") == ""


class _Shop(PageHandler):
    def get(self):
        if self.path == "/robots.txt":
            self.reply("User-agent: *\nDisallow: /no\n", "text/plain")
        elif self.path == "/moved":
            self.move("/no/moved")
        else:
            self.reply(
                "<title>Shop</title><a href=/no/link>Go</a><form method=post action=/no/form><button>Send"
                f"</button></form><iframe src=/no/frame></iframe><p>{self.path}</p>"
            )

    post = get


@pytest.fixture(scope="module", params=["obey", "record"])
def browser(request):
    with serving(_Shop) as address:
        config = GuardConfig(private=("http://shop.test",), robots=request.param)
        settings = BrowserConfig(width=500, height=320, quiet_ms=20)
        with Guard(config, {"shop.test": address}) as guard, Browser(settings, guard) as browser:
            yield browser


def click(browser, text):
    browser.reset()
    browser.goto("http://shop.test/")
    browser.settle()
    targets = take_snapshot(browser).targets
    index = next(index for index, target in targets.items() if text in (target.text, target.label))
    return execute(browser, normalize_action({"click_element_by_index": {"index": index}}), ActionContext())


def test_a_link_that_is_disallowed(browser):
    result = click(browser, "Go")
    (incident,) = browser.take_incidents()
    said = "http://shop.test/no/link: robots.txt of the site disallows this page to rmsweb-jax"
    if browser.guard.config.robots == "record":
        assert "robots.txt" not in result.text
        assert (incident.kind, incident.detail) == ("robots_opened", said)
        assert browser.tabs()[0].url == "http://shop.test/no/link"
        return
    assert f"Not opened: {said}" in result.text
    assert (incident.kind, incident.detail) == ("robots_refused", f"{said} [robots]")
    # The page stays, and can be used: neither its frame nor a form that is sent is judged.
    assert browser.tabs()[0].url == "http://shop.test/"
    assert "/no/frame" in browser.script("return frames[0].document.body.innerText")
    click(browser, "Send")
    assert browser.tabs()[0].url == "http://shop.test/no/form" and not browser.take_incidents()


def test_an_address_that_is_disallowed(browser):
    browser.reset()
    browser.goto("http://shop.test/")
    if browser.guard.config.robots == "record":
        browser.goto("http://shop.test/moved")
        assert [one.kind for one in browser.take_incidents()] == ["robots_opened"]
        return
    with pytest.raises(PageError, match=r"Refused to open http://shop\.test/no#x: robots\.txt of the site"):
        browser.goto("http://shop.test/no#x")
    assert browser.tabs()[0].url == "http://shop.test/" and not browser.notices
    with pytest.raises(PageError, match="BLOCKED_BY_CLIENT"):
        browser.goto("http://shop.test/moved")
    browser.sweep()
    assert browser.notices[0].startswith("Not opened: http://shop.test/no/moved: robots.txt")
