"""Pools on disk: every run is found once, and a broken data set is reported in one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collection.mining.pool import RunLocation, find_sources, open_pool, read_runs
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import SCHEMA_VERSION, Trajectory
from tests.mining.disk_pools import mine_pools_at, outcome, put_entries, put_pool
from tests.mining.login_runs import PREMATURE, WRONG_TEXT, success
from tests.mining.runs import failure_of

RUNS = [success(), success(attempt=2), PREMATURE, WRONG_TEXT.model_copy(update={"trajectory_id": "wrong"})]
OTHER = [success(task_id="miniwob/login-user/2"), success(task_id="miniwob/login-user/3", actor="sft")]


def ids(*folders: Path) -> dict[str, list[str]]:
    """Trajectory ids by task, read at the locations of the index."""
    pool = open_pool(find_sources(folders))
    found = {
        task_id: [one.record.trajectory_id for one in read_runs(pool.sources, locations)]
        for task_id, locations in pool.tasks.items()
    }
    assert pool.runs == sum(map(len, found.values()))
    return found


def expected(runs: list[Trajectory]) -> dict[str, list[str]]:
    tasks = sorted({run.task.task_id for run in runs})
    return {task: sorted({run.trajectory_id for run in runs if run.task.task_id == task}) for task in tasks}


def test_runs_of_a_task_spread_over_data_sets_and_shards(tmp_path):
    mixed = [RUNS[0], OTHER[0], RUNS[2], OTHER[1], RUNS[1], RUNS[3]]
    first = put_pool(tmp_path / "a", mixed[:4], shard_size=1)
    second = put_pool(tmp_path / "b", mixed[4:], shard_size=2)
    assert ids(first, second) == ids(second, first) == expected(mixed)
    pool = open_pool(find_sources([first, second]))
    assert len({place.source for place in pool.tasks["miniwob/login-user/1"]}) == 3


def test_records_are_read_at_their_places_in_any_order(tmp_path):
    runs = [failure_of(1, attempt=attempt) for attempt in range(1, 71)]
    (source,) = find_sources([put_pool(tmp_path / "a", runs)])
    order = [69, 0, 33, 32, 31, 68, 1]
    found = read_runs([source], [RunLocation(0, record) for record in order])
    assert [one.record.trajectory_id for one in found] == [runs[record].trajectory_id for record in order]


def test_a_run_in_several_data_sets_counts_once(tmp_path):
    folders = [put_pool(tmp_path / name, RUNS, size) for name, size in (("a", 4), ("b", 1), ("c", 3))]
    assert ids(*folders, folders[0]) == expected(RUNS)
    report = mine_pools_at(tmp_path / "mine", *folders)
    alone = mine_pools_at(tmp_path / "alone", folders[0])
    assert (report["tasks"], report["prompts"]) == (alone["tasks"], alone["prompts"]) == (1, 1)
    assert outcome(tmp_path / "mine") == outcome(tmp_path / "alone")


def test_equal_ids_of_different_tasks_are_different_runs(tmp_path):
    twins = [run.model_copy(update={"trajectory_id": "same"}) for run in (RUNS[0], *OTHER)]
    assert ids(put_pool(tmp_path / "a", twins)) == {run.task.task_id: ["same"] for run in twins}


def of_manifest(**changes: Any) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps(json.loads(data) | changes).encode()


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("data-00001-*", lambda data: data[:200] + bytes(60) + data[260:], "make this data set again"),
        ("data-00001-*", lambda data: data[:-100], "not a whole shard"),
        ("data-00001-*", None, "shard missing"),
        ("manifest.json", None, "no finished data set here"),
        ("manifest.json", of_manifest(schema_version=SCHEMA_VERSION + 1), "is newer than"),
        ("manifest.json", of_manifest(kind="sft_samples"), "contains sft_samples, not trajectories: give"),
    ],
)
def test_a_damaged_or_other_data_set_is_one_line(tmp_path, file, change, words):
    whole, folder = put_pool(tmp_path / "whole", RUNS), put_pool(tmp_path / "a", RUNS, shard_size=2)
    (path,) = folder.glob(file)
    if change:
        path.write_bytes(change(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(UserError, match=words) as error:
        mine_pools_at(tmp_path / "mine", whole, folder)
    where = folder if file == "manifest.json" else path
    assert str(error.value).startswith(str(where)) and "\n" not in str(error.value)
    assert not outcome(tmp_path / "mine")


@pytest.mark.parametrize("part", ["whole", "one record"])
def test_a_shard_that_changes_while_it_is_mined_is_one_line(tmp_path, part):
    folder = put_pool(tmp_path / "a", RUNS)
    pool = open_pool(find_sources([folder]))
    path = pool.sources[0].path
    data = path.read_bytes()
    # The records come first, one after the other; their table is at the end.
    end = len(data) if part == "whole" else pool.sources[0].shard.bytes // 4
    path.write_bytes(bytes(byte ^ 0x55 for byte in data[:end]) + data[end:])
    with pytest.raises(UserError, match="make this data set again"):
        list(read_runs(pool.sources, [RunLocation(0, 0)]))


RECORD = json.loads(RUNS[0].model_dump_json())


@pytest.mark.parametrize(
    "record",
    [
        b"{}",
        b"7",
        b'{"task": "',
        {"observation": {"url": 7}},
        {"messages": [{"role": "robot"}]},
    ],
)
def test_a_record_that_does_not_fit_is_reported_with_shard_and_number(tmp_path, record):
    if isinstance(record, dict):
        steps = [step | record for step in RECORD["steps"]]
        record = json.dumps(RECORD | {"steps": steps}).encode()
    folder = put_entries(tmp_path / "a", [RUNS[2].model_dump_json().encode(), record], SCHEMA_VERSION)
    where = re.escape(str(folder / "data-00000.array_record"))
    words = f"^{where}: record 1 does not fit schema version {SCHEMA_VERSION}: make"
    with pytest.raises(UserError, match=words) as error:
        mine_pools_at(tmp_path / "mine", folder)
    assert "\n" not in str(error.value)
