"""The command line on a small collected data set."""

import hashlib
import json
import struct
import zlib
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from experiments import records
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import SCHEMA_VERSION, Trajectory
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.records.tools import check_dataset
from tests.records.sets import name, png, samples, trajectories
from tests.scripts import run_script

RUNS = trajectories(5)


@pytest.fixture
def run_folder(tmp_path):
    """A run with three data sets."""
    images = ImageStore(tmp_path / "collect")
    for number in range(3):
        images.put(png(number))
    write_dataset(tmp_path / "collect", RUNS, "trajectories", {"actor": "teacher"}, shard_size=2)
    write_dataset(tmp_path / "old", RUNS, "trajectories", {}, shard_size=4)
    write_dataset(tmp_path / "sft", samples(RUNS), "sft_samples", {"note": "long " * 30})
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
    assert cells["collect"][4:] == [str(SCHEMA_VERSION), "actor=teacher"]
    assert cells["old"][4] == str(SCHEMA_VERSION)
    assert cells["sft"][5].endswith("…")
    assert cells["broken"][0] == "?"
    with pytest.raises(UserError, match="no data set here or below"):
        records.list_datasets(run_folder / "broken" / "below")


def test_verify_reports_each_problem_and_fails(run_folder):
    sound = command("verify", f"--data={run_folder / 'collect'}")
    assert (sound.returncode, sound.stderr) == (0, "")
    assert "5 readable records, 3 images, 0 steps without a screenshot, 0 problems" in sound.stdout
    for path in sorted((run_folder / "collect").glob("images-*"))[:1]:
        path.write_bytes(path.read_bytes()[:100])
    broken = command("verify", f"--data={run_folder / 'collect'}")
    assert broken.returncode == 1
    assert broken.stdout.count("make this data set again") == 1 and broken.stdout.count("\n") == 2
    assert broken.stderr == f"error: {run_folder / 'collect'}: 1 problems, see above\n"


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
    records.sample(run_folder / "collect", 2, 1, str(run_folder / "shown"))
    first, second = capsys.readouterr().out.split("record ")[1:]
    for text in (first, second):
        place, record = text.split("\n", 1)
        shown = json.loads(record)
        assert shown["trajectory_id"] == RUNS[int(place)].trajectory_id
        assert Path(shown["steps"][0]["observation"]["screenshot"]).read_bytes() == png(int(place) // 2)


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
    ):
        with pytest.raises(UserError, match=words):
            records.export(run_folder / data, where and str(run_folder / where), format_, images)
    assert not (run_folder / "out").exists()


def version_4(folder, packed):
    """What the version before wrote: screenshots as files, or as a bucket had them, and its journal."""
    folder.mkdir()
    rows, packs = [], None
    writer = ArrayRecordWriter(str(folder / "trajectories-00000.array_record"), "group_size:1")
    for run in RUNS:
        writer.write(run.model_dump_json().encode())
    writer.close()
    if packed:
        (folder / "images").mkdir()
        (folder / "images/a.pack").write_bytes(b"".join(map(png, range(3))))
        start = 0
        for number in range(3):
            rows.append(struct.pack(">32sIQI", bytes.fromhex(name(png(number))), 0, start, len(png(number))))
            start += len(png(number))
        (folder / "images/b.index").write_bytes(b"".join(sorted(rows)))
        packs = {"index": {"file": "images/b.index"}, "packs": [{"file": "images/a.pack"}], "images": 3}
    for number in range(0 if packed else 3):
        path = folder / "images" / name(png(number))[:2] / f"{name(png(number))}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    line = RUNS[0].model_dump_json().encode()
    (folder / "episodes.jsonl").write_bytes(b"%d %08x %s\n12 to" % (len(line), zlib.crc32(line), line))
    (folder / "calls.jsonl").write_text("{}\n")
    (folder / "report.json").write_text("{}")
    shard = {"file": "trajectories-00000.array_record", "records": 5}
    manifest = {"schema_version": 4, "kind": "trajectories", "finished": True, "records": 5}
    manifest |= {"shards": [shard], "images": packs, "provenance": {"actor": "teacher"}}
    text = json.dumps(manifest)
    (folder / "manifest.json").write_text(text)
    # In a bucket each version had them in a folder of its own.
    sides = folder / "versions" / hashlib.sha256(text.encode()).hexdigest()[:12] if packed else folder
    sides.mkdir(parents=True, exist_ok=True)
    (sides / "reflections.jsonl").write_text("{}\n")


@pytest.mark.parametrize("packed", [False, True])
def test_a_data_set_of_the_version_before_is_upgraded(tmp_path, packed):
    old, new = tmp_path / "old", tmp_path / "new"
    version_4(old, packed)
    with pytest.raises(UserError, match=r"4 is older than 5: .* upgrade --data=.*old --output="):
        read_dataset(old)
    result = command("upgrade", f"--data={old}", f"--output={new}")
    assert (result.stdout, result.stderr) == (f"{new}: 5 records\n", "")
    assert list(read_dataset(new)) == RUNS and check_dataset(new).problems == []
    assert check_dataset(new).images == 3 and read_manifest(new).provenance == {"actor": "teacher"}
    assert read_journal(new / "episodes.jsonl") == [RUNS[0].model_dump_json().encode()]
    assert all((new / one).exists() for one in ("reflections.jsonl", "report.json", "calls.jsonl"))
    for data, words in ((old, "not empty"), (new, "no finished data set of version 4")):
        with pytest.raises(UserError, match=words):
            records.upgrade_old(data, str(new if data == old else tmp_path / "third"))


def test_an_old_data_set_that_lacks_a_screenshot_is_upgraded_without_it(tmp_path, capsys):
    version_4(tmp_path / "old", packed=False)
    (tmp_path / "old/images" / name(png(0))[:2] / f"{name(png(0))}.png").unlink()
    records.upgrade_old(tmp_path / "old", str(tmp_path / "new"))
    assert "1 screenshots that its records name are not there" in capsys.readouterr().err
    assert list(read_dataset(tmp_path / "new")) == RUNS
    (problem,) = check_dataset(tmp_path / "new").problems
    assert f"missing screenshot {name(png(0))}" in problem


@pytest.mark.parametrize("damage", ["journal", "index", "pack", "manifest", "kind", "screenshot"])
def test_a_damaged_data_set_of_the_version_before_is_one_line(tmp_path, damage):
    version_4(tmp_path / "old", packed=damage in ("index", "pack"))
    old, text = tmp_path / "old", json.loads((tmp_path / "old/manifest.json").read_text())
    if damage == "journal":
        (old / "episodes.jsonl").write_bytes(b"{}\n")
    elif damage == "index":
        (old / "images/b.index").write_bytes(b"1234567")
    elif damage == "screenshot":
        (old / "images" / name(png(0))[:2] / f"{name(png(0))}.png").write_bytes(png(1))
    else:
        text |= {"kind": "cookies"} if damage == "kind" else {}
        text |= {"images": {"index": {"file": "images/b.index"}, "packs": []}} if damage == "pack" else {}
        (old / "manifest.json").write_text(json.dumps(text))
        if damage == "manifest":
            del text["provenance"]
            (old / "manifest.json").write_text(json.dumps(text))
    with pytest.raises(UserError, match=r"old: (cannot be read|damaged)"):
        records.upgrade_old(old, str(tmp_path / "new"))


def test_a_run_that_has_not_ended_is_listed_and_verified(run_folder, capsys):
    going = run_folder / "runs" / "going"
    images = ImageStore(going)
    images.put(png(0))
    with Journal(going / "episodes.jsonl") as journal:
        for run in (*RUNS[:2], RUNS[0]):
            journal.append(run.model_dump_json().encode())
        journal.append(b'{"set_aside":"site","reason":"blocked"}')
    with open(going / "episodes.jsonl", "ab") as file:
        file.write(b'{"being writ')
    records.verify(going)
    so_far = f"{going}: 2 episodes so far of a run that has not ended, 1 images, 0 steps without a screenshot"
    assert capsys.readouterr().out == f"{so_far}, 0 problems\n"
    records.list_datasets(run_folder)
    row = next(line for line in capsys.readouterr().out.splitlines() if "going" in line)
    assert "2" in row and "not ended" in row
    with pytest.raises(UserError, match="1 problems, see above"):
        images.path(name(png(0))).unlink()
        records.verify(run_folder / "runs")
    out = capsys.readouterr().out
    assert f"{so_far}, 1 problems\n" in out and f"missing screenshot {name(png(0))}" in out
    lines = (going / "episodes.jsonl").read_bytes()
    for old, new, words in (
        (b'"outcome":', b'"outcome"', "line 1 is damaged: restore the file, or use another --workdir"),
        (b'"outcome":"done"', b'"outcome":"won"', "is damaged, or of another version: restore the file"),
    ):
        (going / "episodes.jsonl").write_bytes(lines.replace(old, new))
        (problem,) = [one for one in check_dataset(going).problems if "screenshot" not in one]
        assert words in problem
