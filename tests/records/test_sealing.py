"""Side files are protected like shards, from the end of their stage on."""

import json

import pytest

from rmsweb_jax.records.dataset import load_manifest, read_manifest, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.sealing import finish_stage, seal_dataset, side_files
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import flipped, png, trajectories

RUNS = trajectories(5)


@pytest.fixture
def folder(tmp_path):
    """What a collecting stage leaves."""
    images = ImageStore(tmp_path)
    for number in range(3):
        images.put(png(number))
    with Journal(tmp_path / "journal/000001.jsonl") as journal:
        for run in RUNS:
            journal.append(run.model_dump_json().encode())
    (tmp_path / "config.json").write_text(json.dumps({"seed": 1}, indent=1))
    (tmp_path / "reflections.jsonl").write_text('{"guidance": "look twice"}\n')
    (tmp_path / "tasks.jsonl").write_text('{"task_id": "a"}\n')
    (tmp_path / "progress.json").write_text("{}")
    (tmp_path / "README.md").write_text("# Runs\n")
    write_dataset(tmp_path, RUNS, "trajectories", {"seed": 1, "digest": ""}, shard_size=2)
    finish_stage(tmp_path, b'{"stage": "collect"}')
    return tmp_path


def test_a_flipped_byte_in_any_file_is_one_line(folder):
    assert check_dataset(folder).problems == []
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "progress.json"]
    assert len(paths) == 3 + 3 + 1 + 5 + 1  # Shards, screenshots, journal, side files, manifest.
    for path in paths:
        data = path.read_bytes()
        for damaged in flipped(data, seed=len(data), places=20):
            path.write_bytes(damaged)
            # The end of a journal without its line break looks like that of a stopped writer.
            if path.parent.name == "journal" and not damaged.endswith(b"\n"):
                continue
            (problem,) = check_dataset(folder).problems
            assert problem.startswith(f"{path}: ") and "\n" not in problem
        path.unlink()
        if path.parent.name != "journal":
            (problem,) = check_dataset(folder).problems
            assert problem.startswith(f"{path}: ")
        path.write_bytes(data)
    assert check_dataset(folder).problems == []


def test_the_report_comes_after_the_manifest_that_names_it(folder, monkeypatch):
    (folder / "report.json").unlink()
    write_dataset(folder, RUNS[:2], "trajectories", {"seed": 2})

    def killed(path, data):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("rmsweb_jax.records.sealing.write_atomic", killed)
        finish_stage(folder, b"{}")
    assert "report.json: missing" in check_dataset(folder).problems[0]
    write_dataset(folder, RUNS[:2], "trajectories", {"seed": 2})
    finish_stage(folder, b'{"again": 1}')
    assert check_dataset(folder).problems == []


def test_files_that_come_later_are_entered_and_known_ones_keep_their_checksums(folder):
    before = load_manifest(folder).files
    (folder / "sizes-1.json").write_text("[]")
    (folder / "tasks.jsonl").write_text("damaged")
    seal_dataset(folder)
    after = load_manifest(folder).files
    assert {file.file for file in after} == {file.file for file in before} | {"sizes-1.json"}
    assert set(before) < set(after)
    assert [line.split(": ")[0] for line in check_dataset(folder).problems] == [str(folder / "tasks.jsonl")]


def test_a_stage_with_data_sets_below_its_folder(tmp_path):
    write_dataset(tmp_path / "prompts", RUNS, "trajectories")
    (tmp_path / "prompts/notes.jsonl").write_text("{}\n")
    finish_stage(tmp_path, b"{}")
    assert [file.file for file in read_manifest(tmp_path / "prompts").files] == ["notes.jsonl"]
    assert (tmp_path / "report.json").read_bytes() == b"{}"
    assert side_files(tmp_path) == [tmp_path / "report.json"]
