"""MiniWoB++ pages in a real browser: rewards, seeds, and that the observation suffices to solve them."""

from __future__ import annotations

import pathlib

import pytest
from selenium.common.exceptions import WebDriverException

from collection.browser.actions import execute
from collection.browser.config import BrowserConfig
from collection.browser.page import Snapshot
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task, page_names
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from tests.environments.miniwob_acts import CONTEXT, act_on_page


def start(episode: MiniWobEpisode, page: str, seed: int) -> tuple[str, Snapshot]:
    task = episode.reset(make_task(page, seed))
    return task.objective, take_snapshot(episode.browser)


def click(browser: Browser, index: int) -> None:
    action = normalize_action({"click_element_by_index": {"index": index}})
    assert not execute(browser, action, CONTEXT).error


def solve_enter_text(browser: Browser, objective: str) -> None:
    text = objective.split('"')[1]
    take_snapshot(browser)
    typed = normalize_action({"input_text": {"index": 1, "text": text}})
    assert not execute(browser, typed, CONTEXT).error
    click(browser, 2)


def test_a_wrong_answer_is_latched_and_a_second_episode_does_not_count(episode: MiniWobEpisode) -> None:
    start(episode, "enter-text", 3)
    click(episode.browser, 2)  # Submit, with nothing entered.
    cover = take_snapshot(episode.browser)
    assert [target.text for target in cover.targets.values()] == ["START"]
    click(episode.browser, 1)
    assert len(take_snapshot(episode.browser).targets) == 2  # Another episode runs now.
    assert episode.status() == (True, -1.0)
    objective, _ = start(episode, "enter-text", 3)
    assert episode.status() == (False, None)
    solve_enter_text(episode.browser, objective)
    assert episode.status() == (True, 1.0)


def test_a_page_left_before_its_end_has_no_reward(episode: MiniWobEpisode) -> None:
    start(episode, "enter-text", 3)
    episode.browser.goto("about:blank")
    assert episode.status() == (False, None)


def test_neither_the_request_nor_the_reward_is_on_the_page(episode: MiniWobEpisode) -> None:
    objective, snapshot = start(episode, "login-user", 3)
    assert objective.startswith('Enter the username "')
    assert objective not in snapshot.page_text and "reward" not in snapshot.page_text
    assert "Time left" not in snapshot.page_text


def test_the_same_seed_gives_the_same_page_after_other_tasks(episode: MiniWobEpisode) -> None:
    pages = ("click-tab-2", "login-user", "search-engine")
    fresh = {page: start(episode, page, 5) for page in pages}
    for page in reversed(pages):
        assert start(episode, page, 6)[0] != fresh[page][0]
        objective, snapshot = start(episode, page, 5)
        assert (objective, snapshot.page_text) == (fresh[page][0], fresh[page][1].page_text), page


def test_records_name_no_port(episode: MiniWobEpisode) -> None:
    task = episode.reset(make_task("click-test", 1))
    assert (task.task_id, task.site, task.seed) == ("miniwob/click-test/1", "click-test", 1)
    assert take_snapshot(episode.browser).url == task.website == "http://miniwob.test/click-test.html"


def test_an_unknown_page_is_reported_in_one_line(episode: MiniWobEpisode) -> None:
    with pytest.raises(UserError, match="MiniWoB\\+\\+ has no page 'no-such'"):
        episode.reset(make_task("no-such", 0))


def test_every_eighth_page_can_be_observed_and_acted_on(
    episode: MiniWobEpisode, tmp_path: pathlib.Path
) -> None:
    for page in page_names()[::8]:
        act_on_page(episode, ImageStore(tmp_path), page)


def test_nothing_but_the_pages_can_be_reached(miniwob_server: MiniWobServer) -> None:
    config = BrowserConfig(width=321, height=201, host_rules=miniwob_server.host_rules)
    with Browser(config) as browser:
        browser.goto("http://miniwob.test/click-test.html")
        with pytest.raises(WebDriverException, match="ERR_NAME_NOT_RESOLVED"):
            browser.driver.get("http://example.com/")
