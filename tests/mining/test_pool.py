"""Pools on disk: every run is found once, and a broken data set is reported in one line."""

import json
import re
from pathlib import Path

import pytest

from collection.mining.pool import RunLocation, find_sources, open_pool, read_runs
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.schema import SCHEMA_VERSION, SftSample, Trajectory
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


def damage(error: pytest.ExceptionInfo[UserError]) -> str:
    """The message of an error, which is one line."""
    message = str(error.value)
    assert "\n" not in message
    return message


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


def test_a_changed_shard_is_one_line(tmp_path):
    folder = put_pool(tmp_path / "a", RUNS, shard_size=2)
    (path,) = folder.glob("data-00001-*.array_record")
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(UserError, match="make this data set again") as error:
        mine_pools_at(tmp_path / "mine", folder)
    assert damage(error).startswith(str(path))
    assert not outcome(tmp_path / "mine")


@pytest.mark.parametrize(("change", "words"), [("cut", "not a whole shard"), ("gone", "shard missing")])
def test_a_short_or_missing_shard_is_one_line(tmp_path, change, words):
    folder = put_pool(tmp_path / "a", RUNS, shard_size=2)
    (path,) = folder.glob("data-00001-*.array_record")
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        path.unlink()
    with pytest.raises(UserError, match=words) as error:
        mine_pools_at(tmp_path / "mine", folder)
    assert damage(error).startswith(str(path))


@pytest.mark.parametrize("part", ["whole", "one record"])
def test_a_shard_that_changes_while_it_is_mined_is_one_line(tmp_path, part):
    folder = put_pool(tmp_path / "a", RUNS)
    pool = open_pool(find_sources([folder]))
    path = pool.sources[0].path
    data = path.read_bytes()
    # The records come first, one after the other; their table is at the end.
    end = len(data) if part == "whole" else pool.sources[0].shard.bytes // 4
    path.write_bytes(bytes(byte ^ 0x55 for byte in data[:end]) + data[end:])
    with pytest.raises(UserError, match="make this data set again") as error:
        list(read_runs(pool.sources, [RunLocation(0, 0)]))
    damage(error)


def test_a_folder_of_another_kind_is_one_line(tmp_path):
    sample = SftSample(sample_id="1", task_id="t", site="s", kind="action", messages=(), response="r")
    write_dataset(tmp_path / "sft", [sample], "sft_samples")
    with pytest.raises(UserError, match="sft: contains sft_samples, not trajectories: give another") as error:
        mine_pools_at(tmp_path / "mine", put_pool(tmp_path / "a", RUNS), tmp_path / "sft")
    damage(error)


@pytest.mark.parametrize("what", ["no data set", "no folder", "a file", "newer"])
def test_a_folder_without_a_finished_data_set_is_one_line(tmp_path, what):
    folder = put_pool(tmp_path / "a", RUNS)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    if what == "newer":
        path.write_text(json.dumps(manifest | {"schema_version": SCHEMA_VERSION + 1}))
    elif what == "no data set":
        path.unlink()
    else:
        folder = tmp_path / ("gone" if what == "no folder" else "a/manifest.json")
    words = {"newer": "is newer than"}
    with pytest.raises(UserError, match=words.get(what, "no finished data set here")) as error:
        mine_pools_at(tmp_path / "mine", folder)
    assert damage(error).startswith(str(folder))


@pytest.mark.parametrize("entry", [b"{}", b"[]", b"7", b'{"task": "'])
def test_an_invalid_record_is_reported_with_shard_and_number(tmp_path, entry):
    good = RUNS[0].model_dump_json().encode()
    folder = put_entries(tmp_path / "a", [good, good, entry, good], SCHEMA_VERSION)
    where = re.escape(str(folder / "data-00000.array_record"))
    with pytest.raises(UserError, match=f"{where}: record 2 does not fit schema version 5: make"):
        mine_pools_at(tmp_path / "mine", folder)


@pytest.mark.parametrize("field", ["steps", "messages"])
def test_an_inconsistent_record_is_reported_with_shard_and_number(tmp_path, field):
    broken = json.loads(RUNS[0].model_dump_json())
    if field == "steps":
        broken["steps"][1]["observation"] = {"url": 7}
    else:
        broken["steps"][1]["messages"] = [{"role": "robot"}]
    entries = [RUNS[2].model_dump_json().encode(), json.dumps(broken).encode()]
    folder = put_entries(tmp_path / "a", entries, SCHEMA_VERSION)
    with pytest.raises(
        UserError, match=f"record 1 does not fit schema version {SCHEMA_VERSION}: make"
    ) as error:
        mine_pools_at(tmp_path / "mine", folder)
    damage(error)
