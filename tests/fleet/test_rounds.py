"""Rounds, resuming in the middle of them, and what the yield report counts."""

import contextlib

import pytest

from collection.agent.loop import crashed_trajectory
from collection.fleet.journal import RunJournal
from collection.fleet.rounds import Job, Reflected, reflection_report, yield_report
from rmsweb_jax.records.episodes import EPISODES
from rmsweb_jax.records.schema import CallUsage, Reflection, Task
from tests.fleet.acting import Act, config, run


def task(number=1, site="p"):
    return Task(task_id=f"miniwob/{site}/{number}", website="", objective="", site=site, seed=number)


def attempt_at(one, attempt, success):
    crashed = crashed_trajectory(one, "teacher", "m", attempt, "")
    return crashed.model_copy(update={"success": success, "outcome": "done"})


def play(workdir, outcomes, **rules):
    """Plays a task whose attempts end as given; returns the guidance of the rounds that were played now."""
    job = Job(task(), **{"attempts": 5, "stop_after": 2, "reflective": True, **rules})
    before = len(rounds(workdir))

    def script(_, number):
        outcome = outcomes[before + number]
        return Act(outcome=outcome) if isinstance(outcome, str) else Act(success=outcome)

    run([job], workdir, script, config())
    return [one.detail for one in rounds(workdir)[before:]]


def rounds(workdir):
    workdir.mkdir(exist_ok=True)
    with contextlib.closing(RunJournal(workdir)) as journal:
        return [one for of in journal.rounds.values() for one in of.values()]


@pytest.mark.parametrize(
    ("outcomes", "rules", "guidance"),
    [
        # At most five rounds, ending at two successes; each sees the reflections on those before.
        ([True, True, True], {}, ["", "r1"]),
        ([False, True, True, True], {}, ["", "r1", "r1r2"]),
        ([False] * 5, {}, ["", "r1", "r1r2", "r1r2r3", "r1r2r3r4"]),
        ([True, False, False, False, False], {}, ["", "r1", "r1r2", "r1r2r3", "r1r2r3r4"]),
        # A round that a site refused is not reflected on.
        ([False, "captcha", "blocked", False], {"attempts": 4}, ["", "r1", "r1", "r1"]),
        ([False] * 5, {"reflective": False}, [""] * 5),
        ([True] * 3, {"attempts": 3, "stop_after": 0, "reflective": False}, [""] * 3),
    ],
)
def test_rounds_of_a_task(outcomes, rules, guidance, tmp_path):
    assert play(tmp_path, outcomes, **rules) == guidance
    assert [one.attempt for one in rounds(tmp_path)] == list(range(1, len(guidance) + 1))


def test_interrupted_rounds_are_continued_not_repeated(tmp_path):
    outcomes = [False, False, True, True]
    guided = play(tmp_path / "whole", outcomes)
    whole = (tmp_path / "whole" / EPISODES).read_bytes().splitlines(keepends=True)
    assert len(whole) == 7, "rounds, and reflections between them"
    for cut in range(len(whole) + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        # Also in the middle of a line.
        torn = whole[cut][:-5] if cut < len(whole) else b""
        (folder / EPISODES).write_bytes(b"".join(whole[:cut]) + torn)
        rest = play(folder, outcomes)
        assert (folder / EPISODES).read_bytes() == b"".join(whole)
        assert rest == guided[len(guided) - len(rest) :]


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
