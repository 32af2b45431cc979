"""Data sets that grow: whole at every moment for those who read them meanwhile, and in the end as ever."""

import json
import os
import time

import pytest

from collection.corpus.guidance import read_guidance
from experiments import records as tool
from rmsweb_jax.errors import UserError
from rmsweb_jax.export.lineage import describe
from rmsweb_jax.records import growing
from rmsweb_jax.records.dataset import load_manifest, read_dataset, read_manifest, strays, write_dataset
from rmsweb_jax.records.growing import KEPT_S, GrowingDataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Reflection, Trajectory
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.records.versions import keep_version, pinned_for_run
from tests.records.sets import png, trajectories

RUNS = trajectories(9)


def entries(runs):
    return [run.model_dump_json().encode() for run in runs]


def reflection(number):
    one = Reflection(task_id=f"t/{number}", attempt=1, guidance=f"look at {number}")
    return one.model_dump_json().encode()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "collect"
    for number in range(5):
        ImageStore(folder).put(png(number))
    return folder


def grown(folder, *parts):
    data = GrowingDataset(folder, "trajectories")
    for number, part in enumerate(parts):
        data.publish(entries(part), [reflection(number)], {"part": number, "reflections": number + 1})
    return data


def test_each_publish_is_read_and_the_end_is_that_of_a_set_written_at_once(folder, tmp_path, capsys):
    data = GrowingDataset(folder, "trajectories")
    with pytest.raises(UserError, match="no finished data set here"):
        load_manifest(folder)
    for last in (2, 5, 9):
        data.publish(entries(RUNS[data.size : last][::-1]), [reflection(last)], {"last": last})
        found = list(read_dataset(folder, Trajectory))
        assert sorted(found, key=lambda run: run.trajectory_id) == RUNS[:last]
        check = check_dataset(folder)
        assert (check.records, check.growing, check.problems) == (last, True, [])
        assert read_manifest(folder).provenance == {"last": last}
    assert read_guidance([folder]) == {f"t/{last}": [{1: f"look at {last}"}] for last in (2, 5, 9)}
    # Said once by a process.
    assert capsys.readouterr().err == f"{folder}: still growing, 2 records so far\n"
    tool.list_datasets(folder)
    tool.verify(folder)
    printed = capsys.readouterr().out
    assert "growing" in printed and "0 problems; still growing" in printed
    data.finish(entries(RUNS), {"seed": 1})
    whole = tmp_path / "whole"
    write_dataset(whole, RUNS, "trajectories", {"seed": 1})
    assert (folder / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()
    assert list(read_dataset(folder)) == RUNS


def test_a_reader_that_began_earlier_reads_on_after_joins_and_the_end(folder, monkeypatch):
    monkeypatch.setattr(growing, "_MOST_SMALL", 3)
    data = grown(folder, RUNS[:1], RUNS[1:2])
    before, reader = read_manifest(folder), read_dataset(folder)
    assert next(reader) == RUNS[0]
    data.publish(entries(RUNS[2:]), [], {})
    joined = read_manifest(folder)
    assert [shard.records for shard in joined.shards] == [9] and before.shards[0] not in joined.shards
    data.finish(entries(RUNS), {})
    assert list(reader) == RUNS[1:2]
    # What nothing names goes when its time is over.
    unnamed = strays(folder, read_manifest(folder))
    assert len(unnamed) == 4 + 2
    for path in unnamed[:3]:
        os.utime(path, (0, time.time() - KEPT_S - 1))
    GrowingDataset(folder, "trajectories").finish(entries(RUNS), {})
    assert not any(path.exists() for path in unnamed[:3]) and all(path.exists() for path in unnamed[3:])


def test_a_run_keeps_to_the_version_that_it_has_begun_with(folder, tmp_path):
    workdir = tmp_path / "sft"
    workdir.mkdir()
    data = grown(folder, RUNS[:4])
    kept = pinned_for_run(folder, workdir)
    assert kept.parent == folder / "versions" and kept == keep_version(folder)
    assert list((folder / "versions").iterdir()) == [kept]
    data.publish(entries(RUNS[4:]), [reflection(7)], {})
    data.finish(entries(RUNS), {})
    for path in strays(folder, read_manifest(folder)):
        path.unlink()
    assert pinned_for_run(folder, workdir) == kept and pinned_for_run(folder, tmp_path) == folder
    assert list(read_dataset(kept)) == RUNS[:4] and list(read_dataset(folder)) == RUNS
    assert read_guidance([kept]) == {"t/0": [{1: "look at 0"}]}
    assert ImageStore(kept).get(RUNS[0].steps[0].observation.screenshot) == png(0)
    assert check_dataset(kept).problems == []
    described = describe(kept)
    assert described is not None and described.name == f"collect@{kept.name}"
    # It is no data set below the folder for those who look there.
    tool.verify(folder.parent)
    (kept / "manifest.json").unlink()
    with pytest.raises(UserError, match="has begun with this version, and it is gone"):
        pinned_for_run(folder, workdir)


@pytest.mark.parametrize("finished", [False, True])
def test_a_later_writer_goes_on(folder, finished):
    data = grown(folder, RUNS[:4])
    if finished:
        data.finish(entries(RUNS[:4]), {})
    again = GrowingDataset(folder, "trajectories")
    assert list(again.records()) == entries(RUNS[:4]) and read_manifest(folder).growing
    assert len(list(again.reflections())) == (0 if finished else 1)
    again.publish(entries(RUNS[4:]), [], {})
    assert list(read_dataset(folder)) == RUNS
    again.finish(entries(RUNS), {})
    assert list(read_dataset(folder)) == RUNS


def test_a_publish_or_an_end_that_fails_leaves_what_was_there(folder):
    data = grown(folder, RUNS[:4])

    def broken():
        yield from entries(RUNS[4:6])
        raise OSError(28, "No space left on device")

    for write in (lambda: data.publish(broken(), [], {}), lambda: data.finish(broken(), {})):
        with pytest.raises(OSError, match="No space"):
            write()
        assert list(read_dataset(folder)) == RUNS[:4] and check_dataset(folder).problems == []
    data.publish(entries(RUNS[4:]), [], {})
    assert list(read_dataset(folder)) == RUNS


def test_damage_of_a_growing_set_is_one_line_each(folder):
    grown(folder, RUNS[:4])
    manifest = read_manifest(folder)
    for shard in manifest.all_shards:
        path = folder / shard.file
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        (problem,) = check_dataset(folder).problems
        assert problem.startswith(f"{path}: ")
        path.write_bytes(data)
    path = folder / "manifest.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"finished": False, "growing": False, "digest": ""})
    )
    with pytest.raises(UserError, match="no finished data set here"):
        load_manifest(folder)
