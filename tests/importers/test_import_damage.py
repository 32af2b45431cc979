"""From any file content, an import gives a complete record or names the run that it skipped."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from collection.importers import FORMATS, ImportReport, import_runs
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
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


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_is_survived(tmp_path, kind):
    root = tmp_path / "runs"
    if kind == "browser_use":
        browser_use_run(root / "a", [history_item(1), history_item(4)])
    elif kind == "webvoyager":
        webvoyager_run(root / "taskA--1", *webvoyager_messages("Click [3]", "ANSWER; 1"), calls=2, shots=(1,))
    else:
        mind2web_v2(root / "a")
    (path,) = root.rglob("*.json")
    whole, rng = json.loads(path.read_text()), random.Random(0)
    read = skipped = 0
    for _ in range(ROUNDS):
        path.write_text(json.dumps(damaged(whole, rng)))
        report = ImportReport()
        for run in import_runs(FORMATS[kind], root, ImageStore(tmp_path / "out"), {}, "x", report):
            assert Trajectory.model_validate_json(run.model_dump_json()) == run
            read += 1
        for entry in report.skipped:
            assert "\n" not in entry["reason"]
            skipped += 1
    assert read + skipped == ROUNDS and read and skipped
