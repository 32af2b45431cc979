"""Pairs of runs of a task, the step at which they part, and the gates such a case must pass."""

import dataclasses
from collections import Counter

import pytest

from collection.mining.audit import to_prompt
from collection.mining.balance import BalanceConfig
from collection.mining.mine import mine_runs
from collection.mining.runs import RunPair, by_task, parse_run, run_pairs
from collection.mining.score import find_divergence
from rmsweb_jax.records.schema import Message, Step, TextPart, Trajectory
from tests.mining.login_runs import (
    CONFIG,
    INVALID,
    OBJECTIVE,
    PREMATURE,
    SKIPPED,
    WANDERS,
    WRONG_BUTTON,
    WRONG_TEXT,
    after,
    case_of,
    failure,
    steps,
    success,
)
from tests.trajectories import CLICK, DONE, FORM, SCROLL, TYPE, TYPE_PASSWORD, step, trajectory


@pytest.mark.parametrize(
    ("localization", "category", "at"),
    [
        (WRONG_TEXT, "constraint_mismatch", (1, 1)),
        (PREMATURE, "endpoint_incomplete", (1, 1)),
        (SKIPPED, "constraint_mismatch", (1, 1)),
        (WANDERS, "endpoint_incomplete", (1, 1)),
    ],
)
def test_the_divergence_is_found(localization, category, at):
    case = case_of(success(), localization)
    assert case.decision == "kept", case.scores
    assert case.label.category == category
    assert (case.success_at, case.localization_at) == at
    assert to_prompt(case).target == (
        '{"evaluation_previous_goal":"Success","memory":"typed name","next_goal":"go on",'
        '"action":[{"input_text":{"index":2,"text":"xy7"}}]}'
    )


def test_an_unusable_reply_is_a_divergence():
    case = case_of(success(), INVALID)
    assert (case.decision, case.label.category) == ("kept", "runtime_evaluation")
    assert case.localization_at in (1, 2) and case.label.confidence >= 0.85


def longer_by(*first: Step) -> Trajectory:
    return trajectory(*first, *steps(TYPE, TYPE_PASSWORD, CLICK), after(5), objective=OBJECTIVE, attempt=2)


def test_a_detour_is_mined_from_two_successes_after_any_failure():
    """The paper mines failures primarily; a detour is a secondary signal, whatever its score."""
    short, detour = success(), longer_by(step(1, WRONG_BUTTON))
    case = case_of(short, detour)
    assert (case.pair.kind, case.decision, case.label.category) == ("secondary", "kept", "target_discovery")
    assert (case.success_at, case.localization_at) == (0, 0)
    assert case.scores["total"] > case_of(short, PREMATURE).scores["total"]
    assert case_of(short, detour, PREMATURE).pair.kind == "primary"
    # A success that only looked around took no detour.
    assert case_of(short, longer_by(step(1, SCROLL, changed=False))).decision == "category_score"


def test_a_task_whose_best_pair_may_not_stay_is_tried_with_another():
    """A runtime failure below its gate does not cost the task its other decision."""
    skips_and_ends = failure(
        step(1, DONE, memory="other words, at another time", elements=FORM[:2]), attempt=3
    )
    runs = [success(), INVALID, skips_and_ends]
    best = case_of(*runs)
    assert (best.label.category, best.decision) == ("runtime_evaluation", "kept")
    strict = BalanceConfig(runtime_min_confidence=1.1)
    mined = mine_runs(runs, CONFIG, strict)
    (audit,) = mined.audits
    assert (audit.decision, audit.category) == ("kept", "endpoint_incomplete")
    assert [prompt.category for prompt in mined.prompts] == ["endpoint_incomplete"]
    assert sum(note.startswith("tried") for note in audit.notes) == 2
    (dropped,) = mine_runs(runs[:2], CONFIG, strict).audits
    assert dropped.decision == "runtime_gate"


def test_the_site_of_a_decision_is_its_pages():
    def moved(run):
        items = tuple(
            item.model_copy(
                update={"observation": item.observation.model_copy(update={"url": "https://www.shop.com/x"})}
            )
            for item in run.steps
        )
        task = run.task.model_copy(update={"environment": "web", "website": "https://search.com/"})
        return run.model_copy(update={"steps": items, "task": task})

    mined = mine_runs([moved(success()), moved(PREMATURE)], CONFIG, BalanceConfig())
    assert [prompt.site for prompt in mined.prompts] == [mined.audits[0].site] == ["shop.com"]
    # The pages of MiniWoB++ are all on one host.
    at_home = mine_runs([success(), PREMATURE], CONFIG, BalanceConfig())
    assert at_home.audits[0].site == success().task.site


def test_pairs():
    short, long = success(), success(attempt=2)
    longer = trajectory(*steps(TYPE, TYPE, TYPE_PASSWORD, CLICK), after(5), attempt=3)
    crashed = failure(outcome="crashed")
    says_no = success(attempt=4, declared_success=False)
    pairs = list(run_pairs([parse_run(run) for run in (longer, long, short, PREMATURE, crashed, says_no)]))
    assert Counter(pair.kind for pair in pairs) == {"primary": 3, "secondary": 1}
    assert pairs[-1].localization.record.trajectory_id == longer.trajectory_id
    assert not list(run_pairs([parse_run(PREMATURE)]))


def test_a_run_in_two_pools_counts_once():
    assert [len(runs) for runs in by_task([success(), PREMATURE, success()]).values()] == [2]


OTHER_PAGE = {"url": "https://else.test/", "elements": (("p", "else"),), "page": "else"}


@pytest.mark.parametrize(
    ("ours", "theirs", "decision"),
    [
        (success(), failure(*steps(TYPE, TYPE_PASSWORD, CLICK), outcome="timeout"), "category_score"),
        (trajectory(*steps(CLICK), after(2)), failure(*steps(CLICK)), "no_eligible_pair"),
        (trajectory(after(1)), failure(*steps(CLICK)), "no_eligible_pair"),
        (success(), failure(step(1, DONE, memory="qqq", **OTHER_PAGE)), "state_score"),
        (trajectory(*steps(SCROLL), after(2)), failure(*steps(DONE)), "category_score"),
        (
            trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, screenshot=None), after(4), objective=OBJECTIVE),
            failure(*steps(TYPE, DONE, screenshot=None)),
            "no_screenshot",
        ),
    ],
)
def test_gates(ours, theirs, decision):
    case = case_of(ours, theirs)
    assert case.decision == decision, (case, case.scores)
    mined = mine_runs([ours, theirs], CONFIG, BalanceConfig())
    assert not mined.prompts
    assert [audit.decision for audit in mined.audits] == [decision]


def test_one_screenshot_is_enough():
    blind = trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, screenshot=None), after(4), objective=OBJECTIVE)
    assert case_of(blind, PREMATURE).decision == "kept"


def test_the_success_side_must_make_progress_and_the_total_be_enough():
    still = trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK, changed=False), after(4), objective=OBJECTIVE)
    assert not mine_runs([still, PREMATURE], CONFIG, BalanceConfig()).prompts
    for run, gates, decision in (
        (still, {"min_category": 0.0, "min_total": 0.0}, "no_progress"),
        (success(), {"min_total": 1.01}, "total_score"),
    ):
        pair = RunPair("primary", parse_run(run), parse_run(PREMATURE))
        assert find_divergence(pair, dataclasses.replace(CONFIG, **gates)).decision == decision


def test_a_state_with_guidance_in_it_is_never_mined():
    guidance = TextPart(text="<reflection_guidance>Press Login.</reflection_guidance>")
    noted = tuple(
        item.model_copy(update={"messages": (*item.messages, Message(role="user", content=(guidance,)))})
        for item in success().steps
    )
    case = case_of(success().model_copy(update={"steps": noted}), PREMATURE)
    assert case.decision == "invalid_model_io"


def test_ties_go_to_the_later_step():
    same = [step(number, TYPE, changed=False) for number in (1, 2, 3, 4)]
    ours = parse_run(trajectory(*[step(number, CLICK) for number in (1, 2)], after(3)))
    theirs = parse_run(failure(*same[:3]))
    case = find_divergence(
        RunPair("primary", ours, theirs), dataclasses.replace(CONFIG, state_weight=0.0, min_total=0.0)
    )
    assert (case.success_at, case.localization_at) == (1, 2)


def test_weights_add_up():
    scores = case_of(success(), PREMATURE).scores
    total = 0.5 * scores["state"] + 0.25 * scores["action"] + 0.25 * scores["category"]
    assert scores["total"] == pytest.approx(total, abs=1e-5)
    state = 0.3 * scores["url"] + 0.4 * scores["dom"] + 0.15 * scores["memory"] + 0.15 * scores["progress"]
    assert scores["state"] == pytest.approx(state, abs=1e-5)
