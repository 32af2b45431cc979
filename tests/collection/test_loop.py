"""Episode limits and what is recorded, on an environment and a teacher made of plain lists."""

import json

import pytest

from collection.agent import notices
from collection.agent.loop import EpisodeRunner, Limits, Look
from collection.agent.prompt import GUIDANCE_TAG, PromptConfig
from collection.llm.base import TeacherReply
from rmsweb_jax.records.schema import ActionResult, CallUsage, Observation, Tab, Task

TASK = Task(task_id="miniwob/p/1", website="http://a.test/", objective="", environment="miniwob", site="p")
DONE = {"done": {"text": "it is done", "success": True}}
CLICK = {"click_element_by_index": {"index": 1}}


def reply(*actions, goal="Go on"):
    return json.dumps(
        {"evaluation_previous_goal": "Success", "memory": "m", "next_goal": goal, "action": list(actions)}
    )


class Page:
    """Every action works unless `broken`; the reward is fixed."""

    def __init__(self, reward=1.0, broken=False):
        self.acted, self._reward, self._broken = [], reward, broken

    def reset(self, task):
        return task.model_copy(update={"objective": "Click it."})

    def look(self):
        tab = Tab(tab_id="0001", url="http://a.test/", title="A")
        observation = Observation(
            url=tab.url,
            title="A",
            tabs=(tab,),
            current_tab="0001",
            page_text="[1]<a />",
            elements=(),
            fingerprint="f",
        )
        return Look(observation, "1 links")

    def act(self, actions):
        self.acted.append([action.name for action in actions])
        return tuple(
            ActionResult(action=action.name, text="No such element", error=self._broken) for action in actions
        )

    def reward(self):
        return self._reward


class Lines:
    """Answers with the given texts in order, the last one for ever, and keeps what it was asked."""

    name = "lines"

    def __init__(self, *texts):
        self._texts, self.requests = list(texts), []

    def reply(self, request):
        self.requests.append(request)
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        return TeacherReply(text, CallUsage(prompt_tokens=10, cost=0.5))

    def reflect(self, request):
        raise AssertionError(request)


def run(page, teacher, guidance="", **limits):
    runner = EpisodeRunner(page, teacher, None, "teacher", PromptConfig("compact"), Limits(**limits))
    return runner.run_episode(TASK, attempt=2, guidance=guidance)


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
def test_completion_without_full_reward_is_no_success(reward):
    trajectory = run(Page(reward), Lines(reply(DONE)))
    assert not trajectory.success and trajectory.outcome == "done"


def test_reward_without_completion_is_no_success():
    given_up = {"done": {"text": "no", "success": False}}
    assert not run(Page(), Lines(reply(given_up))).success
    endless = run(Page(), Lines(reply(CLICK)), max_steps=3)
    assert not endless.success and endless.outcome == "max_steps" and len(endless.steps) == 3


def test_the_last_step_is_for_done_only():
    page, teacher = Page(), Lines(reply(CLICK))
    trajectory = run(page, teacher, max_steps=3)
    told = [notices.DONE_ONLY in request.messages[-1].text for request in teacher.requests]
    assert told == [False, False, True]
    assert len(page.acted) == 2
    assert trajectory.steps[-1].error and not trajectory.steps[-1].results


@pytest.mark.parametrize("text", ["I would click.", reply({"fly": {}}), '{"action": [{"wait": {}}]}'])
def test_three_unusable_replies_end_in_one_done_only_step(text):
    teacher = Lines(text)
    trajectory = run(Page(), teacher)
    assert trajectory.outcome == "failures" and len(trajectory.steps) == 4
    assert all(step.error.startswith("Unusable reply") for step in trajectory.steps)
    assert notices.DONE_ONLY in teacher.requests[3].messages[-1].text
    assert trajectory.steps[0].error in teacher.requests[1].messages[-1].text


def test_failed_actions_count_and_are_shown():
    teacher = Lines(reply(CLICK), reply(CLICK), reply(CLICK), reply(DONE))
    trajectory = run(Page(broken=True), teacher)
    assert trajectory.outcome == "done" and len(trajectory.steps) == 4
    assert "Result: Error: No such element" in teacher.requests[1].messages[-1].text


def test_a_good_step_forgives_failures():
    trajectory = run(Page(), Lines("?", "?", reply(CLICK), "?", "?", reply(DONE)))
    assert trajectory.outcome == "done" and len(trajectory.steps) == 6


def test_an_empty_action_list_is_asked_again_once():
    teacher = Lines(reply(), reply(CLICK), reply(), reply(), reply(DONE))
    trajectory = run(Page(), teacher)
    assert [request.step for request in teacher.requests] == [1, 1, 2, 2, 3]
    first, second, _ = trajectory.steps
    assert first.response == reply(CLICK) and not first.error and first.usage.cost == 1.0
    assert notices.NO_ACTION in first.messages[-1].text
    assert second.error and second.response == reply()


def test_mended_json_is_marked():
    trajectory = run(Page(), Lines(reply(CLICK)[:-1], reply(DONE)))
    assert [step.repaired for step in trajectory.steps] == [True, False]


def test_a_list_is_cut_before_a_later_done():
    page = Page()
    trajectory = run(page, Lines(reply(CLICK, DONE), reply(DONE)))
    assert page.acted == [["click_element_by_index"]] and len(trajectory.steps) == 2


def test_guidance_is_live_only():
    secret = "The wrong element was used."
    teacher = Lines(reply(CLICK), reply(DONE))
    trajectory = run(Page(), teacher, guidance=secret)
    assert all(secret in request.messages[-1].text for request in teacher.requests)
    assert all(f"<{GUIDANCE_TAG}>" in request.messages[-1].text for request in teacher.requests)
    text = trajectory.model_dump_json()
    assert secret not in text and GUIDANCE_TAG not in text


def test_time_limit():
    trajectory = run(Page(), Lines(reply(CLICK)), max_seconds=-1.0)
    assert trajectory.outcome == "timeout" and not trajectory.steps


def test_thinking_is_not_carried_over():
    text = json.dumps({"thinking": "deep thought", **json.loads(reply(CLICK))})
    teacher = Lines(text, reply(DONE))
    run(Page(), teacher)
    assert "deep thought" not in teacher.requests[1].messages[-1].text
