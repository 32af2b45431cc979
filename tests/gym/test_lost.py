"""What harnesses get of an episode that is lost, and of our own prompt, in real Chromium."""

import json
import re

import pytest

from collection.browser.config import BrowserConfig
from collection.gym.errors import LOST, EpisodeLostError
from collection.gym.trl_task import WebReplies, WebTools, carry_out, rows
from rmsweb_jax.errors import UserError
from tests.gym import sabotage

BROWSER = BrowserConfig(width=500, height=320, quiet_ms=20, settle_ms=300)
TASK = "miniwob/click-button"
DONE = {"done": {"text": "ok", "success": True}}


@pytest.fixture(scope="module")
def tools():
    task = WebTools(browser=BROWSER)
    yield task
    task._turns.close()


@pytest.fixture(scope="module")
def replies():
    task = WebReplies(browser=BROWSER)
    yield task
    task._turns.close()


def target(page: str) -> str:
    """The number of the button that the goal names."""
    label = re.search(r'[Cc]lick on the "(.*)" button', page)
    assert label
    found = re.search(rf"\[(\d+)\]<button />\s+{re.escape(label[1])}$", page, re.M)
    assert found, page
    return found[1]


def reply(*actions) -> str:
    texts = {"evaluation_previous_goal": "Success", "memory": "m", "next_goal": "Go on"}
    return json.dumps(texts | {"action": list(actions)})


def click(number: str) -> dict:
    return {"click_element_by_index": {"index": int(number)}}


@pytest.mark.parametrize("fault", sabotage.FAULTS)
def test_an_episode_that_is_lost_has_no_reward(tools, fault):
    """Neither for TRL, nor when an agent says afterwards that all is done; the next one is paid."""
    page = tools.reset(seed=4)
    sabotage.apply(fault, tools._turns)
    if fault == "browser":
        assert tools.act(f"click('{target(page)}')").startswith(LOST)
    assert tools.get_reward() is None
    for _ in range(2):
        with pytest.raises(EpisodeLostError):
            tools._turns.step("send_msg_to_user('done')")
        with pytest.raises(EpisodeLostError):
            tools._turns.session.look()
    page = tools.reset(seed=4)
    tools.act(f"click('{target(page)}')")
    assert tools.get_reward() == 1.0
    with pytest.raises(UserError, match="call reset first"):
        tools._turns.step("noop()")


def test_a_reply_is_an_episode_of_trl(replies):
    (row,) = rows(TASK, [4])
    shown = replies.reset(**row)
    assert [part["type"] for part in shown] == ["text", "image"] and shown[1]["image"].size == (500, 320)
    text = reply(click(target(shown[0]["text"])))
    assert carry_out([[{"role": "assistant", "content": text}]], [replies]) == [None]
    assert replies.get_reward() == 1.0
    replies.reset(**row)
    assert carry_out([[{"role": "assistant", "content": "Hm."}]], [replies]) == [None]
    assert replies.get_reward() == 0.0
    replies.reset(**row)
    sabotage.apply("browser", replies._turns)
    assert carry_out([[{"role": "assistant", "content": text}]], [replies]) == [None]
    assert replies.get_reward() is None


def test_prompts_are_the_loops(replies):
    """With the steps so far, a reply that cannot be read among them."""
    turns = replies._turns
    turn = turns.reset(4)
    system, user = turn.messages
    assert system.text == rows(TASK, [4])[0]["prompt"][0]["content"]
    turn = turns.step("Hm.")
    assert turn.error and "Unusable reply" in turn.messages[-1].text
    turn = turns.step(reply(click(target(user.text))))
    text = turn.messages[-1].text
    assert "Step 3 of 20" in text and "Memory: m" in text and not turn.error
    turn = turns.step(reply({"done": {"text": "no", "success": False}}))
    assert (turn.ended, turn.reward, turn.messages) == (True, 0.0, ())
    turns.reset(4)
    turns.step(f"click('{target(user.text)}')")
    turn = turns.step(reply(DONE))
    assert (turn.ended, turn.reward) == (True, 1.0)
