"""The Gymnasium environment: its interface by Gymnasium's own checker, and episodes in real Chromium."""

import re

import pytest
from gymnasium.utils.env_checker import check_env

from collection.browser.config import BrowserConfig
from collection.gym.calls import parse_actions
from collection.gym.errors import EpisodeLostError
from collection.gym.gymnasium_env import WebEnv
from collection.gym.session import find
from rmsweb_jax.actions import ReplyError
from rmsweb_jax.errors import UserError

BROWSER = BrowserConfig(width=500, height=320, quiet_ms=20, settle_ms=300)


@pytest.fixture(scope="module")
def env():
    env = WebEnv("miniwob/click-button", max_steps=3, browser=BROWSER)
    yield env
    env.close()


def target(observation: dict) -> str:
    """The number of the button that the goal names."""
    label = re.search(r'"(.*)"', observation["goal"])
    assert label
    found = re.search(rf"\[(\d+)\]<button />\s+{re.escape(label[1])}$", observation["axtree_txt"], re.M)
    assert found, observation["axtree_txt"]
    return found[1]


def test_gymnasiums_checker_finds_nothing(env):
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_episode_is_paid_when_it_ends(env, seed):
    observation, info = env.reset(seed=seed)
    assert info["task_info"]["task_id"] == f"miniwob/click-button/{seed}"
    observation, reward, terminated, truncated, _ = env.step(f"click('{target(observation)}')")
    assert (reward, terminated, truncated, observation["last_action_error"]) == (0.0, False, False, "")
    _, reward, terminated, truncated, _ = env.step("send_msg_to_user('done')")
    assert (reward, terminated, truncated) == (1.0, True, False)
    with pytest.raises(UserError, match="call reset first"):
        env.step("noop()")


def test_who_does_nothing_is_not_paid_and_mistakes_are_shown(env):
    env.reset(seed=3)
    observation, *_ = env.step("fly('3')")
    assert "there is no action 'fly'" in observation["last_action_error"]
    observation, *_ = env.step("click('77')")
    assert observation["last_action_error"]
    _, reward, terminated, truncated, _ = env.step("noop(0)")
    assert (reward, terminated, truncated) == (0.0, False, True)
    env.reset(seed=3)
    _, reward, terminated, _, _ = env.step("report_infeasible('no')")
    assert (reward, terminated) == (0.0, True)


def test_an_error_of_our_own_is_no_reward(env, monkeypatch):
    env.reset(seed=4)
    monkeypatch.setattr(env._turns.session._environment, "observe", lambda: {}["url"])
    with pytest.raises(EpisodeLostError, match="unexpected KeyError"):
        env.step("click('1')")
    observation, _ = env.reset(seed=4)
    assert target(observation)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("click('3')", [("click_element_by_index", {"index": 3, "while_holding_ctrl": False})]),
        ("fill('4', 'tea')\nkeyboard_press('Enter')", [("input_text", None), ("send_keys", None)]),
        ("select_option('5', ['a', 'b'])", [("select_dropdown_option", None)] * 2),
        ("scroll(0, -360)", [("scroll", {"down": False, "num_pages": 0.5, "frame_element_index": None})]),
        ("tab_focus(1)", [("switch_tab", {"tab_id": "bbbb"})]),
        ("tab_close()", [("close_tab", {"tab_id": "aaaa"})]),
        ("goto('http://a.test/')", [("go_to_url", None)]),
    ],
)
def test_browsergyms_calls_are_read(text, expected):
    actions = parse_actions(text, ("aaaa", "bbbb"), "aaaa")
    assert [action.name for action in actions] == [name for name, _ in expected]
    for action, (_, params) in zip(actions, expected, strict=True):
        assert params is None or action.params.model_dump() == params


@pytest.mark.parametrize(
    "text",
    [
        *("", "click", "click(", "click('x')", "click()", "tab_focus(7)", "click('3', 'right')"),
        *(
            "tab_focus('1')",
            "select_option('3', [])",
            "noop(1e999)",
            "mouse_click(1e999, 2)",
            *("(" * 500 + "1", "not " * 600 + "x", "x" + "()" * 1500),
        ),
        *("open('/etc/passwd')", "click(__import__('os'))", "import os", "click(**{})"),
    ],
)
def test_anything_else_is_no_action(text):
    with pytest.raises(ReplyError):
        parse_actions(text, ("aaaa",))


def test_tasks_have_names():
    assert find("miniwob/click-button", 3).seed == 3
    with pytest.raises(UserError, match="no page 'fly'"):
        find("miniwob/fly", 0)
    with pytest.raises(UserError, match="no application 'fly'"):
        find("fly/away", 0)
