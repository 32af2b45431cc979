"""Repair finds the leftovers of a crash and touches nothing else."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import load_manifest, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.tools import check_dataset, find_repairs
from tests.records.crash import Disk, Point, Stopped
from tests.records.sets import png, trajectories, trajectory

RUNS = trajectories(4)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "runs" / "collect"
    images = ImageStore(folder)
    for number in range(2):
        images.put(png(number))
    write_dataset(folder, RUNS, "trajectories", shard_size=2)
    return folder


def repaired(folder) -> list[str]:
    repairs = find_repairs(folder)
    for repair in repairs:
        if repair.apply:
            repair.apply()
    return [repair.what for repair in repairs]


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sound_folder_needs_nothing(folder):
    (folder / "reflections.jsonl").write_text('{"guidance": "not a journal"}\n')
    (folder / "report.json").write_text("{}")
    assert repaired(folder) == []


def test_files_of_stopped_writers_are_removed(folder):
    sound = files(folder)
    pictures = folder / "images" / "ab"
    pictures.mkdir(exist_ok=True)
    left = [
        folder / ".trajectories-00002.array_record.0123456789abcdef.tmp",
        folder / ".manifest.json.4711.tmp",
        folder / "trajectories-00002.array_record",
        pictures / ".abc.png.0123456789abcdef.tmp",
    ]
    for path in left:
        path.write_bytes(b"x")
    before = files(folder)
    assert len(find_repairs(folder)) == 4 and files(folder) == before
    lines = repaired(folder.parent)
    assert all(any(line.startswith(f"{path}: ") for line in lines) for path in left)
    assert files(folder) == sound
    assert repaired(folder) == []


def test_screenshots_that_no_record_names_are_removed(folder):
    images = ImageStore(folder)
    orphan, planned = images.put(png(2)), images.put(png(3))
    with Journal(folder / "journal" / "000001.jsonl") as journal:
        # Played, and not published yet.
        journal.append(trajectory(9, png(3)).model_dump_json().encode())
    lines = repaired(folder)
    assert len(lines) == 1 and "1 screenshots that no record names" in lines[0]
    assert orphan not in images and planned in images
    assert check_dataset(folder).problems == []


def test_screenshots_stay_while_it_is_not_clear_which_are_named(folder):
    orphan = ImageStore(folder).put(png(2))
    shard = folder / load_manifest(folder).shards[0].file
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    assert repaired(folder) == []
    shard.write_bytes(data)
    (folder / "manifest.json").rename(folder / "kept")
    assert repaired(folder) == [] and shard.exists()
    (folder / "manifest.json").write_text("{}")
    assert ["not a manifest" in line for line in repaired(folder)] == [True] and shard.exists()
    (folder / "kept").replace(folder / "manifest.json")
    assert len(repaired(folder)) == 1 and orphan not in ImageStore(folder)


def test_an_unfinished_data_set_is_left_to_its_writer(folder):
    disk = Disk(folder, Point(1, "before", "manifest"))
    with disk.watched(), pytest.raises(Stopped):
        write_dataset(folder, RUNS, "trajectories", {"other": 1}, shard_size=1)
    with Disk(folder, Point(8, "before", "shard")).watched(), pytest.raises(Stopped):
        write_dataset(folder, RUNS, "trajectories", {"other": 1}, shard_size=1)
    orphan = ImageStore(folder).put(png(2))
    assert any(
        "unfinished: run the command that makes it again to finish it" in line for line in repaired(folder)
    )
    assert orphan in ImageStore(folder)
    write_dataset(folder, RUNS, "trajectories", {"other": 1}, shard_size=1)
    assert check_dataset(folder).problems == []


RECORDS = [b'{"a":%d}' % number for number in range(5)]


def journal_of(folder, records=RECORDS):
    path = folder / "journal" / "000001.jsonl"
    with Journal(path) as journal:
        for record in records:
            journal.append(record)
    return path


@given(place=st.integers(0, 94), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_journal_costs_at_most_the_lines_it_touches(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("journals")
    path = journal_of(folder)
    data = bytearray(path.read_bytes())
    assert len(data) == 95
    data[place] ^= 1 << bit
    path.write_bytes(data)
    repaired(folder)
    line, at = divmod(place, 19)
    touched = {line, line + 1} if at == 18 else {line}
    kept = read_journal(path)
    assert kept == [record for number, record in enumerate(RECORDS) if number not in touched]
    quarantined = path.with_name("000001.jsonl.damaged")
    assert quarantined.read_bytes() == data if quarantined.exists() else place == 94
    with Journal(path) as journal:
        journal.append(b"after")
    assert read_journal(path) == [*kept, b"after"]
    assert repaired(folder) == []


def test_a_torn_line_is_cut_off_without_ado(tmp_path):
    path = journal_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + b"7 0000")
    (line,) = repaired(tmp_path)
    assert "never finished: cut it off; 5 whole records stay" in line
    assert path.read_bytes() == whole and os.listdir(path.parent) == [path.name]


def test_a_second_quarantine_keeps_the_first(tmp_path):
    path = journal_of(tmp_path)
    for number, name in ((0, "damaged"), (1, "damaged-2")):
        damaged = path.read_bytes().replace(RECORDS[number], b'{"a":9}')
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"repair --data=.*journal --apply"):
            read_journal(path)
        # The folder that the message names.
        repaired(path.parent)
        assert path.with_name(f"{path.name}.{name}").read_bytes() == damaged
    assert read_journal(path) == RECORDS[2:]
