"""Writers that are stopped at each single disk operation, and what the next run makes of it."""

import json
import shutil
from pathlib import Path

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.files import is_temporary, write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.records.crash import Disk, Point, Stopped
from tests.records.sets import png, stable, trajectories

RECORDS = trajectories(5)
OTHERS = [RECORDS[0], *(one.model_copy(update={"final_text": "again"}) for one in RECORDS[1:])]


def write(folder, records=RECORDS):
    for number in range(3):
        ImageStore(folder).put(png(number))
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
    return sorted(stable(path.name) for path in folder.iterdir())


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
    assert whole  # Once the manifest has its name.


def test_whole_shards_are_not_written_again(memory_path):
    kept = set()
    for folder in stopped(memory_path, lambda folder: None, write):
        entered = 0
        for name in (".unfinished.json", "manifest.json"):
            if (folder / name).exists():
                entered = len(json.loads((folder / name).read_bytes())["shards"])
        disk = Disk(folder)
        with disk.watched():
            write(folder)
        assert sum(one.name == "shard.close" for one in disk.operations) == 2 * (3 - entered)
        kept.add(entered)
    assert kept == {0, 1, 2, 3}


def test_other_records_of_the_same_origin_replace_the_old_ones_and_are_never_mixed_with_them(memory_path):
    for folder in stopped(memory_path, write, lambda folder: write(folder, OTHERS[:3])):
        # Readers have the one or the other at any time.
        assert read(folder) in (RECORDS, OTHERS[:3])
        assert not check_dataset(folder).problems
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
