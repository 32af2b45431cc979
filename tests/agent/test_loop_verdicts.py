"""Success of an episode: the model's claim, the reward and the judge."""

from typing import Any

import pytest

from collection.judges.base import Verdict, awaits_verdict, cause, fate, with_verdict
from rmsweb_jax.records.schema import CallUsage
from tests.agent.plain_episode import CLICK, DONE, Lines, Page, reply, run


def test_success_needs_completion_and_reward():
    trajectory = run(Page(), Lines(reply(CLICK), reply(DONE)))
    assert trajectory.success and trajectory.outcome == "done" and trajectory.judge == "reward"
    assert (trajectory.trajectory_id, trajectory.attempt) == ("miniwob/p/1#teacher-2", 2)
    assert trajectory.task.objective == "Click it."
    assert trajectory.final_text == "it is done" and trajectory.declared_success is True
    assert [result.action for step in trajectory.steps for result in step.results] == [
        "click_element_by_index",
        "done",
    ]


@pytest.mark.parametrize("reward", [-1.0, 0.0, 0.6, None])
def test_completion_without_full_reward_is_not_a_success(reward):
    trajectory = run(Page(reward), Lines(reply(DONE)))
    assert not trajectory.success and trajectory.outcome == "done"


def test_reward_without_completion_is_not_a_success():
    given_up = {"done": {"text": "no", "success": False}}
    assert not run(Page(), Lines(reply(given_up))).success
    endless = run(Page(), Lines(reply(CLICK)), max_steps=3)
    assert not endless.success and endless.outcome == "max_steps" and len(endless.steps) == 3


class Says:
    """A judge with a fixed verdict."""

    name = "says"

    def __init__(self, success):
        self._success, self.judged = success, []

    def judge(self, trajectory, images):
        self.judged.append(trajectory)
        return Verdict(self._success, "I have seen hunter2.", CallUsage(cost=0.125))


def judged(trajectory, judge):
    """As the fleet's judging process does it."""
    assert awaits_verdict(trajectory) and fate(trajectory) != "solved"
    no_images: Any = None
    return with_verdict(
        trajectory, judge, no_images, lambda text: text.replace("hunter2", "<secret>pw</secret>")
    )


@pytest.mark.parametrize(
    ("verdict", "success", "named", "fated"),
    [(True, True, "says", "solved"), (False, False, "says", "failed"), (None, False, "", "unjudged")],
)
def test_without_a_reward_the_judge_decides(verdict, success, named, fated):
    judge = Says(verdict)
    trajectory = judged(run(Page(reward=None), Lines(reply(DONE)), environment="web"), judge)
    assert (trajectory.success, trajectory.judge, fate(trajectory)) == (success, named, fated)
    assert (
        trajectory.judge_text == "I have seen <secret>pw</secret>." and trajectory.judge_usage.cost == 0.125
    )
    assert cause(trajectory) == ("I have seen <secret>pw</secret>." if verdict is None else "")
    assert not awaits_verdict(trajectory)
    (seen,) = judge.judged
    assert seen.final_text == "it is done" and seen.outcome == "done"


def test_a_judge_may_pass_an_answer_that_says_no_and_no_unfinished_episode():
    says_no = {"done": {"text": "no", "success": False}}
    for action, steps, success in ((says_no, 9, True), (CLICK, 1, False)):
        played = run(Page(reward=None), Lines(reply(action)), environment="web", max_steps=steps)
        assert judged(played, Says(True)).success is success


@pytest.mark.parametrize(
    ("reward", "environment", "named"),
    [(-1.0, "web", "reward"), (-1.0, "miniwob", "reward"), (None, "miniwob", "")],
)
def test_no_judge_is_asked_if_there_is_a_reward(reward, environment, named):
    trajectory = run(Page(reward), Lines(reply(DONE)), environment=environment)
    assert (trajectory.success, trajectory.judge, awaits_verdict(trajectory)) == (False, named, False)
