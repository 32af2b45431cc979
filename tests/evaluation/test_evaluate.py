"""The whole stage in Chromium, with the scripted teacher in the policy's place."""

import json

import pytest

from collection.evaluation.results import load_results
from configs.evaluate import get_config
from experiments import evaluate
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.shards import read_dataset


def scripted():
    config = get_config("smoke")
    config.update({"label": "teacher", "pages": ("click-button",), "seeds": 2})
    config.actor.kind = "scripted"
    return config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    evaluate.main(scripted(), folder)
    return folder


def test_every_task_is_played_three_times_and_counted_as_it_was_played(workdir):
    results = load_results(workdir / "results.json")
    assert [task.task_id for task in results.tasks] == [
        f"miniwob/click-button/{1_000_000 + n}" for n in (0, 1)
    ]
    played = {one.trajectory_id: one for one in read_dataset(workdir, Trajectory)}
    assert len(played) == 6
    for task in results.tasks:
        runs = [played[name] for name in task.trajectory_ids]
        assert [run.attempt for run in runs] == [1, 2, 3]
        assert tuple(run.success for run in runs) == task.successes
        # Success takes both the agent's word and the page's.
        assert all(run.success == (run.outcome == "done" and (run.reward or 0) > 0) for run in runs)
    report = json.loads((workdir / "report.json").read_text())
    assert report["pass_at_1"]["mean"] == pytest.approx(results.successes.mean())
    assert report["seconds"] > 0


def test_an_interrupted_evaluation_plays_only_what_is_missing(workdir):
    before = [path.read_bytes() for path in sorted((workdir / "journal").iterdir())]
    report = (workdir / "report.json").read_bytes()
    for name in ("report.json", "results.json", "manifest.json"):
        (workdir / name).unlink()
    evaluate.main(scripted(), workdir)
    after = [path.read_bytes() for path in sorted((workdir / "journal").iterdir())]
    assert [entry for entry in after if entry] == [entry for entry in before if entry]
    again = json.loads((workdir / "report.json").read_text())
    assert {**again, "seconds": 0} == {**json.loads(report), "seconds": 0}
