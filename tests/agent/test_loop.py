"""Execution of replies, failures, and the limits that end an episode."""

import dataclasses

import pytest

from collection.agent.query import DONE_ONLY, NO_ACTION
from collection.environments.blockers import Blocker
from tests.agent.plain_episode import CLICK, DONE, Clock, Lines, Page, reply, run


class Slow(Lines):
    """An actor whose every reply takes `seconds` by the clock, in `outage_s` of which its model is away."""

    def __init__(self, clock, *texts, seconds=100.0, outage_s=0.0):
        super().__init__(*texts)
        self._clock, self._seconds, self._outage_s = clock, seconds, outage_s

    def reply(self, request):
        self._clock.now += self._seconds
        return dataclasses.replace(super().reply(request), outage_s=self._outage_s)


def test_the_last_step_is_for_done_only():
    page, teacher = Page(), Lines(reply(CLICK))
    trajectory = run(page, teacher, max_steps=3)
    done_only = [DONE_ONLY in request.messages[-1].text for request in teacher.requests]
    assert done_only == [request.actions == ("done",) for request in teacher.requests] == [False, False, True]
    assert "click_element_by_index" in teacher.requests[0].actions and len(page.acted) == 2
    assert trajectory.steps[-1].error and not trajectory.steps[-1].results


@pytest.mark.parametrize("text", ["I would click.", reply({"fly": {}}), '{"action": [{"wait": {}}]}'])
def test_three_unusable_replies_end_in_one_done_only_step(text):
    teacher = Lines(text)
    trajectory = run(Page(), teacher)
    assert trajectory.outcome == "failures" and len(trajectory.steps) == 4
    assert all(step.error.startswith("Unusable reply") for step in trajectory.steps)
    assert DONE_ONLY in teacher.requests[3].messages[-1].text
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
    teacher = Lines(f"```json\n{reply()}\n```", reply(CLICK), reply(), reply(), reply(DONE))
    trajectory = run(Page(), teacher)
    assert [request.step for request in teacher.requests] == [1, 1, 2, 2, 3]
    first, second, _ = trajectory.steps
    assert first.response == reply(CLICK) and not first.error and first.usage.cost == 1.0
    assert NO_ACTION in first.messages[-1].text
    assert second.error and second.response == reply()
    assert first.discarded == (f"```json\n{reply()}\n```",) and second.discarded == (reply(),)
    assert trajectory.steps[2].discarded == ()


def test_repaired_json_is_marked():
    trajectory = run(Page(), Lines(reply(CLICK)[:-1], reply(DONE)))
    assert [step.repaired for step in trajectory.steps] == [True, False]


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


@pytest.mark.parametrize("actions,carried_out", [((CLICK, DONE), 1), ((CLICK,) * 12, 10)])
def test_a_list_is_cut_before_a_later_done_and_after_ten_actions(actions, carried_out):
    page = Page()
    trajectory = run(page, Lines(reply(*actions), reply(DONE)))
    assert page.acted == [["click_element_by_index"] * carried_out] and len(trajectory.steps) == 2


DOOR = Blocker("captcha", "its title says 'Robot Check'")


def test_a_closed_door_ends_an_episode_and_names_it():
    trajectory = run(Page(blocker=DOOR, reward=None), Lines(reply(CLICK)), max_blocked=3)
    assert (trajectory.outcome, len(trajectory.steps)) == ("captcha", 2)
    assert trajectory.detail == "the last page: its title says 'Robot Check'"


@pytest.mark.parametrize("limits", [{"max_steps": 2}, {"max_failures": 1}])
def test_a_failure_on_a_blocked_page_has_its_own_outcome(limits):
    page = Page(blocker=DOOR, broken=True, reward=None)
    assert run(page, Lines(reply(CLICK)), max_blocked=9, **limits).outcome == "captcha"


def test_a_success_or_a_claim_of_one_on_a_blocked_page_is_not_changed():
    for reward in (1.0, -1.0):
        trajectory = run(Page(blocker=DOOR, reward=reward), Lines(reply(DONE)))
        assert (trajectory.outcome, trajectory.detail) == ("done", "")


def test_a_login_wall_is_a_failure_with_a_reason():
    page = Page(blocker=Blocker("login", "its text says 'log in'"), reward=None)
    trajectory = run(page, Lines(reply(CLICK)), max_steps=3, max_blocked=1)
    assert (trajectory.outcome, len(trajectory.steps)) == ("max_steps", 3)
    assert trajectory.detail == "the last page: its text says 'log in'"


def test_a_reply_that_comes_too_late_is_not_carried_out():
    page, clock = Page(), Clock()
    with clock.running():
        trajectory = run(page, Slow(clock, reply(CLICK)), max_seconds=150.0)
    assert (trajectory.outcome, len(trajectory.steps)) == ("timeout", 2)
    assert len(page.acted) == 1 and "time limit" in trajectory.steps[1].error
    assert page.deadlines == [150.0]


def test_a_done_that_comes_late_still_counts():
    clock = Clock()
    with clock.running():
        assert run(Page(), Slow(clock, reply(DONE)), max_seconds=50.0).success


def test_a_time_without_answers_of_the_model_is_not_the_episodes():
    page, clock = Page(), Clock()
    waited = Slow(clock, reply(CLICK), reply(CLICK), reply(DONE), seconds=3600.0, outage_s=3590.0)
    with clock.running():
        trajectory = run(page, waited, max_seconds=50.0)
    assert (trajectory.outcome, trajectory.seconds) == ("done", 3 * 3600.0)
    assert page.deadlines == [50.0 + 3590.0, 50.0 + 2 * 3590.0]
