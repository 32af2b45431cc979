import json

import numpy as np
import pytest

from collection.evaluation import runs
from collection.evaluation.results import (
    Results,
    TaskResult,
    compare,
    gather_results,
    load_results,
    score,
    to_json,
)
from collection.rounds import Job
from configs.evaluate import get_config
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task, Trajectory


def trajectory(task: str, attempt: int, success: bool = True) -> Trajectory:
    return Trajectory(
        trajectory_id=f"{task}#sft-{attempt}",
        task=Task(task_id=task, website="", objective="", site=task.split("/")[1]),
        actor="sft",
        model="m",
        attempt=attempt,
        steps=(),
        outcome="done" if success else "max_steps",
        success=success,
    )


def results(label: str, successes: list[list[int]], steps: list[list[int]]) -> Results:
    tasks = tuple(
        TaskResult(
            task_id=f"miniwob/{'ab'[row % 2]}/{row}",
            site="ab"[row % 2],
            successes=tuple(map(bool, wins)),
            steps=tuple(counts),
            outcomes=tuple("done" if win else "failures" for win in wins),
            trajectory_ids=tuple(f"{row}-{run}" for run in range(len(wins))),
        )
        for row, (wins, counts) in enumerate(zip(successes, steps, strict=True))
    )
    return Results(label=label, model="m", runs=3, tasks=tasks)


BASE = results(
    "base", [[0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]], [[9, 9, 6], [9, 9, 9], [4, 4, 4], [9, 9, 9]]
)
SFT = results(
    "sft", [[1, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]], [[3, 3, 3], [9, 5, 9], [4, 4, 4], [9, 9, 9]]
)


def test_runs_are_gathered_in_order_of_attempt():
    trajectories = [trajectory("miniwob/a/1", attempt, attempt == 2) for attempt in (3, 1, 2)]
    gathered = gather_results("sft", "m", 3, trajectories)
    assert gathered.tasks[0].successes == (False, True, False)
    assert gathered.tasks[0].trajectory_ids == tuple(f"miniwob/a/1#sft-{n}" for n in (1, 2, 3))


@pytest.mark.parametrize(("attempts", "reason"), [((1, 2), r"instead of 1\.\.3"), ((1, 2, 2), "twice")])
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
    assert score(results("base", [[0, 0, 0]], [[1, 2, 3]]))["mean_steps_solved"] is None


def test_differences_are_paired_on_shared_tasks_in_any_order():
    fewer = SFT.model_copy(update={"tasks": SFT.tasks[:0:-1]})
    difference = compare(fewer, BASE)
    assert difference["tasks"] == 3
    assert difference["pass_at_1"]["mean"] == pytest.approx(1 / 9)
    whole = compare(SFT, BASE)
    assert whole["pass_at_1"]["mean"] == pytest.approx(3 / 12)
    assert whole["step_reduction"]["mean"] == pytest.approx(1 - 7 / 10)
    assert whole["mcnemar_p"] == pytest.approx(1.0)


def test_results_survive_the_disk(tmp_path):
    path = tmp_path / "results.json"
    path.write_bytes(to_json(SFT.model_dump(mode="json")))
    assert load_results(path) == SFT
    path.write_text(json.dumps({"label": "sft"}))
    with pytest.raises(UserError, match="evaluate again"):
        load_results(path)


def test_nan_never_reaches_a_report():
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"x": float(np.nan)})


def test_only_held_out_seeds_are_evaluated():
    tasks = runs.held_out_tasks(("a", "b"), 1_000_000, 2)
    assert [(task.site, task.seed) for task in tasks] == [
        (p, s) for s in (1_000_000, 1_000_001) for p in "ab"
    ]
    with pytest.raises(UserError, match="trained on"):
        runs.held_out_tasks(("a",), 999_999, 2)
    with pytest.raises(UserError, match="no tasks"):
        runs.held_out_tasks((), 1_000_000, 2)


def test_every_task_is_played_exactly_three_times():
    config = get_config("demo")
    job = Job(runs.held_out_tasks(("a",), config.first_seed, 1)[0], attempts=config.runs)
    assert [job.is_over(outcomes) for outcomes in ([], [True, True], [True, True, True])] == [
        False,
        False,
        True,
    ]
