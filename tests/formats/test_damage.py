"""From any file content, an import gives a complete record or names the run that it skipped."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from collection.formats import READERS, ImportReport, TaskInfo, import_runs, load_tasks
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.formats import agent_runs, foreign_runs
from tests.formats.imports import imported
from tests.formats.runs import atif_run

JUNK = (
    None,
    0,
    -1,
    1e308,
    "",
    True,
    [],
    {},
    [None],
    {"a": None},
    "\ud800",
    "../../etc",
    "\x00",
    3.7,
    [1, "a"],
)
ROUNDS = 40


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def damaged(value: Any, rng: random.Random) -> Any:
    value = copy.deepcopy(value)
    *way, last = rng.choice(list(places(value)))
    inner = value
    for key in way:
        inner = inner[key]
    if isinstance(inner, dict) and rng.random() < 0.25:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(rng.choice(JUNK))
    return value


# A small run of each kind in a folder; its main file.
SMALL = {
    "browser_use": lambda root: foreign_runs.browser_use_run(
        root / "a", [foreign_runs.history_item(1), foreign_runs.history_item(4)]
    ),
    "webvoyager": lambda root: (
        foreign_runs.webvoyager_run(
            root / "taskA--1",
            *foreign_runs.webvoyager_messages("Click [3]", "ANSWER; 1"),
            calls=2,
            shots=(1,),
        )
        / "interact_messages.json"
    ),
    "online_mind2web": lambda root: foreign_runs.mind2web_v2(root / "a") / "result.json",
    "fara": lambda root: agent_runs.fara_point(root / "a", agent_runs.POINT_CALLS[:2]) / "data_point.json",
    "molmoweb": lambda root: (
        agent_runs.molmo_run(root / "a", agent_runs.MOLMO_ACTIONS[-2:]) / "trajectory.json"
    ),
    "webgym": lambda root: agent_runs.gym_episode(root, agent_runs.GYM_ACTIONS[:2]),
    "openwebrl": lambda root: agent_runs.rl_sample(root, agent_runs.RL_CALLS[-2:]),
    "atif": atif_run,
}


@pytest.mark.parametrize("kind", READERS)
def test_damage_is_survived(tmp_path, kind):
    root = tmp_path / "runs"
    path = SMALL[kind](root)
    whole, rng = json.loads(path.read_text()), random.Random(0)
    read = 0
    for _ in range(ROUNDS):
        path.write_text(json.dumps(damaged(whole, rng)))
        report = ImportReport()
        runs = list(import_runs(READERS[kind], root, ImageStore(tmp_path / "out"), {}, "x", report))
        assert len(runs) + len(report.skipped) == 1
        assert all(Trajectory.model_validate_json(run.model_dump_json()) == run for run in runs)
        assert not any("\n" in entry["reason"] for entry in report.skipped)
        read += len(runs)
    assert read > ROUNDS / 2


@pytest.mark.parametrize("kind", READERS)
def test_a_broken_run_is_skipped_and_named(tmp_path, kind):
    path = SMALL[kind](tmp_path / "runs")
    path.write_text('{"half')
    runs, report = imported(kind, tmp_path / "runs")
    assert not runs and report["runs"] == 1
    assert report["skipped"][0]["reason"].startswith(f"{path.name} is not JSON")
    for content in ("[]", "{}", "3", '{"1": 2, "steps": 3}'):
        path.write_text(content)
        runs, report = imported(kind, tmp_path / "runs")
        assert len(runs) + len(report["skipped"]) == 1 and (not runs or kind == "molmoweb")


def test_a_run_of_fara_that_was_stopped_is_skipped(tmp_path):
    (agent_runs.fara_run(tmp_path / "runs/a") / "a_final_answer.json").unlink()
    _, report = imported("fara", tmp_path / "runs")
    assert report["skipped"] == [{"run": "a", "reason": "no *_final_answer.json: the run was stopped"}]


def test_task_files_of_the_benchmarks(tmp_path):
    voyager, mind2web = tmp_path / "a.jsonl", tmp_path / "b.json"
    voyager.write_text('{"web_name": "A", "id": "A--0", "ques": "Find x.", "web": "https://a.com/"}\n')
    rows = [{"task_id": "ff", "confirmed_task": "Find y.", "website": "https://b.com/", "success": False}]
    mind2web.write_text(json.dumps(rows))
    assert load_tasks(voyager) == {"A--0": TaskInfo("Find x.", "https://a.com/", None)}
    assert load_tasks(mind2web) == {"ff": TaskInfo("Find y.", "https://b.com/", False)}
    for content in ("{", '[{"ques": "x"}]', "[3]"):
        voyager.write_text(content)
        with pytest.raises(UserError, match=r"a\.jsonl: [^\n]*$"):
            load_tasks(voyager)
    with pytest.raises(UserError, match="cannot be read"):
        load_tasks(tmp_path / "none.json")
