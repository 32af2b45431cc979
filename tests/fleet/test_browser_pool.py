"""Replacement of a worker's browser, and the domains that its guard gets."""

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.environments.miniwob import make_task
from collection.fleet import browser_pool as browser_pool
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task

RECYCLE = RecyclePolicy(browser_max_age_s=100.0, browser_max_mb=500.0, browser_max_episodes=3)
MINIWOB = make_task("click-tab", 0)
WEB = Task(task_id="w", website="https://example.com/", objective="")


class Part:
    """A guard or a browser that only remembers."""

    made: "list[Part]"

    def __init__(self, config, *arguments):
        self.config, self.arguments, self.closed = config, arguments, False
        self.alive, self.age_s, self.mb = True, 0.0, 0.0
        type(self).made.append(self)

    def start(self): ...

    def memory_mb(self):
        return self.mb

    def close(self):
        self.closed = True


@pytest.fixture
def parts(monkeypatch):
    """The guards and the browsers that were made."""
    made = []
    for name in ("Guard", "Browser"):
        part = type(name, (Part,), {"made": []})
        monkeypatch.setattr(browser_pool, name, part)
        made.append(part.made)
    return made


def make(**guard):
    return BrowserPool(BrowserConfig(), GuardConfig(**guard), RECYCLE)


def test_a_browser_is_kept_for_so_many_episodes(parts):
    guards, browsers = parts
    with make() as held:
        used = [held.browser(WEB) for _ in range(4)]
    assert used == [browsers[0]] * 3 + [browsers[1]]
    assert all(one.closed for one in (*guards, *browsers))


@pytest.mark.parametrize("worn", [{"age_s": 100.0}, {"mb": 501.0}])
def test_an_old_or_large_browser_is_replaced(parts, worn):
    _, browsers = parts
    with make() as held:
        vars(held.browser(WEB)).update(worn)
        assert held.browser(WEB) is browsers[1] and browsers[0].closed


def test_a_browser_does_not_outlive_its_guard(parts):
    guards, browsers = parts
    with make() as held:
        held.browser(WEB)
        guards[0].alive = False
        assert held.browser(WEB) is browsers[1] and browsers[0].closed and guards[0].closed


def test_pages_of_our_own_are_allowed_to_their_browser_alone(parts):
    guards, browsers = parts
    with make() as held:
        held.browser(MINIWOB)
        held.browser(WEB)
        assert browsers[0].closed and len(browsers) == 2
    assert guards[0].config.private == ("http://miniwob.test",) and "miniwob.test" in guards[0].arguments[0]
    assert guards[1].config.private == () and not guards[1].arguments[0]
    assert browsers[0].arguments == (guards[0],) and not browsers[0].config.host_rules


def test_a_browser_that_does_not_start_leaves_no_guard(parts, monkeypatch):
    guards, _ = parts

    def refuse(*_):
        raise UserError("no browser session")

    monkeypatch.setattr(browser_pool, "Browser", refuse)
    with make() as held, pytest.raises(UserError, match="no browser session"):
        held.browser(WEB)
    assert guards[0].closed


def test_secrets_come_from_the_environment(parts, monkeypatch):
    guards, _ = parts
    monkeypatch.setenv("SHOP_PASSWORD", "hunter22")
    with BrowserPool(BrowserConfig(), GuardConfig(), RECYCLE, ("SHOP_PASSWORD",)) as held:
        held.browser(WEB)
    assert guards[0].arguments[1] == {"SHOP_PASSWORD": "hunter22"}
    with pytest.raises(UserError, match="SHOP_TOKEN is not set"):
        BrowserPool(BrowserConfig(), GuardConfig(), RECYCLE, ("SHOP_TOKEN",))
