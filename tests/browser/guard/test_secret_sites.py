"""Secrets are typed only at their own sites, also when page scripts lie about the address."""

from urllib.parse import parse_qs

import pytest

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.pages import ActionContext
from collection.browser.session import Browser, PageError
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.errors import UserError
from tests.loopback import PageHandler, serving

SECRET = "correct horse battery"
FIELD = "<form action=/take method=post><input name=field aria-label=Field></form>"
LIES = """<script>
Object.defineProperty(window, 'origin', {value: 'http://shop-a.com'});
Object.defineProperty(Document.prototype, 'URL', {get: () => 'http://shop-a.com/'});
Array.prototype.toJSON = String.prototype.toJSON = function () { return 'http://shop-a.com'; };
</script>"""
FOCUS_THE_FRAME = """
const host = document.getElementById('host');
(host ? host.shadowRoot : document).querySelector('iframe, object').focus();
"""
PAGES = {
    "/": FIELD,
    "/lies": LIES + FIELD,
    "/frame": "<iframe src=http://evil-b.com/lies width=300 height=220></iframe>",
    "/wrapped": "<div tabindex=0><iframe src=http://evil-b.com/ width=300 height=60></iframe></div>",
    "/object": "<object data=http://evil-b.com/ type=text/html width=300 height=220></object>",
    "/shadow": """<div id=host></div><script>
host.attachShadow({mode: 'open'}).innerHTML =
  '<iframe src="http://evil-b.com/" width=300 height=220></iframe>';
</script>""",
    "/thief": FIELD + "<iframe src=http://evil-b.com/grab width=300 height=60></iframe>",
    "/grab": FIELD + "<script>setInterval(() => document.querySelector('input').focus(), 5)</script>",
    "/short": "<input type=password maxlength=12>",
    "/own-frame": "<iframe src=/ width=300 height=220></iframe>",
    "/srcdoc": f'<iframe srcdoc="{FIELD}" width=300 height=220></iframe>',
    "/sandbox": f'<iframe sandbox="allow-scripts" srcdoc="{FIELD}" width=300 height=220></iframe>',
}


TAKEN: list[tuple[str, str]] = []


class _Handler(PageHandler):
    def get(self):
        self.reply(PAGES.get(self.path, ""))

    def post(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        TAKEN.append((self.headers["Host"], form.get("field", [""])[0]))
        self.get()


@pytest.fixture(scope="module")
def server():
    with serving(_Handler) as address:
        yield address


@pytest.fixture(scope="module")
def browser(server):
    hosts = dict.fromkeys(("shop-a.com", "www.shop-a.com", "evil-b.com", "bank-c.com"), server)
    config = GuardConfig(private=tuple(f"http://{name}" for name in hosts))
    secrets = {"password": SECRET, "pin": "9381 2205 tulip"}
    with (
        Guard(config, hosts, secrets, {"pin": ["bank-c.com", "evil-b.com"]}) as guard,
        Browser(BrowserConfig(width=400, height=300, quiet_ms=20), guard) as browser,
    ):
        yield browser


def enter(browser, url, text, by_focus=False):
    browser.guard.admit(website="http://www.shop-a.com/")
    browser.goto(url)
    snapshot = take_snapshot(browser)
    (index,) = (number for number in snapshot.targets)
    if by_focus:
        do(browser, "click_element_by_index", index=index)
    TAKEN.clear()
    result = do(browser, "input_text", index=0 if by_focus else index, text=text)
    do(browser, "send_keys", keys="Enter")
    return result, list(TAKEN)


def do(browser, name, **params):
    return execute(browser, normalize_action({name: params}), ActionContext())


@pytest.mark.parametrize("by_focus", [False, True], ids=["by index", "by focus"])
@pytest.mark.parametrize("url", ["http://shop-a.com/", "http://www.shop-a.com/lies"])
def test_it_is_typed_at_the_tasks_own_site(browser, url, by_focus):
    result, taken = enter(browser, url, "<secret>password</secret>", by_focus)
    assert not result.error and [text for _, text in taken] == [SECRET]
    assert SECRET not in result.text


@pytest.mark.parametrize(
    "url,by_focus",
    [
        ("http://evil-b.com/", False),
        ("http://evil-b.com/", True),
        ("http://evil-b.com/lies", False),
        ("http://evil-b.com/lies", True),
        ("http://shop-a.com/frame", False),
        ("http://shop-a.com/frame", True),
        ("http://shop-a.com/sandbox", False),
        ("http://shop-a.com/srcdoc", False),
    ],
)
def test_it_is_not_typed_elsewhere(browser, url, by_focus):
    result, taken = enter(browser, url, "my <secret>password</secret>", by_focus)
    assert result.error and not any(text for _, text in taken)
    in_frame = by_focus and "frame" in url
    assert result.text.startswith("A secret can only" if in_frame else "The secret password is for")


@pytest.mark.parametrize("url,index", [("wrapped", 1), ("wrapped", 0), ("object", 0), ("shadow", 0)])
def test_it_does_not_follow_the_focus_into_a_frame(browser, url, index):
    browser.guard.admit(website="http://www.shop-a.com/")
    browser.goto(f"http://shop-a.com/{url}")
    browser.script(FOCUS_THE_FRAME)
    take_snapshot(browser)
    TAKEN.clear()
    result = do(browser, "input_text", index=index, text="<secret>password</secret>")
    do(browser, "send_keys", keys="Enter")
    assert result.error and result.text.startswith("A secret can only be typed into a field")
    assert not any(text for _, text in TAKEN)


def test_a_frame_that_takes_the_focus_does_not_get_it(browser):
    browser.guard.admit(website="http://www.shop-a.com/")
    browser.goto("http://shop-a.com/thief")
    index = min(take_snapshot(browser).targets)
    TAKEN.clear()
    result = do(browser, "input_text", index=index, text="<secret>password</secret>")
    assert not result.error
    assert browser.script("return document.querySelector('input').value") == SECRET
    do(browser, "send_keys", keys="Enter")
    assert SECRET not in [text for host, text in TAKEN if host == "evil-b.com"]


def test_a_part_of_it_is_not_quoted(browser):
    browser.guard.admit(website="http://www.shop-a.com/")
    browser.goto("http://shop-a.com/short")
    take_snapshot(browser)
    result = do(browser, "input_text", index=1, text="<secret>password</secret>")
    assert "correct" not in result.text
    typed = do(browser, "input_text", index=1, text="too long a word for it")
    assert not typed.error and typed.text == "Typed 'too long a word for it' into [1]"


def test_a_frame_of_the_site_is_the_site(browser):
    result, taken = enter(browser, "http://shop-a.com/own-frame", "<secret>password</secret>")
    assert not result.error and taken == [("shop-a.com", SECRET)]


def test_hosts_that_are_named_replace_the_tasks_site(browser):
    result, taken = enter(browser, "http://bank-c.com/", "<secret>pin</secret>")
    assert not result.error and [text for _, text in taken] == ["9381 2205 tulip"]
    result, taken = enter(browser, "http://shop-a.com/", "<secret>pin</secret>")
    assert result.error and not taken
    assert result.text == "The secret pin is for bank-c.com, evil-b.com, so it was not typed at shop-a.com"


def test_without_a_site_it_is_typed_nowhere(browser):
    browser.guard.admit()
    browser.goto("http://shop-a.com/")
    take_snapshot(browser)
    result = do(browser, "input_text", index=1, text="<secret>password</secret>")
    assert result.error and "is for no site" in result.text
    # Other text is typed as ever.
    assert not do(browser, "input_text", index=1, text="<secret>unknown</secret>").error


def test_a_host_that_is_none_is_refused():
    with pytest.raises(UserError, match="names no hosts"):
        Guard(GuardConfig(), {}, {"pin": "123456 tulip"}, {"pin": ["a b"]})


@pytest.mark.parametrize(
    ("website", "url", "typed"),
    [
        ("https://shop-a.com/", "https://www.shop-a.com/login", True),
        ("https://shop-a.com/", "http://shop-a.com/login", False),
        ("shop-a.com", "http://shop-a.com/login", False),
        ("http://shop-a.com/", "http://shop-a.com/login", True),
        ("http://shop-a.com/", "https://shop-a.com/login", True),
    ],
)
def test_a_secret_of_a_secure_site_is_typed_over_https_only(website: str, url: str, typed: bool) -> None:
    guard = Guard(GuardConfig(), secrets={"password": SECRET})
    guard.admit(website=website)
    if typed:
        assert guard.fill("<secret>password</secret>", url) == SECRET
    else:
        with pytest.raises(PageError, match=r"The secret password is for https://shop-a\.com"):
            guard.fill("<secret>password</secret>", url)
