"""Storage state: each task gets what belongs to its site, before its first request."""

import json

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.browser.storage_state import check_state, read_state
from collection.environments.web import WebEnvironment
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task
from tests.loopback import ANY_CERTIFICATE, PageHandler, serving, tls_context

NAMES = ("shop-a.com", "www.shop-a.com", "other-b.com")
ASKED: list[tuple[str, str]] = []


def cookie(name, domain, **more):
    fields = {"path": "/", "expires": -1, "httpOnly": True, "secure": True, "sameSite": "Lax"}
    return {"name": name, "value": f"{name}-value", "domain": domain, **fields, **more}


STATE = {
    "cookies": [
        cookie("all", ".shop-a.com", expires=4102444800.5),
        cookie("www", "www.shop-a.com", httpOnly=False, secure=False, sameSite="Strict"),
        cookie("old", ".shop-a.com", expires=1),
        cookie("other", "other-b.com", partitionKey="unknown to us"),
    ],
    "origins": [
        {
            "origin": f"https://{name}",
            "localStorage": [{"name": "cart", "value": f"of {name}"}],
            "indexedDB": [],
        }
        for name in ("shop-a.com", "other-b.com")
    ],
}


class _Handler(PageHandler):
    def get(self):
        ASKED.append((self.headers["Host"] + self.path, self.headers.get("Cookie", "")))
        self.reply(
            "<title>Shop</title><link rel=icon href=data:,><p id=cart></p><script>"
            "document.getElementById('cart').textContent = 'Cart ' + localStorage.cart</script>"
        )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "state.json"
    path.write_text(json.dumps(STATE))
    return str(path)


@pytest.fixture(scope="module")
def environment(file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = BrowserConfig(width=500, height=320, quiet_ms=20, flags=(ANY_CERTIFICATE,), storage_state=file)
    with serving(_Handler, tls_context(folder)) as address:
        hosts = dict.fromkeys(NAMES, address)
        with (
            Guard(GuardConfig(task_site=True), hosts, watch=True) as guard,
            Browser(config, guard) as browser,
        ):
            yield WebEnvironment(browser, ImageStore(folder), folder / "files")


def start(environment, website):
    ASKED.clear()
    environment.reset(Task(task_id="shop/1", website=website, objective="Look."))
    return environment.observe().observation.page_text


@pytest.mark.parametrize(
    "website,cookies,cart",
    [
        ("https://shop-a.com/", {"all"}, "Cart of shop-a.com"),
        ("https://www.shop-a.com/", {"all", "www"}, "Cart undefined"),
        ("https://other-b.com/", {"other"}, "Cart of other-b.com"),
    ],
)
def test_a_task_starts_with_what_belongs_to_its_site(environment, website, cookies, cart):
    assert cart in start(environment, website)
    (place, header), *more = ASKED
    assert f"https://{place}" == website and not more
    assert set(header.split("; ")) == {f"{name}={name}-value" for name in cookies}


def test_what_a_browser_holds_is_written_and_read_again(environment, tmp_path):
    start(environment, "https://shop-a.com/")
    path = tmp_path / "out.json"
    environment._browser.storage_state().write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = read_state(str(path))
    assert {(one.name, one.domain, one.expires > 0) for one in again.cookies} == {
        ("all", ".shop-a.com", True),
        ("www", "www.shop-a.com", False),
    }
    assert again.origins == read_state(environment._browser.config.storage_state).origins[:1]


def test_a_state_of_another_site_is_one_line(file):
    check_state(file, ["https://elsewhere.com/", "https://www.shop-a.com/"])
    with pytest.raises(UserError, match=r"it is for https.*, and no task is there") as error:
        check_state(file, ["https://elsewhere.com/", "https://shop-a.com.evil-c.com/"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text,line",
    [
        (None, "No such file"),
        ("{", "Invalid JSON"),
        ('{"cookies": [{"name": "a", "domain": "b.com", "value": 3}]}', r"cookies\.0\.value"),
        ('{"cookies": 3}', "cookies"),
    ],
)
def test_what_is_no_state_is_one_line(text, line, tmp_path):
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=line) as error:
        read_state(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)
