"""Runs without a result: rates and differences leave them out, and bounds contain every completion."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collection.evaluation.results import Results, compare, score
from collection.evaluation.statistics import pass_at_k, pass_difference, pass_rate
from tests.evaluation.made import results

FATES = ("solved", "failed", "blocked", "crashed")
RUNS = st.lists(st.lists(st.sampled_from(FATES), min_size=3, max_size=3), min_size=1, max_size=8)
OUTCOMES = {"solved": "done", "failed": "max_steps", "blocked": "captcha", "crashed": "crashed"}


def made(fates: list[list[str]], sites: str = "ab") -> Results:
    def field(task: int, run: int) -> dict[str, Any]:
        outcome = OUTCOMES[fates[task][run]]
        return {"site": sites[task % len(sites)], "steps": 3 + (task + run) % 4, "outcome": outcome}

    return results("p", [[fate == "solved" for fate in row] for row in fates], field)


def without(whole: Results, hit: np.ndarray) -> Results:
    """The same runs, of which those in `hit` [T, runs] were blocked."""
    fates = [
        ["blocked" if lost else fate for fate, lost in zip(task, row, strict=True)]
        for task, row in zip(whole.by_task("fate").values(), hit, strict=True)
    ]
    return made(fates)


def hits(data: st.DataObject, whole: Results) -> np.ndarray:
    size = len(whole.tasks) * 3
    drawn = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return np.array(drawn).reshape(-1, 3)


@given(RUNS, st.data())
def test_a_run_against_itself_is_zero_whatever_is_missing_on_either_side(fates, data):
    whole = made(fates)
    sides = [without(whole, hits(data, whole)) for _ in range(2)]
    for first, second in (sides, (sides[0], sides[0]), (whole, sides[1])):
        difference = compare(first, second)
        assert difference["permutation_p"] == difference["mcnemar_p"] == 1.0
        assert (difference["only_first"], difference["only_second"]) == (0, 0)
        for figure in ("pass_at_1", "pass_at_2", "pass_at_3", "step_reduction", "steps_saved"):
            assert difference[figure] is None or difference[figure]["mean"] == 0.0
        for k in (1, 2, 3):
            if (one := difference[f"pass_at_{k}"]) is not None:
                assert one["least"] <= 0.0 <= one["most"]


@settings(max_examples=20)
@given(RUNS, RUNS, st.sampled_from("ab"))
def test_a_site_that_is_missing_on_both_sides_leaves_the_figures_of_the_others(fates, other_fates, site):
    count = min(len(fates), len(other_fates))
    first, second = made(fates[:count]), made(other_fates[:count])
    hit = first.values("site") == site
    others = [task for task, (of, *_) in first.by_task("site").items() if of != site]
    one, other = without(first, hit), without(second, hit)
    if not others:
        assert score(one)["pass_at_1"] is None
        return
    figures, alone = score(one), score(first.select(others))
    difference, expected = compare(one, other), compare(first.select(others), second.select(others))
    for k in (1, 2, 3):
        bounds = ("least", "most")
        for some, same in ((figures, alone), (difference, expected)):
            mine, theirs = some[f"pass_at_{k}"], same[f"pass_at_{k}"]
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert all(mine[key] == pytest.approx(theirs[key]) for key in mine if key not in bounds)
    assert figures["mean_steps_solved"] == alone["mean_steps_solved"]
    assert difference["permutation_p"] == expected["permutation_p"]
    assert hit.any() <= (site in figures["by_site"] and figures["by_site"][site]["pass_at_1"] is None)


@given(RUNS, RUNS, st.data())
def test_bounds_hold_every_completion(fates, other_fates, data):
    count = min(len(fates), len(other_fates))
    first, second = made(fates[:count]), made(other_fates[:count])
    completed = [one.successes | (~one.has_result & hits(data, one)) for one in (first, second)]
    for k in (1, 2, 3):
        mine, theirs = (pass_at_k(one, k).mean() for one in completed)
        if (rate := pass_rate(first.successes, first.has_result, k)) is not None:
            assert rate.least - 1e-9 <= mine <= rate.most + 1e-9
        args = (first.successes, second.successes, first.has_result, second.has_result)
        if (difference := pass_difference(*args, k)) is not None:
            assert difference.least - 1e-9 <= mine - theirs <= difference.most + 1e-9
    rate = pass_rate(first.successes, first.has_result, 1)
    assert rate is None or rate.least - 1e-9 <= rate.mean <= rate.most + 1e-9


@given(RUNS, st.integers(1, 3))
def test_pass_at_k_is_the_mean_over_tasks_with_k_results_of_their_subsets_of_k(fates, k):
    shares = []
    for row in fates:
        known = [fate == "solved" for fate in row if fate in ("solved", "failed")]
        if len(known) >= k:
            shares.append(np.mean([any(some) for some in itertools.combinations(known, k)]))
    rate = score(made(fates))[f"pass_at_{k}"]
    assert (rate is None) == (not shares)
    if rate is not None:
        assert (rate["mean"], rate["tasks"]) == (pytest.approx(np.mean(shares)), len(shares))


def test_complete_runs_have_no_width_of_bounds_and_no_missing():
    report = score(made([["solved", "failed", "solved"], ["failed"] * 3]))
    assert report["missing"] == 0
    for k in (1, 2, 3):
        rate = report[f"pass_at_{k}"]
        assert rate["least"] == rate["most"] == pytest.approx(rate["mean"])


@pytest.mark.parametrize(
    ("lost", "other_lost", "uneven"),
    [(0, 0, False), (5, 0, False), (6, 0, True), (20, 20, False), (20, 6, True)],
)
def test_uneven_missing_runs_are_found_by_a_sign_test_over_tasks(lost, other_lost, uneven):
    whole = made([["solved", "failed", "failed"]] * 40)
    first = without(whole, np.arange(40)[:, None] < [lost] * 3)
    second = without(whole, np.arange(39, -1, -1)[:, None] < [other_lost] * 3)
    difference = compare(first, second)
    assert (difference["missing"], difference["uneven"]) == ([3 * lost, 3 * other_lost], uneven)
