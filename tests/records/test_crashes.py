"""Writers that are stopped at each single disk operation, and what the next run makes of it."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import (
    load_manifest,
    read_dataset,
    read_manifest,
    write_dataset,
)
from rmsweb_jax.records.files import is_temporary, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import Trajectory
from tests.records.crash import Disk, Point, Stopped
from tests.records.sets import trajectories

RECORDS = trajectories(5)
OTHERS = [RECORDS[0], *(one.model_copy(update={"final_text": "again"}) for one in RECORDS[1:])]


def write(folder, records=RECORDS):
    return write_dataset(folder, iter(records), "trajectories", {"actor": "teacher"}, shard_size=2)


def read(folder):
    return list(read_dataset(folder, Trajectory))


def points(memory_path: Path, prepare, action) -> list[Point]:
    """Every place at which `action` can be stopped."""
    folder = memory_path / "whole"
    folder.mkdir()
    prepare(folder)
    disk = Disk(folder)
    with disk.watched():
        action(folder)
    assert disk.operations
    parted = sum(operation.parted for operation in disk.operations)
    return [
        *(Point(number, "before") for number in range(len(disk.operations))),
        *(Point(number, "middle") for number in range(parted)),
    ]


def stopped(memory_path: Path, prepare, action):
    """For each point, a folder in which `action` was stopped there."""
    for point in points(memory_path, prepare, action):
        folder = memory_path / "stopped"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare(folder)
        with Disk(folder, point).watched(), pytest.raises(Stopped):
            action(folder)
        yield folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_data_set_is_refused_until_it_is_whole_and_the_same_call_finishes_it(memory_path):
    whole = 0
    for folder in stopped(memory_path, lambda folder: None, write):
        try:
            assert read(folder) == RECORDS
            whole += 1
        except UserError as error:
            assert "no finished data set here" in str(error)
        write(folder)
        assert read(folder) == RECORDS
        assert names(folder) == names(memory_path / "whole")
    assert whole == 1  # Before the last fsync, of the folder.


def test_shards_in_the_manifest_are_not_written_again(memory_path):
    kept = set()
    for folder in stopped(memory_path, lambda folder: None, write):
        try:
            entered = len(read_manifest(folder).shards)
        except UserError:
            entered = 0
        disk = Disk(folder)
        with disk.watched():
            write(folder)
        assert sum(one.name == "shard.close" for one in disk.operations) == 3 - entered
        kept.add(entered)
    assert kept == {0, 1, 2, 3}


def test_other_records_of_the_same_origin_replace_the_old_ones_and_are_never_mixed_with_them(memory_path):
    for folder in stopped(memory_path, write, lambda folder: write(folder, OTHERS[:3])):
        try:
            assert read(folder) in (RECORDS, OTHERS[:3])
        except UserError as error:
            assert "no finished data set here" in str(error)
        write(folder, OTHERS[:3])
        assert read(folder) == OTHERS[:3]
        assert names(folder) == names(memory_path / "whole")


def test_a_small_file_is_old_or_new(memory_path):
    for folder in stopped(
        memory_path,
        lambda folder: write_atomic(folder / "state.json", b"old"),
        lambda folder: write_atomic(folder / "state.json", b"new"),
    ):
        assert (folder / "state.json").read_bytes() in (b"old", b"new")
        assert all(is_temporary(path) or path.name == "state.json" for path in folder.iterdir())


def test_a_screenshot_is_there_or_not(memory_path):
    for folder in stopped(memory_path, lambda folder: None, lambda folder: ImageStore(folder).put(b"png")):
        store = ImageStore(folder)
        sha256 = store.put(b"png")
        assert store.get(sha256) == b"png"


def test_a_journal_keeps_appended_records(memory_path):
    records = [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    confirmed = []

    def append(folder):
        with Journal(folder / "journal" / "000001.jsonl") as journal:
            for record in records[len(confirmed) :]:
                journal.append(record)
                confirmed.append(record)

    for folder in stopped(memory_path, lambda folder: confirmed.clear(), append):
        kept = read_journal(folder / "journal" / "000001.jsonl")
        # One more may be whole that was not confirmed yet.
        assert kept == records[: len(kept)] and len(kept) - len(confirmed) in (0, 1)
        confirmed[:] = kept
        append(folder)
        assert read_journal(folder / "journal" / "000001.jsonl") == records


def test_everything_is_on_disk_before_it_gets_its_name(memory_path):
    disk = Disk(memory_path)
    with disk.watched():
        write(memory_path)
        ImageStore(memory_path).put(b"png")
    renames = 0
    for number, operation in enumerate(disk.operations):
        if operation.name == "replace":
            before, after = disk.operations[number - 1], disk.operations[number + 1]
            assert (before.name, is_temporary(Path(before.path))) == ("fsync", True)
            assert (after.name, after.path) == ("fsync", str(Path(operation.path).parent))
            renames += 1
    assert renames == 3 + 4 + 1  # Shards, manifests and a screenshot.
    made = [number for number, one in enumerate(disk.operations) if one.name == "mkdir"]
    assert len(made) == 2
    for number in made:
        after = disk.operations[number + 1]
        assert (after.name, after.path) == ("fsync", str(Path(disk.operations[number].path).parent))


def test_a_manifest_grows_with_its_shards(memory_path):
    seen = []

    def watched():
        for number, record in enumerate(RECORDS):
            if number % 2 == 0 and number:
                seen.append(json.loads((memory_path / "manifest.json").read_text()))
            yield record

    write(memory_path, watched())
    assert [(one["finished"], one["records"]) for one in seen] == [(False, 2), (False, 4)]
    final = load_manifest(memory_path)
    assert final.finished and [shard.records for shard in final.shards] == [2, 2, 1]
    assert len({shard.content for shard in final.shards}) == 3
    for earlier, later in itertools.pairwise([*seen, json.loads(final.model_dump_json())]):
        assert later["shards"][: len(earlier["shards"])] == earlier["shards"]
