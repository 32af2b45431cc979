"""Every report compares the training tasks of a policy with the benchmark."""

import json

import pytest

from collection.evaluation.benchmarks import held_out_tasks
from collection.evaluation.contaminated import contamination_report
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.schema import Task
from tests.evaluation.rows import VOYAGER, load_benchmark, real_settings, voyager_settings, write_lines
from tests.trajectories import trajectory

OWN = {"website": "https://shop.example.com/", "objective": "Put a brass lamp into the basket."}
ANSWERED = VOYAGER[0]["ques"]


def test_without_training_tasks_the_report_states_that_nothing_was_checked(tmp_path):
    report = contamination_report(load_benchmark(voyager_settings(tmp_path)), [])
    assert report["checked"] is False and "config.training is empty" in report["reason"]


def test_tests_are_counted_and_overlaps_named(tmp_path):
    # A task that is excluded from the evaluation must not have been trained on either.
    training = [
        OWN,
        OWN | {"objective": ANSWERED, "task_id": "copy"},
        OWN | {"objective": f"{VOYAGER[1]['ques']} Say what it costs.", "task_id": "longer"},
        OWN | {"objective": "Sell tea.", "task_id": "webvoyager/Words--0"},
    ]
    path = write_lines(tmp_path / "training.jsonl", training)
    report = contamination_report(load_benchmark(voyager_settings(tmp_path)), [path])
    assert report["checked"] and report["training_tasks"] == 4 and report["questions"] == 4
    assert report["by_test"] == {"exact": 1, "substring": 1, "same_id": 1} and report["overlapping"] == 3
    assert [(one["task_id"], one["question"]) for one in report["overlaps"]] == [
        ("copy", "webvoyager/Stays--0"),
        ("longer", "webvoyager/Stays--1"),
        ("webvoyager/Words--0", "webvoyager/Words--0"),
    ]
    json.dumps(report, allow_nan=False)


def test_data_sets_are_read_too_and_miniwob_tasks_differ_by_seed(tmp_path):
    tasks = held_out_tasks(("click-tab",), 1_000_000, 2)
    trained = [tasks[1], Task(task_id="miniwob/click-tab/7", website="http://miniwob.test/", objective="Tab")]
    runs = [
        trajectory(attempt=attempt).model_copy(
            update={"task": task, "trajectory_id": f"{task.task_id}-{attempt}"}
        )
        for task in trained
        for attempt in (1, 2)
    ]
    write_dataset(tmp_path / "data", runs, "trajectories")
    settings = {"benchmark": "miniwob", "pages": ("click-tab",), "first_seed": 1_000_000, "seeds": 2}
    report = contamination_report(load_benchmark(settings | {"task_ids": ()}), [tmp_path / "data"])
    assert report["training_tasks"] == 2 and report["by_test"] == {"same_id": 1}
    assert report["overlaps"][0]["task_id"] == "miniwob/click-tab/1000001"


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("none.jsonl", None, r"config\.training=\S+none\.jsonl: not there; give data set folders"),
        (
            "bad.jsonl",
            [OWN, {"objective": "x"}],
            r"bad\.jsonl: not tasks: line 2 \(website: Field required\)",
        ),
        ("empty", "folder", r"empty"),
    ],
)
def test_unreadable_files_prove_nothing(tmp_path, name, rows, message):
    benchmark = load_benchmark(voyager_settings(tmp_path))
    if rows == "folder":
        (tmp_path / name).mkdir()
    elif rows is not None:
        write_lines(tmp_path / name, rows)
    with pytest.raises(UserError, match=message):
        contamination_report(benchmark, [tmp_path / name])


@pytest.mark.parametrize("name", ["webvoyager", "online_mind2web", "webtailbench"])
def test_a_real_benchmark_repeats_itself_completely(name, tmp_path):
    benchmark = load_benchmark(real_settings(name))
    rows = [
        {"task_id": f"t{place}", "website": "https://elsewhere.example.net/", "objective": question.text}
        for place, question in enumerate(benchmark.questions)
    ]
    report = contamination_report(benchmark, [write_lines(tmp_path / "t.jsonl", rows)])
    assert report["by_test"] == {"exact": len(rows)}
