"""Success of an episode: the model's claim, the reward and the judge."""

import pytest

from tests.agent.plain_episode import CLICK, DONE, Lines, Page, Says, reply, run


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


@pytest.mark.parametrize(
    ("verdict", "success", "named"), [(True, True, "says"), (False, False, "says"), (None, False, "")]
)
def test_without_a_reward_the_judge_decides(verdict, success, named):
    judge = Says(verdict)
    trajectory = run(Page(reward=None), Lines(reply(DONE)), judge=judge, environment="web")
    assert (trajectory.success, trajectory.judge) == (success, named)
    assert (
        trajectory.judge_text == "I have seen <secret>pw</secret>." and trajectory.judge_usage.cost == 0.125
    )
    (judged,) = judge.judged
    assert judged.final_text == "it is done" and judged.outcome == "done"


def test_a_judge_may_pass_an_answer_that_says_no_and_no_unfinished_episode():
    says_no = {"done": {"text": "no", "success": False}}
    for action, steps, success in ((says_no, 9, True), (CLICK, 1, False)):
        page, judge = Page(reward=None), Says(True)
        played = run(page, Lines(reply(action)), judge=judge, environment="web", max_steps=steps)
        assert played.success is success and len(judge.judged) == 1


@pytest.mark.parametrize(
    ("reward", "environment", "named"),
    [(-1.0, "web", "reward"), (-1.0, "miniwob", "reward"), (None, "miniwob", "")],
)
def test_no_judge_is_asked_if_there_is_a_reward(reward, environment, named):
    judge = Says(True)
    trajectory = run(Page(reward), Lines(reply(DONE)), judge=judge, environment=environment)
    assert (trajectory.success, trajectory.judge, judge.judged) == (False, named, [])
