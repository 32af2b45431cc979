"""Each kind of damage gets its own line."""

import pytest

from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore, record_images
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import png, trajectories, trajectory

RUNS = [*trajectories(5), trajectory(5, None)]


@pytest.fixture
def folder(tmp_path):
    images = ImageStore(tmp_path)
    for number in range(3):
        images.put(png(number))
    with Journal(tmp_path / "episodes.jsonl") as journal:
        for run in RUNS:
            journal.append(run.model_dump_json().encode())
    write_dataset(tmp_path, RUNS, "trajectories", shard_size=2)
    return tmp_path


def shard(folder, number):
    return folder / read_manifest(folder).shards[number].data


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
    assert len(check.problems) == 3
    for line, path in zip(check.problems, paths, strict=True):
        assert line.startswith(str(path)) and line.endswith("make this data set again")
    assert "missing" in check.problems[2]


def test_a_missing_screenshot_and_a_damaged_shard_of_them_have_one_line(folder):
    shown = write_dataset(folder / "other", RUNS[:4], "trajectories", images=folder)
    path = folder / "other" / shown.shards[0].images
    path.write_bytes(path.read_bytes()[:200])
    assert problem(folder / "other").startswith(str(path))
    write_dataset(folder / "none", RUNS[:2], "trajectories")
    assert "missing screenshot" in problem(folder / "none")


@pytest.mark.parametrize("data", [b"no image", png(0)[:60], png(0)[:-40], b"\x89PNG\r\n\x1a\n"])
def test_a_screenshot_that_is_no_image(tmp_path, data):
    ImageStore(tmp_path).put(data)
    write_dataset(tmp_path, [trajectory(0, data)], "trajectories")
    assert "unreadable image" in problem(tmp_path)


def test_a_record_that_names_no_image(folder):
    run = RUNS[0].steps[0].observation.model_copy(update={"screenshot": "../../etc/passwd"})
    step = RUNS[0].steps[0].model_copy(update={"observation": run})
    write_dataset(folder, [RUNS[0].model_copy(update={"steps": (step,)})], "trajectories")
    assert "not a SHA-256: '../../etc/passwd'" in problem(folder)


def test_no_manifest(folder):
    (folder / "manifest.json").unlink()
    (folder / "episodes.jsonl").unlink()
    assert "no finished data set here" in problem(folder)


def test_a_damaged_journal(folder):
    path = folder / "episodes.jsonl"
    data = path.read_bytes()
    path.write_bytes(data + b'{"torn')
    assert not check_dataset(folder).problems
    path.write_bytes(data.replace(b'"response":"rr"', b'"response":rr"'))
    assert problem(folder).startswith(f"{path}: line 3 is damaged")
