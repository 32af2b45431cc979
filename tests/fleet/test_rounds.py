"""Rounds, resuming in the middle of them, and what the yield report counts."""

import pytest

from collection.agent.loop import crashed_trajectory
from collection.fleet.rounds import Job, Reflected, TaskHistory, reflection_report, run_round, yield_report
from rmsweb_jax.records.schema import CallUsage, Reflection, Task, Trajectory


def task(number=1, site="p"):
    return Task(task_id=f"miniwob/{site}/{number}", website="", objective="", site=site, seed=number)


def attempt_at(one, attempt, success):
    crashed = crashed_trajectory(one, "teacher", "m", attempt, "")
    return crashed.model_copy(update={"success": success, "outcome": "done"})


class Run:
    """Plays a job whose attempts end as given, and collects the journaled ones."""

    def __init__(self, outcomes):
        self.outcomes, self.kept, self.guided = outcomes, [], []

    def __call__(self, job, history=None):
        history = TaskHistory() if history is None else history
        while not job.is_over(history.successes):
            run_round(job, history, self._play, self._reflect, self.kept.append)
        return [one.attempt for one in self.kept if isinstance(one, Trajectory)]

    def _play(self, one, attempt, guidance):
        self.guided.append(guidance)
        return attempt_at(one, attempt, self.outcomes[attempt - 1])

    def _reflect(self, trajectory, guidance):
        text = f"{guidance}r{trajectory.attempt}"
        reflection = Reflection(task_id=trajectory.task.task_id, attempt=trajectory.attempt, guidance=text)
        return Reflected(reflection=reflection, usage=CallUsage(cost=0.25))


def job(**options):
    return Job(task(), **{"attempts": 5, "stop_after": 2, "reflective": True, **options})


@pytest.mark.parametrize(
    "outcomes,played",
    [
        ([True, True, True], [1, 2]),
        ([False, True, True, True], [1, 2, 3]),
        ([False] * 5, [1, 2, 3, 4, 5]),
        ([True, False, False, False, False], [1, 2, 3, 4, 5]),
    ],
)
def test_at_most_five_rounds_ending_at_two_successes(outcomes, played):
    assert Run(outcomes)(job()) == played


def test_each_round_sees_the_reflection_on_the_one_before():
    run = Run([False] * 3 + [True] * 2)
    run(job())
    assert run.guided == ["", "r1", "r1r2", "r1r2r3", "r1r2r3r4"]


def test_without_reflection_guidance_stays_empty():
    run = Run([False] * 5)
    run(job(reflective=False))
    assert run.guided == [""] * 5 and all(isinstance(one, Trajectory) for one in run.kept)


def test_fixed_attempts_ignore_successes():
    assert Run([True] * 3)(job(attempts=3, stop_after=0, reflective=False)) == [1, 2, 3]


def test_interrupted_rounds_are_continued_not_repeated():
    full = Run([False, False, True, True])
    full(job())
    for cut in range(len(full.kept) + 1):
        history = TaskHistory()
        for one in full.kept[:cut]:
            if isinstance(one, Trajectory):
                history.trajectories[one.attempt] = one
            else:
                history.reflections[one.reflection.attempt] = one
        rest = Run(full.outcomes)
        rest(job(), history)
        assert full.kept[:cut] + rest.kept == full.kept
        played = len(rest.guided)
        assert rest.guided == full.guided[len(full.guided) - played :]


def test_yield_report():
    runs = {
        1: [True, True],
        2: [False, True, True],
        3: [False, False, True, False, True],
        4: [False] * 5,
    }
    trajectories = [
        attempt_at(task(number, "a" if number < 3 else "b"), attempt, success)
        for number, outcomes in runs.items()
        for attempt, success in enumerate(outcomes, 1)
    ]
    report = yield_report(trajectories, rounds=5)
    assert (report["tasks"], report["trajectories"], report["successes"]) == (4, 15, 6)
    assert (report["solved_tasks"], report["failed_first_round"]) == (3, 3)
    assert report["solve_at_2_by_round"] == {"1": 0, "2": 0, "3": 1 / 3, "4": 1 / 3, "5": 2 / 3}
    assert report["success_by_round"] == {"1": 0.25, "2": 0.5, "3": 2 / 3, "4": 0, "5": 0.5}
    assert report["first_round_success_by_site"] == {"a": 0.5, "b": 0.0}


def test_reflection_report_names_mistakes_and_cost():
    texts = ("The wrong element was used.", "It was declared done too early.", "The wrong button.", "")
    reflections = [
        Reflected(reflection=Reflection(task_id="t", attempt=1, guidance=text), usage=CallUsage(cost=0.25))
        for text in texts
    ]
    report = reflection_report(reflections)
    assert report["mistakes_named_in_guidance"] == {"wrong_index": 2, "premature_done": 1}
    assert report["reflection_cost_usd"] == 1.0
