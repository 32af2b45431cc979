"""Pages that move while an agent is at them; `make proof-first-contact` has more of each."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from typing import Any

import pytest

from collection.browser.actions import execute, execute_list
from collection.browser.config import BrowserConfig
from collection.browser.page import Snapshot
from collection.browser.pages import ActionContext
from collection.browser.session import Browser
from collection.browser.snapshot import observe
from collection.fleet.worker import PlayedEpisode, RunFailure, Worker
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import ActionResult, Trajectory
from tests.agent.plain_episode import TASK
from tests.fleet.moving import ACTIONS, Site, Stage, click, index_of, pages_in, parts_of
from tests.proofs.first_contact.browser import BAD, EVENTS, enter, faults, moving, popups


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("moving")) as opened:
        yield opened


def test_enter_sends_a_form_whose_page_goes(stage: Stage) -> None:
    count = enter(stage, (0, 150))
    assert count.counts == {"episodes": 2, "recorded": 2}, count.examples


def test_a_popup_that_closes_is_never_mixed_with_the_page_below(stage: Stage) -> None:
    count = popups(stage, (220, 260, 300, 340, 20000))
    assert not any(count.counts[what] for what in BAD), count.examples
    assert count.counts["popup seen"], "the last one is open long enough"


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("action", ["click", "extract"])
def test_a_page_may_move_during_an_action(stage: Stage, event: str, action: str) -> None:
    count = moving(stage, event, action, (0, 60))
    assert not any(count.counts[what] for what in BAD), count.examples


def test_an_error_in_a_call_to_the_browser_ends_no_worker(stage: Stage) -> None:
    names = ("command Input.dispatchMouseEvent", "driver Browser.getVersion")
    for name, played in faults(stage, names).items():
        first, last, everywhere = (one.trajectory for one in played)
        assert first and last and everywhere, (name, played)
        assert first.outcome == last.outcome == "done"
        # Without the driver no page can be looked at; without the mouse every click fails.
        assert everywhere.outcome == ("failures" if "Mouse" in name else "crashed")


# --- One action ---


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as opened:
        yield opened


@pytest.fixture(scope="module")
def one_browser() -> Iterator[Browser]:
    with Browser(BrowserConfig(width=500, height=320)) as opened:
        yield opened


@pytest.fixture
def browser(one_browser: Browser) -> Browser:
    one_browser.reset()
    return one_browser


def look(browser: Browser) -> str:
    return observe(browser, None)[0].page_text


def act(browser: Browser, action: dict[str, Any]) -> ActionResult:
    extra = ("click_coordinates", "execute_js")
    context = ActionContext(extract=lambda query, text: text, extra_actions=extra)
    return execute_list(browser, [normalize_action(action)], context)[0]


def open_stage(browser: Browser, site: Site, run: str) -> str:
    """Opens the start page, and from there the stage in a tab of its own; returns its text."""
    browser.goto(f"{site.url}/start?run={run}")
    assert act(browser, click(look(browser), "open")).text == "Clicked [3], which opened a new tab"
    text = look(browser)
    assert pages_in(text) == ["stage"]
    while not site.reports.get(run):  # It is sent while the page loads.
        time.sleep(0.01)
    return text


@pytest.mark.parametrize("action", [*ACTIONS, "go_to_url"])
def test_an_action_for_a_tab_that_has_closed_touches_no_other(
    browser: Browser, site: Site, action: str
) -> None:
    run = f"closed {action}"
    text = open_stage(browser, site, run)
    browser.page_script("setTimeout(() => window.close())")
    while len(browser.tabs()) > 1:
        pass
    made = {"go_to_url": {"url": site.url}} if action == "go_to_url" else ACTIONS[action](text)
    result = act(browser, made)
    where = "[1]" if action == "click" else "[2]" if action == "input" else ""
    page = f"The page that {where} was on" if where else "The page that this was meant for"
    assert (result.error, result.text) == (True, f"{page} has gone; look again")
    assert pages_in(look(browser)) == ["start"]
    assert site.reports[run] == [("start", "click open")]


@pytest.mark.parametrize("action", ["click", "keys"])
def test_an_action_for_a_document_that_has_gone_touches_no_other(
    browser: Browser, site: Site, action: str
) -> None:
    run = f"left {action}"
    text = open_stage(browser, site, run)
    browser.page_script(f"location.href = '{site.url}/after?run={run}'")
    while "after" not in browser.tabs()[-1].url:
        pass
    assert act(browser, ACTIONS[action](text)).text.endswith("has gone; look again")
    assert pages_in(look(browser)) == ["after"]
    assert site.reports[run] == [("start", "click open")]
    # The agent can leave the new page all the same.
    assert act(browser, {"go_to_url": {"url": f"{site.url}/results"}}).error is False


@pytest.mark.parametrize("happens", ["closes", "is left"])
@pytest.mark.parametrize(
    "action", ["click", "input", "scroll", "keys", "coordinates", "extract", "execute_js"]
)
def test_a_page_that_goes_right_after_the_look_at_it_is_not_mistaken(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch, action: str, happens: str
) -> None:
    run = f"{happens} {action}"
    text, shows = open_stage(browser, site, run), browser.shows

    def shows_no_more(snapshot: Snapshot) -> bool:
        answer = shows(snapshot)
        if happens == "closes":
            browser.page_script("setTimeout(() => window.close())")
            while any(one["targetId"] == browser._current for one in browser._devtools.targets()):
                pass
        else:
            browser.driver.get(f"{site.url}/after?run={run}")
        return answer

    monkeypatch.setattr(browser, "shows", shows_no_more)
    code = "document.title = 'Somebody was here'"
    made = {"execute_js": {"code": code}} if action == "execute_js" else ACTIONS[action](text)
    result = act(browser, made)
    # Keys and clicks go to a tab, whose document is not asked again.
    if happens == "is left" and action in ("keys", "coordinates"):
        return
    # A script may still run in a page that closes.
    if action != "execute_js" or happens == "is left":
        assert result.error == (happens == "is left" or action != "keys"), result
    assert [page for page, what in site.reports[run] if what != "click open"] == []
    assert "Somebody" not in browser.script("return document.title")
    assert pages_in(look(browser)) == ["start" if happens == "closes" else "after"]


@pytest.mark.parametrize("action", ["click", "scroll", "keys"])
def test_a_page_that_reloads_itself_without_a_change_can_be_used(
    browser: Browser, site: Site, action: str
) -> None:
    text = open_stage(browser, site, f"reloaded {action}")
    browser.driver.refresh()
    result = act(browser, ACTIONS[action](text))
    assert not result.error, result.text


def test_a_page_that_reloads_itself_as_another_one_cannot(browser: Browser, site: Site) -> None:
    open_stage(browser, site, "changed")
    browser.page_script("document.getElementById('button').textContent = 'Stop'")
    text = look(browser)
    browser.driver.refresh()
    assert act(browser, click(text, "button")).text == "The page that [1] was on has gone; look again"
    assert site.reports["changed"] == [("start", "click open")]


def test_a_click_that_closes_its_tab_is_a_success_that_says_so(browser: Browser, site: Site) -> None:
    text = open_stage(browser, site, "self")
    result = act(browser, click(text, "self"))
    assert (result.error, result.text) == (False, f"Clicked [{index_of(text, 'self')}], and the tab closed")
    assert result.changed and pages_in(look(browser)) == ["start"]


def test_a_page_that_changes_all_the_time_is_shown_without_a_picture(
    browser: Browser, site: Site, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.goto(f"{site.url}/stage?run=restless")
    screenshot = browser.screenshot

    def reloaded() -> bytes:
        browser.driver.refresh()
        return screenshot()

    monkeypatch.setattr(browser, "screenshot", reloaded)
    observation, _ = observe(browser, stage.images)
    assert observation.screenshot is None
    assert set(parts_of(observation, stage.images).values()) == {"stage"}


def test_an_unexpected_error_in_an_action_is_its_result(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.goto(f"{site.url}/stage?run=unexpected")
    text = look(browser)
    monkeypatch.setattr(browser, "mouse", lambda *args, **kwargs: {}["secret of the page"])
    result = execute(browser, normalize_action(click(text, "button")), ActionContext())
    assert (result.error, result.text) == (True, "Failed: unexpected KeyError")
    assert "secret of the page" in capsys.readouterr().err


# --- The worker ---


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("a secret, card 4111 1111 1111 1111"), ""),
        (UserError("no key: set it"), "no key: set it"),
        (OSError(errno.ENOSPC, "No space left"), "disk full while writing"),
    ],
)
def test_an_error_in_an_episode_is_its_outcome_unless_the_user_can_fix_it(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    reason: str,
) -> None:
    def fails(*args: object) -> None:
        raise error

    monkeypatch.setattr(Worker, "_play_once", fails)
    task = TASK.model_copy(update={"task_id": f"miniwob/p/{reason}"})
    done = stage.worker.play(stage.episode(task))
    if reason:
        assert isinstance(done, RunFailure) and done.reason.startswith(reason) and done.exit_code == 2
        return
    assert isinstance(done, PlayedEpisode) and done.error == "unexpected ValueError"
    trajectory = Trajectory.model_validate_json(done.record)
    assert (trajectory.outcome, trajectory.retries) == ("crashed", 2)
    assert trajectory.detail == "unexpected ValueError, see the log"
    log = capsys.readouterr().err
    assert log.count("Traceback") == 3 and "a secret, card <secret>card</secret>" in log
