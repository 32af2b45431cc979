"""From any file content, an import gives a complete record or names the run that it skipped."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collection.importers import FORMATS, ImportReport, import_runs
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.importers.agent_runs import (
    FARA_CALLS,
    GYM_ACTIONS,
    MOLMO_ACTIONS,
    POINT_CALLS,
    RL_CALLS,
    fara_point,
    fara_run,
    gym_episode,
    molmo_run,
    rl_result,
    rl_sample,
)
from tests.importers.foreign_runs import (
    browser_use_run,
    history_item,
    mind2web_v2,
    webvoyager_messages,
    webvoyager_run,
)

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
ROUNDS = 60


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


def small_run(kind: str, root: Path) -> Path:
    """Writes a run of a kind; returns its main file."""
    if kind == "browser_use":
        return browser_use_run(root / "a", [history_item(1), history_item(4)])
    if kind == "webvoyager":
        webvoyager_run(root / "taskA--1", *webvoyager_messages("Click [3]", "ANSWER; 1"), calls=2, shots=(1,))
        return root / "taskA--1/interact_messages.json"
    if kind == "online_mind2web":
        return mind2web_v2(root / "a") / "result.json"
    if kind == "fara":
        return fara_point(root / "a", POINT_CALLS[:2]) / "data_point.json"
    if kind == "molmoweb":
        return molmo_run(root / "a", MOLMO_ACTIONS[-2:]) / "trajectory.json"
    if kind == "webgym":
        return gym_episode(root, GYM_ACTIONS[:2])
    return rl_sample(root, RL_CALLS[-2:])


def survives(kind: str, root: Path, path: Path, rounds: int) -> tuple[int, int]:
    """Imports damaged copies of one file; returns how many runs were read and skipped."""
    whole, rng = json.loads(path.read_text()), random.Random(0)
    read = skipped = 0
    for _ in range(rounds):
        path.write_text(json.dumps(damaged(whole, rng)))
        report = ImportReport()
        for run in import_runs(FORMATS[kind], root, ImageStore(root.parent / "out"), {}, "x", report):
            assert Trajectory.model_validate_json(run.model_dump_json()) == run
            read += 1
        for entry in report.skipped:
            assert "\n" not in entry["reason"]
            skipped += 1
    assert read + skipped == rounds
    return read, skipped


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_is_survived(tmp_path, kind):
    path = small_run(kind, tmp_path / "runs")
    assert all(survives(kind, tmp_path / "runs", path, ROUNDS))


def test_damage_of_files_with_verdicts_is_survived(tmp_path):
    """They cost a verdict, not the run."""
    rl_sample(tmp_path / "rl", RL_CALLS[-1:])
    rl_result(tmp_path / "rl")
    (result,) = (tmp_path / "rl").glob("results_task_*.jsonl")
    assert survives("openwebrl", tmp_path / "rl", result, ROUNDS) == (ROUNDS, 0)


@pytest.mark.parametrize("structured", [True, False])
def test_damage_of_a_log_is_survived(tmp_path, structured):
    folder = fara_run(tmp_path / "runs/a", FARA_CALLS[:2], structured)
    log, rng = folder / "web_surfer.log", random.Random(0)
    lines = log.read_text().splitlines()
    for _ in range(ROUNDS):
        place = rng.randrange(len(lines))
        changed = json.dumps(damaged(json.loads(lines[place]), rng))
        log.write_text("\n".join([*lines[:place], changed, *lines[place + 1 :]]))
        report = ImportReport()
        found = list(
            import_runs(FORMATS["fara"], tmp_path / "runs", ImageStore(tmp_path / "out"), {}, "x", report)
        )
        assert len(found) + len(report.skipped) == 1
        assert all(Trajectory.model_validate_json(run.model_dump_json()) == run for run in found)
