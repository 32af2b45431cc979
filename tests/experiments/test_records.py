"""The command line on a small collected data set."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow.parquet as pq
import pytest

from experiments import records
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SCHEMA_VERSION, SftSample, Trajectory
from rmsweb_jax.workdir import lock_workdir
from tests.records.sets import png, samples, trajectories
from tests.scripts import run_script

RUNS = trajectories(5)


@pytest.fixture
def run_folder(tmp_path):
    """A run with two data sets and one that is not finished."""
    images = ImageStore(tmp_path / "collect")
    for number in range(3):
        images.put(png(number))
    write_dataset(tmp_path / "collect", RUNS, "trajectories", {"actor": "teacher"}, shard_size=2)
    write_dataset(tmp_path / "old", RUNS, "trajectories", {}, shard_size=4)
    path = tmp_path / "sft" / "manifest.json"
    write_dataset(path.parent, samples(RUNS), "sft_samples", {"note": "long " * 30})
    path.write_text(json.dumps(json.loads(path.read_text()) | {"finished": False, "digest": ""}))
    return tmp_path


def command(*arguments) -> CompletedProcess:
    return run_script("experiments.records", *map(str, arguments))


def test_list(run_folder, capsys):
    (run_folder / "broken").mkdir()
    (run_folder / "broken" / "manifest.json").write_text("{}")
    records.list_datasets(run_folder)
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = {Path(row[1].strip()).name: [cell.strip() for cell in row[2:-1]] for row in rows}
    assert cells["collect"][:3] == ["trajectories", "5", "3"]
    assert cells["collect"][4:] == [str(SCHEMA_VERSION), "yes", "actor=teacher"]
    assert cells["old"][4:6] == [str(SCHEMA_VERSION), "yes"]
    assert cells["sft"][4:6] == [str(SCHEMA_VERSION), "no"] and cells["sft"][6].endswith("…")
    assert cells["broken"][0] == "?"
    with pytest.raises(UserError, match="no data set here or below"):
        records.list_datasets(run_folder / "collect" / "images")


def test_verify_reports_each_problem_and_fails(run_folder):
    sound = command("verify", f"--data={run_folder / 'collect'}")
    assert (sound.returncode, sound.stderr) == (0, "")
    assert "5 readable records, 3 images, 0 steps without a screenshot, 0 problems" in sound.stdout
    for path in sorted((run_folder / "collect" / "images").glob("*/*"))[:2]:
        path.unlink()
    broken = command("verify", f"--data={run_folder / 'collect'}")
    assert broken.returncode == 1
    assert broken.stdout.count("missing screenshot") == 2 and broken.stdout.count("\n") == 3
    assert broken.stderr == f"error: {run_folder / 'collect'}: 2 problems, see above\n"


def test_wrong_commands_are_one_line_each(run_folder):
    for arguments, words in (
        ((f"--data={run_folder}",), "give one command: list, verify"),
        (("list", f"--data={run_folder / 'nowhere'}"), "is no folder"),
        (("verify",), "--data"),
    ):
        result = command(*arguments)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert words in result.stderr


def test_sample_prints_json(run_folder, capsys):
    records.sample(run_folder / "collect", 2, 1)
    first, second = capsys.readouterr().out.split("record ")[1:]
    for text in (first, second):
        place, record = text.split("\n", 1)
        assert json.loads(record)["trajectory_id"] == RUNS[int(place)].trajectory_id


def test_export(run_folder, capsys):
    output = run_folder / "out.parquet"
    result = command("export", f"--data={run_folder / 'collect'}", "--images", f"--output={output}")
    assert (result.stdout, result.stderr) == (f"{output}: 5 records\n", "")
    assert pq.read_table(output).column_names[-1] == "images"
    records.export(run_folder / "old", str(run_folder / "out.jsonl"), "jsonl", images=False)
    lines = (run_folder / "out.jsonl").read_bytes().splitlines()
    assert [Trajectory.model_validate_json(line) for line in lines] == RUNS
    for data, where, format_, images, words in (
        ("collect", "", "jsonl", False, "--output: give the file"),
        ("collect", "nowhere/out", "jsonl", False, "is no folder: make it first"),
        ("collect", "out", "jsonl", True, "use --format=parquet"),
        ("sft", "out", "parquet", False, "no finished data set here, 5 records are written so far"),
    ):
        with pytest.raises(UserError, match=words):
            records.export(run_folder / data, where and str(run_folder / where), format_, images)
    assert not (run_folder / "out").exists()


def test_repair_reports_and_acts_only_with_its_flag(run_folder, capsys):
    stray = run_folder / "collect" / "trajectories-00009.array_record"
    stray.write_bytes(b"x")
    records.repair(run_folder, apply=False)
    out = capsys.readouterr().out
    assert f"{stray}: shard that the manifest does not name" in out and "add --apply" in out
    assert stray.exists()
    records.repair(run_folder, apply=True)
    assert "1 repaired" in capsys.readouterr().out and not stray.exists()
    records.repair(run_folder, apply=True)
    assert "nothing to repair" in capsys.readouterr().out
    write_dataset(run_folder / "sft", samples(RUNS), "sft_samples", {"note": "long " * 30})
    assert list(read_dataset(run_folder / "sft", SftSample)) == samples(RUNS)


def test_repair_refuses_while_a_run_is_active(run_folder):
    with lock_workdir(run_folder / "collect"):
        for data in (run_folder, run_folder / "collect" / "journal"):
            data.mkdir(exist_ok=True)
            with pytest.raises(UserError, match="in use by another run"):
                records.repair(data, apply=True)
