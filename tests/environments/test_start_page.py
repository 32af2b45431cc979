"""Start pages that lead to another site: admitted or refused by rule, recorded, and reported in a line."""

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.environments.base import SiteUnreachableError
from collection.environments.web import WebEnvironment
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task
from tests.loopback import ANY_CERTIFICATE, PageHandler, serving, tls_context

NAMES = ("old-a.com", "hop-b.com", "new-c.com", "www.new-c.com", "evil-d.com", "plain-e.com")


class _Handler(PageHandler):
    def get(self):
        path, _, query = self.path.partition("?")
        if path == "/moved":
            self.move(query, 301)
        elif path == "/meta":
            self.reply(f"<title>Moving</title><meta http-equiv=refresh content='0; url={query}'>")
        else:
            self.reply("<title>Shop</title><h1>Lamps</h1><a href=https://evil-d.com/>Elsewhere</a>")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with serving(_Handler) as plain, serving(_Handler, tls_context(tmp_path_factory.mktemp("tls"))) as secure:
        hosts = {f"{name}:{port}": at for name in NAMES for port, at in ((80, plain), (443, secure))}
        # Chromium tries https first, and falls back.
        yield hosts | {"plain-e.com:443": "127.0.0.1:9"}


@pytest.fixture(scope="module", params=["start", "refuse"])
def environment(request, servers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = GuardConfig(task_site=True, subresources="public", redirects=request.param)
    settings = BrowserConfig(width=500, height=320, quiet_ms=20, flags=(ANY_CERTIFICATE,))
    with Guard(config, servers) as guard, Browser(settings, guard) as browser:
        yield WebEnvironment(browser, ImageStore(folder), folder / "files")


def open_page(environment, website):
    environment.reset(Task(task_id="shop/1", website=website, objective="Find the lamp."))
    return environment.observe()


@pytest.mark.parametrize(
    "path",
    [
        "/moved?https://new-c.com/",
        "/meta?https://new-c.com/",
        "/moved?https://hop-b.com/moved?https://new-c.com/",
    ],
    ids=["redirect", "meta", "chain"],
)
def test_a_site_that_has_moved(environment, path):
    website = f"https://old-a.com{path}"
    if environment._browser.guard.config.redirects == "refuse":
        with pytest.raises(SiteUnreachableError, match="it leads to another site, https://") as error:
            open_page(environment, website)
        assert "\n" not in str(error.value)
        assert any("is not one of the sites" in one.detail for one in error.value.incidents)
        return
    view = open_page(environment, website)
    assert (view.observation.url, view.observation.title) == ("https://new-c.com/", "Shop")
    assert view.notice.startswith("The start page has moved: https://old-a.com/")
    assert view.notice.endswith(" leads to https://new-c.com/")
    moves = [one.detail for one in view.incidents if one.kind == "redirect"]
    assert len(moves) == 1 + ("hop-b" in path) and moves[-1] in view.notice
    # Its hosts belong to the task now, as the first site's do; others do not, nor does the next task know it.
    check = environment._browser.guard.check
    urls = ("https://www.new-c.com/a", "https://old-a.com/", "https://evil-d.com/")
    assert [check(url).allowed for url in urls] == [True, True, False]
    assert open_page(environment, "https://old-a.com/").notice == ""
    assert not check("https://new-c.com/").allowed


@pytest.mark.parametrize(
    "website",
    [
        "http://plain-e.com/moved?https://new-c.com/",  # Anyone on the way can say so.
        "https://old-a.com/moved?http://plain-e.com/",
        "https://old-a.com/moved?https://10.0.0.1/",
        "https://old-a.com/moved?https://169.254.169.254/",
        "https://old-a.com/moved?https://user:word@new-c.com/",
    ],
)
def test_moves_that_are_refused_in_any_case(environment, website):
    with pytest.raises(SiteUnreachableError, match="it leads to another site"):
        open_page(environment, website)


def test_a_move_after_the_start_is_refused_and_told(environment):
    open_page(environment, "https://old-a.com/")
    environment._browser.script("location = 'https://evil-d.com/'")
    environment._browser.settle()
    view = environment.observe()
    assert view.observation.url == "https://old-a.com/"
    assert view.notice == "Not opened: https://evil-d.com/: evil-d.com is not one of the sites of this task"
