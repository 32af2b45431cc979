import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from collection.evaluation.results import (
    MIN_GROUP_TASKS,
    RESULTS,
    Results,
    compare,
    gather_results,
    load_results,
    score,
    to_json,
)
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage, ExtractionCall, JudgeFingerprint, Step, Trajectory
from tests import trajectories
from tests.evaluation.made import REWARD, results


def trajectory(task: str, attempt: int, success: bool = True, **settings: Any) -> Trajectory:
    fields = {"outcome": "done" if success else "max_steps", "reward": None} | settings
    steps = fields.pop("steps", ())
    made = trajectories.trajectory(
        *steps, task_id=task, actor="sft", attempt=attempt, success=success, **fields
    )
    environment = "miniwob" if task.startswith("miniwob") else "web"
    return made.model_copy(update={"task": made.task.model_copy(update={"environment": environment})})


def step(number: int, usage: CallUsage, *readings: CallUsage) -> Step:
    calls = tuple(ExtractionCall(messages=(), response="r", usage=one) for one in readings)
    return trajectories.step(number).model_copy(update={"usage": usage, "extractions": calls})


def with_steps(label: str, successes: list[list[int]], steps: list[list[int]]) -> Results:
    return results(label, successes, lambda task, run: {"steps": steps[task][run]})


BASE = with_steps(
    "base", [[0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]], [[9, 9, 6], [9, 9, 9], [4, 4, 4], [9, 9, 9]]
)
SFT = with_steps(
    "sft", [[1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]], [[3, 3, 3], [9, 5, 9], [4, 4, 4], [9, 9, 9]]
)


def test_runs_are_gathered_in_order_of_attempt():
    runs = [trajectory("miniwob/a/1", attempt, attempt == 2) for attempt in (3, 1, 2)]
    gathered = gather_results("sft", "m", 3, runs)
    assert gathered.by_task("success") == {"miniwob/a/1": (False, True, False)}
    assert gathered.by_task("trajectory_id")["miniwob/a/1"] == tuple(
        f"miniwob/a/1#sft-{n}" for n in (1, 2, 3)
    )


@pytest.mark.parametrize(("attempts", "reason"), [((1, 2), r"not 1\.\.3"), ((1, 2, 2), "twice")])
def test_missing_or_repeated_runs_are_refused(attempts, reason):
    with pytest.raises(UserError, match=reason):
        gather_results("sft", "m", 3, [trajectory("miniwob/a/1", attempt) for attempt in attempts])


def test_scores_are_the_micro_average_over_tasks():
    report = score(SFT)
    assert report["pass_at_1"]["mean"] == pytest.approx(7 / 12)
    assert report["pass_at_3"]["mean"] == pytest.approx(3 / 4)
    assert report["pass_at_1"]["low"] < report["pass_at_1"]["mean"] < report["pass_at_1"]["high"]
    assert report["mean_steps_solved"]["mean"] == pytest.approx((3 * 3 + 5 + 3 * 4) / 7)
    assert report["by_site"]["b"]["pass_at_1"]["mean"] == pytest.approx(1 / 6)
    assert report["outcomes"] == {"done": 7, "failures": 5}


def test_a_policy_that_solves_nothing_has_no_mean_steps():
    assert score(results("base", [[0, 0, 0]]))["mean_steps_solved"] is None


def test_differences_are_paired_on_shared_tasks_in_any_order():
    fewer = SFT.select(SFT.tasks[:0:-1])
    difference = compare(fewer, BASE)
    assert difference["tasks"] == 3
    assert difference["pass_at_1"]["mean"] == pytest.approx(1 / 9)
    whole = compare(SFT, BASE)
    assert whole["pass_at_1"]["mean"] == pytest.approx(3 / 12)
    assert whole["step_reduction"]["mean"] == pytest.approx(1 - 7 / 10)
    assert whole["mcnemar_p"] == pytest.approx(1.0)
    assert whole["permutation_p"] == pytest.approx(1 / 2)
    assert (whole["only_first"], whole["only_second"]) == (1, 0)
    assert (difference["first_tasks"], difference["second_tasks"]) == (3, 4)


def test_nothing_shared_is_refused():
    one, other = (SFT.select(tasks) for tasks in (SFT.tasks[:2], SFT.tasks[2:]))
    with pytest.raises(UserError, match="no task in common"):
        compare(one, other)


@pytest.mark.parametrize(
    ("judges", "said"),
    [
        (((JudgeFingerprint(method="own_outcome"), 1),), "method reward and own_outcome"),
        ((), "no judge is recorded for one of them"),
    ],
    ids=["another", "unknown"],
)
def test_results_of_different_judges_are_compared_only_on_request(judges, said):
    other = dataclasses.replace(BASE, judges=judges)
    with pytest.raises(UserError, match=rf"sft and base.*{said}.*config\.across_judges=True") as raised:
        compare(SFT, other)
    assert "\n" not in str(raised.value)
    asked = compare(SFT, other, across_judges=True)
    assert asked.pop("across_judges") == said
    same = compare(SFT, BASE)
    assert same.pop("across_judges") == ""
    assert asked == same


def test_mcnemar_looks_at_as_many_runs_of_both():
    once = results("once", [[False]] * len(BASE.tasks))
    difference = compare(BASE, once)
    # BASE solved its first task in the third run only.
    assert (difference["only_first"], difference["only_second"]) == (1, 0)
    assert "pass_at_2" not in difference


def many(label: str, solved: dict[str, float]) -> Results:
    """Sites of 20 tasks, of which the given share is solved; and one of too few tasks."""
    wins, sites = [], []
    for site, share in (*solved.items(), ("few", 1.0)):
        count = 20 if site != "few" else MIN_GROUP_TASKS - 1
        wins += [[int(number < share * count)] * 3 for number in range(count)]
        sites += [site] * count
    return results(label, wins, lambda task, run: {"site": sites[task]})


def test_groups_are_compared_where_they_are_large_enough_and_corrected():
    difference = compare(
        many("sft", {"a": 0.8, "b": 0.6, "c": 0.5}), many("base", {"a": 0.2, "b": 0.5, "c": 0.5})
    )
    sites = difference["by_site"]
    assert sites.keys() == {"a", "b", "c"}
    assert sites["a"]["tasks"] == 20
    assert sites["a"]["pass_at_1"]["mean"] == pytest.approx(0.6)
    assert sites["a"]["mcnemar_p"] == sites["a"]["permutation_p"] == pytest.approx(2 / 2**12)
    assert sites["a"]["holm_p"] == pytest.approx(3 * 2 / 2**12)
    assert [sites[name]["holm_p"] for name in "bc"] == [1.0, 1.0]
    assert difference["by_kind"] == difference["by_level"] == {}


def test_results_survive_the_disk(tmp_path):
    SFT.write(tmp_path)
    loaded = load_results(tmp_path)
    assert loaded.table.equals(SFT.table)
    about = ("label", "model", "benchmark", "runs", "judges")
    assert [getattr(loaded, name) for name in about] == [getattr(SFT, name) for name in about]
    head, *rows = map(json.loads, (tmp_path / RESULTS).read_text().splitlines())
    assert head["judges"] == [{"id": REWARD.id, "verdicts": 1, **REWARD.model_dump()}]
    assert rows[1] == {
        "task_id": "miniwob/0",
        "site": "a",
        "kind": "",
        "level": "",
        "attempt": 2,
        "success": True,
        "judged": True,
        "outcome": "done",
        "cause": "",
        "steps": 3,
        "prompt_tokens": 0,
        "response_tokens": 0,
        "cost": 0.0,
        "judge_cost": 0.0,
        "judge": "",
        "trajectory_id": "miniwob/0#sft-2",
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines.pop(),
        lambda lines: lines.append(lines[-1]),
        lambda lines: lines.pop(0),
        lambda lines: lines.clear(),
        lambda lines: lines.append("{"),
        lambda lines: lines.append(lines.pop().replace('"judged": true', '"judged": false')),
    ],
    ids=["a run less", "a run twice", "no head", "empty", "torn", "success unjudged"],
)
def test_half_a_results_file_is_refused(tmp_path, change):
    SFT.select(SFT.tasks[:3]).write(tmp_path)
    lines = (tmp_path / RESULTS).read_text().splitlines()
    change(lines)
    (tmp_path / RESULTS).write_text("\n".join(lines))
    with pytest.raises(UserError, match="scores the recorded episodes without playing them") as raised:
        load_results(tmp_path)
    assert "\n" not in str(raised.value)


def test_results_of_no_tasks_have_no_figures(tmp_path):
    Results.of("none", "m", "miniwob", 3, (), []).write(tmp_path)
    report = score(load_results(tmp_path))
    assert (report["tasks"], report["pass_at_1"], report["missing"]) == (0, None, 0)


LIVE = {"declared_success": True, "outcome": "done"}


def live_runs() -> list[Trajectory]:
    """Three tasks of two runs: all there is to how a run on a live page can end."""
    return [
        trajectory("wv/a/1", 1, True, **LIVE, judge="outcome"),
        trajectory("wv/a/1", 2, False, **LIVE, judge="", judge_text="UNKNOWN"),
        trajectory("wv/a/2", 1, False, **LIVE, judge="outcome"),
        trajectory("wv/a/2", 2, False, outcome="done", declared_success=False),
        trajectory("wv/b/1", 1, False, outcome="max_steps"),
        trajectory("wv/b/1", 2, False, outcome="captcha"),
    ]


def test_runs_without_a_result_are_in_no_rate_and_what_the_policy_did_not_finish_is_a_failure():
    report = score(gather_results("sft", "m", 2, live_runs(), "webvoyager", {"wv/a/1": "easy"}))
    assert report["benchmark"] == "webvoyager"
    # Solved, given up and out of steps: each task has one run at least.
    assert report["pass_at_1"]["mean"] == pytest.approx(1 / 3)
    assert (report["pass_at_1"]["least"], report["pass_at_1"]["most"]) == pytest.approx((1 / 6, 3 / 6))
    # Only one task has two runs with a result.
    assert (report["pass_at_2"]["mean"], report["pass_at_2"]["tasks"]) == (0.0, 1)
    assert (report["missing"], report["never_done"]) == (2, 1)
    assert (report["by_site"]["a"]["missing"], report["by_site"]["b"]["missing"]) == (1, 1)
    assert report["by_site"]["b"]["never_done"] == 1
    assert report["by_site"]["b"]["pass_at_2"] is None
    assert report["by_level"].keys() == {"easy"}
    assert report["by_level"]["easy"]["pass_at_1"]["mean"] == 1.0
    assert report["by_kind"]["Other"]["tasks"] == 3


def test_what_happened_to_runs_is_counted_with_its_causes():
    runs = live_runs()
    runs[5] = trajectory("wv/b/1", 2, False, outcome="captcha", detail="the last page:\n a wall")
    report = score(gather_results("sft", "m", 2, runs))
    assert report["fates"] == {
        "solved": 1,
        "failed": 3,
        "unjudged": 1,
        "blocked": 1,
        "unreachable": 0,
        "crashed": 0,
    }
    assert report["missing"] == 2
    assert report["causes"] == {"unjudged": {"UNKNOWN": 1}, "blocked": {"the last page: a wall": 1}}


def test_runs_with_a_page_reward_are_judged():
    runs = [
        trajectory("miniwob/a/1", 1, True, **LIVE, reward=1.0, judge="reward"),
        trajectory("miniwob/a/1", 2, False, **LIVE, reward=0.0),
    ]
    assert gather_results("sft", "m", 2, runs).table["judged"].tolist() == [True, True]


def test_only_unjudged_runs_give_no_rate_and_no_difference():
    gathered = gather_results("sft", "m", 1, [trajectory("wv/a/1", 1, False, **LIVE, judge_text="[timeout]")])
    report = score(gathered)
    assert report["pass_at_1"] is None and report["by_site"]["a"]["pass_at_1"] is None
    assert report["missing"] == 1
    difference = compare(gathered, gathered, across_judges=True)
    assert difference["pass_at_1"] is None and difference["permutation_p"] == 1.0


def test_runs_without_a_result_are_in_no_cost():
    usage = CallUsage(prompt_tokens=1000, response_tokens=10, cost=0.02)
    runs = [
        trajectory("wv/a/1", 1, steps=(step(1, usage),)),
        trajectory("wv/a/1", 2, False, outcome="unreachable"),
        trajectory("wv/a/2", 1, False, outcome="captcha", steps=(step(1, usage), step(2, usage))),
        trajectory("wv/a/2", 2, False, outcome="crashed"),
    ]
    cost = score(gather_results("sft", "m", 2, runs))["cost"]
    assert (cost["usd"]["mean"], cost["prompt_tokens"]["mean"], cost["usd"]["tasks"]) == (0.02, 1000, 1)


def test_cost_is_that_of_acting_and_reading_alone():
    usage = CallUsage(prompt_tokens=1000, response_tokens=10, cost=0.02)
    reading = CallUsage(prompt_tokens=500, response_tokens=50, cost=0.01)
    runs = [
        trajectory("wv/a/1", 1, steps=(step(1, usage, reading), step(2, usage))),
        trajectory("wv/a/1", 2, steps=(step(1, usage),), judge_usage=CallUsage(cost=0.5)),
    ]
    gathered = gather_results("sft", "m", 2, runs)
    assert gathered.values("prompt_tokens").tolist() == [[2500, 1000]]
    assert gathered.values("response_tokens").tolist() == [[70, 10]]
    cost = score(gathered)["cost"]
    assert cost["usd"]["mean"] == pytest.approx(0.035)
    assert [cost[f"usd_at_{k}"] for k in (1, 2)] == pytest.approx([0.035, 0.07])
    assert cost["judge_usd"]["mean"] == pytest.approx(0.25)
    assert cost["prompt_tokens"]["mean"] == pytest.approx(1750)


def test_tokens_without_a_price_are_no_dollars_until_one_is_given():
    usage = CallUsage(prompt_tokens=1000, response_tokens=10)
    gathered = gather_results("sft", "m", 1, [trajectory("wv/a/1", 1, steps=(step(1, usage),))])
    assert score(gathered)["cost"]["usd"] is None
    assert score(gathered)["cost"]["usd_at_1"] is None
    assert score(gathered.priced(0.2, 1.0))["cost"]["usd_at_1"] == pytest.approx(0.2e-3 + 1e-5)


def test_nan_never_reaches_a_report():
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"x": float(np.nan)})
