"""Episode limits and what is recorded, on an environment, a teacher and a judge made of plain lists."""

import dataclasses
import json
import re
import unittest.mock

import pytest

from collection.agent import notices
from collection.agent.blockers import Blocker
from collection.agent.environment import Acted, Look
from collection.agent.loop import EpisodeRunner, Limits
from collection.agent.prompt import GUIDANCE_TAG, PromptConfig
from collection.judges.base import Verdict
from collection.llm.base import TeacherReply
from rmsweb_jax.records.schema import ActionResult, CallUsage, Incident, Observation, Tab, Task

TASK = Task(task_id="miniwob/p/1", website="http://a.test/", objective="", environment="miniwob", site="p")
DONE = {"done": {"text": "it is done", "success": True}}
CLICK = {"click_element_by_index": {"index": 1}}


def reply(*actions, goal="Go on"):
    return json.dumps(
        {"evaluation_previous_goal": "Success", "memory": "m", "next_goal": goal, "action": list(actions)}
    )


class Page:
    """Every action works unless `broken`; the reward is fixed."""

    excluded_actions = ("execute_js",)

    def __init__(self, reward=1.0, broken=False, **look):
        self.acted, self.deadlines, self._reward, self._broken = [], [], reward, broken
        self._look = look

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
        return Look(observation, "1 links", **self._look)

    def act(self, actions, extract, deadline):
        self.deadlines.append(deadline)
        self.acted.append([action.name for action in actions])
        return Acted(
            tuple(
                ActionResult(action=action.name, text="No such element", error=self._broken)
                for action in actions
            )
        )

    def finish(self, done):
        return ActionResult(action="done", text="Done", output="\n".join(done.params.files_to_display))

    def redact(self, text):
        return text.replace("hunter2", "<secret>pw</secret>")

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

    def extract(self, request):
        raise AssertionError(request)


class Says:
    """A judge with one opinion."""

    name = "says"

    def __init__(self, success):
        self._success, self.judged = success, []

    def judge(self, trajectory, images):
        self.judged.append(trajectory)
        return Verdict(self._success, "I have seen hunter2.", CallUsage(cost=0.125))


def run(page, teacher, guidance="", judge=None, style="compact", environment="miniwob", **limits):
    runner = EpisodeRunner(page, teacher, None, "teacher", PromptConfig(style), Limits(**limits), judge)
    task = TASK.model_copy(update={"environment": environment})
    return runner.run_episode(task, attempt=2, guidance=guidance)


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
    assert first.discarded == second.discarded == (reply(),) and trajectory.steps[2].discarded == ()


def test_an_empty_action_list_in_a_code_fence_is_asked_again_too():
    trajectory = run(Page(), Lines(f"```json\n{reply()}\n```", reply(DONE)))
    assert trajectory.outcome == "done" and len(trajectory.steps) == 1


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


def test_a_reply_cut_off_or_blocked_costs_the_step_and_is_shown():
    class Cut(Lines):
        def reply(self, request):
            answer = super().reply(request)
            cut = len(self.requests) == 1
            return dataclasses.replace(answer, problem="cut off at the token limit" if cut else "")

    # Mending its JSON would make a whole reply of it.
    teacher = Cut(reply(CLICK)[:-2], reply(DONE))
    page = Page()
    first = run(page, teacher).steps[0]
    assert first.error == "Unusable reply: cut off at the token limit"
    assert (first.response, first.results, page.acted) == (reply(CLICK)[:-2], (), [])
    assert "cut off at the token limit" in teacher.requests[1].messages[-1].text


def test_at_most_ten_actions_are_carried_out():
    page = Page()
    run(page, Lines(reply(*[CLICK] * 12), reply(DONE)))
    assert page.acted == [["click_element_by_index"] * 10]


def test_only_done_may_be_answered_with_when_only_done_is_allowed():
    teacher = Lines(reply(CLICK))
    run(Page(), teacher, max_steps=2)
    assert [request.actions == ("done",) for request in teacher.requests] == [False, True]
    assert "click_element_by_index" in teacher.requests[0].actions


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


def test_a_judge_cannot_make_a_success_of_what_was_not_declared_one():
    given_up = {"done": {"text": "no", "success": False}}
    for done, steps in ((given_up, 9), (CLICK, 1)):
        page, judge = Page(reward=None), Says(True)
        assert not run(page, Lines(reply(done)), judge=judge, environment="web", max_steps=steps).success
        assert len(judge.judged) == 1


@pytest.mark.parametrize(
    ("reward", "environment", "named"),
    [(-1.0, "web", "reward"), (-1.0, "miniwob", "reward"), (None, "miniwob", "")],
)
def test_where_rewards_are_paid_nobody_else_is_asked(reward, environment, named):
    judge = Says(True)
    trajectory = run(Page(reward), Lines(reply(DONE)), judge=judge, environment=environment)
    assert (trajectory.success, trajectory.judge, judge.judged) == (False, named, [])


def test_displayed_files_are_part_of_the_answer():
    shown = {"done": {"text": "see", "success": True, "files_to_display": ["12 EUR"]}}
    assert run(Page(), Lines(reply(shown))).final_text == "see\n\n12 EUR"


def test_what_the_model_writes_is_recorded_without_secrets():
    done = {"done": {"text": "it is hunter2", "success": True}}
    trajectory = run(Page(), Lines("hunter2?", reply(done)))
    assert "hunter2" not in trajectory.model_dump_json()
    assert trajectory.final_text == "it is <secret>pw</secret>"


DOOR = Blocker("captcha", "its title says 'Robot Check'")


def test_a_closed_door_ends_an_episode_and_names_it():
    trajectory = run(Page(blocker=DOOR, reward=None), Lines(reply(CLICK)), max_blocked=3)
    assert (trajectory.outcome, len(trajectory.steps)) == ("captcha", 2)
    assert trajectory.detail == "the last page: its title says 'Robot Check'"


@pytest.mark.parametrize("limits", [{"max_steps": 2}, {"max_failures": 1}])
def test_a_failure_before_a_closed_door_is_told_apart(limits):
    page = Page(blocker=DOOR, broken=True, reward=None)
    assert run(page, Lines(reply(CLICK)), max_blocked=9, **limits).outcome == "captcha"


def test_a_success_or_a_claim_of_one_stays_what_it_is():
    for reward in (1.0, -1.0):
        trajectory = run(Page(blocker=DOOR, reward=reward), Lines(reply(DONE)))
        assert (trajectory.outcome, trajectory.detail) == ("done", "")


def test_a_login_wall_is_a_failure_with_a_reason():
    page = Page(blocker=Blocker("login", "its text says 'log in'"), reward=None)
    trajectory = run(page, Lines(reply(CLICK)), max_steps=3, max_blocked=1)
    assert (trajectory.outcome, len(trajectory.steps)) == ("max_steps", 3)
    assert trajectory.detail == "the last page: its text says 'log in'"


def test_files_plan_and_notice_are_shown():
    page = Page(file_system="a.csv (3 bytes)", todo_contents="- look", notice="A window was closed.")
    teacher = Lines(reply(DONE))
    run(page, teacher)
    text = teacher.requests[0].messages[-1].text
    assert "<file_system>\na.csv (3 bytes)\n</file_system>" in text
    assert "<todo_contents>\n- look\n</todo_contents>" in text
    assert "\nA window was closed.\n</agent_state>" in text


def test_incidents_of_look_and_actions_are_the_steps():
    class Eventful(Page):
        def act(self, *args):
            return dataclasses.replace(super().act(*args), incidents=(Incident(kind="popup", detail="b"),))

    page = Eventful(incidents=(Incident(kind="injection", detail="a"),))
    trajectory = run(page, Lines(reply(CLICK), reply(DONE)))
    assert [[one.detail for one in step.incidents] for step in trajectory.steps] == [["a", "b"], ["a"]]


def test_the_day_is_told_in_full_prompts_only():
    for style, shown in (("full", True), ("compact", False)):
        teacher = Lines(reply(DONE))
        run(Page(), teacher, style=style)
        text = teacher.requests[0].messages[-1].text
        assert (
            re.search(r"<step_info>Step 1 of 100\. Date: \d{4}-\d\d-\d\d</step_info>", text) is not None
        ) is shown


def test_a_reply_that_comes_too_late_is_not_carried_out():
    class Slow(Lines):
        def reply(self, request):
            clock.now += 100
            return super().reply(request)

    page, clock = Page(), Clock()
    with clock.running():
        trajectory = run(page, Slow(reply(CLICK)), max_seconds=150.0)
    assert (trajectory.outcome, len(trajectory.steps)) == ("timeout", 2)
    assert len(page.acted) == 1 and "time limit" in trajectory.steps[1].error
    assert page.deadlines == [150.0]


def test_a_done_that_comes_late_still_counts():
    class Slow(Lines):
        def reply(self, request):
            clock.now += 100
            return super().reply(request)

    clock = Clock()
    with clock.running():
        assert run(Page(), Slow(reply(DONE)), max_seconds=50.0).success


class Clock:
    """Stands in for `time.monotonic` in the loop."""

    now = 0.0

    def running(self):
        return unittest.mock.patch("collection.agent.loop.time.monotonic", lambda: self.now)


def test_time_limit():
    trajectory = run(Page(), Lines(reply(CLICK)), max_seconds=-1.0)
    assert trajectory.outcome == "timeout" and not trajectory.steps


def test_thinking_is_not_carried_over():
    text = json.dumps({"thinking": "deep thought", **json.loads(reply(CLICK))})
    teacher = Lines(text, reply(DONE))
    run(Page(), teacher)
    assert "deep thought" not in teacher.requests[1].messages[-1].text
