"""Each kind of damage gets its own line."""

import json

import pytest

from rmsweb_jax.records.dataset import load_manifest, read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import png, trajectories, trajectory

RUNS = [*trajectories(5), trajectory(5, None)]


@pytest.fixture
def folder(tmp_path):
    images = ImageStore(tmp_path)
    for number in range(3):
        images.put(png(number))
    with Journal(tmp_path / "journal" / "000001.jsonl") as journal:
        for run in RUNS:
            journal.append(run.model_dump_json().encode())
    write_dataset(tmp_path, RUNS, "trajectories", shard_size=2)
    return tmp_path


def screenshot(folder, number):
    return ImageStore(folder).path(record_images(RUNS[number])[0])


def shard(folder, number):
    return folder / load_manifest(folder).shards[number].file


def problem(folder) -> str:
    """The only problem."""
    problems = check_dataset(folder).problems
    assert len(problems) == 1 and "\n" not in problems[0]
    return problems[0]


def test_a_sound_data_set(folder):
    check = check_dataset(folder)
    assert (check.records, check.images, check.without_screenshot, check.problems) == (6, 3, 1, [])


def test_every_image_that_a_record_names():
    assert [len(record_images(run)) for run in RUNS] == [1, 1, 1, 1, 1, 0]


def test_truncated_changed_and_missing_shards(folder):
    paths = [shard(folder, number) for number in range(3)]
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[: len(data) // 2])
    data = paths[1].read_bytes()
    paths[1].write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    paths[2].unlink()
    check = check_dataset(folder)
    assert (check.records, check.images) == (0, 0)
    for line, path, words in zip(check.problems, paths, ("bytes", "changed", "missing"), strict=True):
        assert line.startswith(str(path)) and words in line and line.endswith("make this data set again")


def test_a_missing_screenshot_is_reported_once_with_a_record_that_uses_it(folder):
    path = screenshot(folder, 2)
    path.unlink()
    line = problem(folder)
    assert line.startswith(f"{path}: missing screenshot") and "named by record 0 of" in line


def test_a_changed_screenshot(folder):
    screenshot(folder, 0).write_bytes(png(7))
    assert "damaged screenshot" in problem(folder)


@pytest.mark.parametrize("data", [b"no image", png(0)[:60], png(0)[:-40], b"\x89PNG\r\n\x1a\n"])
def test_a_screenshot_that_is_no_image(tmp_path, data):
    ImageStore(tmp_path).put(data)
    write_dataset(tmp_path, [trajectory(0, data)], "trajectories")
    assert "unreadable image" in problem(tmp_path)


def test_a_record_that_names_no_image(folder):
    run = RUNS[0].steps[0].observation.model_copy(update={"screenshot": "../../etc/passwd"})
    step = RUNS[0].steps[0].model_copy(update={"observation": run})
    write_dataset(folder, [RUNS[0].model_copy(update={"steps": (step,)})], "trajectories")
    assert "'../../etc/passwd': not the name of a screenshot" in problem(folder)


def test_no_manifest_an_unfinished_one_and_one_whose_counts_are_wrong(folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | {"digest": ""}  # As if it was written so.
    path.write_text(json.dumps(manifest | {"finished": False}))
    assert "unfinished: run the command that makes it again" in problem(folder)
    path.write_text(json.dumps(manifest | {"records": 7}))
    assert "counts do not add up" in problem(folder)
    path.unlink()
    assert "no finished data set here" in problem(folder)


def test_a_manifest_of_a_version_with_more_keys(folder):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | {"digest": ""}
    path.write_text(json.dumps(manifest | {"growing": False, "reflections": []}))
    assert not check_dataset(folder).problems
    assert list(read_dataset(folder, Trajectory)) == RUNS


def test_a_damaged_journal(folder):
    path = folder / "journal" / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"response":"rr"', b'"response":"rs"') + b"12 torn")
    line = problem(folder)
    assert line.startswith(f"{path}: 1 damaged lines, the first is line 3") and "repair --data=" in line
