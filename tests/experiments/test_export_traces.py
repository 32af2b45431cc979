"""The stage from a data set to files for other tools: what it writes, its errors, and a stopped run."""

import errno
import json
import shutil
from pathlib import Path

import pytest

import collection.formats.exports as exports
from collection.config import ExportTracesSettings
from collection.formats.exports import file_stem
from configs.export_traces import VARIANTS, get_config
from experiments.export_traces import main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records import dataset
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt
from rmsweb_jax.settings import from_config
from tests.experiments.test_import_runs import run_import
from tests.formats.agent_runs import fara_run
from tests.formats.atif_checks import check_atif
from tests.formats.runs import SECRET, episode, write_runs
from tests.formats.test_hub import check_session
from tests.scripts import run_script


def export(variant: str, data: Path, workdir: Path, **changes) -> dict:
    config = get_config(variant)
    config.update({"data": str(data), **changes})
    workdir.mkdir(exist_ok=True)
    main(from_config(ExportTracesSettings, config), workdir)
    return json.loads((workdir / "report.json").read_text())


def files(workdir: Path) -> dict[str, bytes]:
    folder = workdir / "traces"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_writes_a_file_per_episode_and_its_images(tmp_path, variant):
    runs = write_runs(tmp_path / "data", count=3)
    report = export(variant, tmp_path / "data", tmp_path / "out")
    assert report["stage"] == "export_traces" and report["format"] == variant
    assert (report["trajectories"], report["steps"], report["kept"]) == (5, 13, 0)
    folder = tmp_path / "out/traces"
    written = sorted(path for path in folder.iterdir() if path.is_file())
    suffix = exports.WRITERS[variant][1]
    assert [path.name for path in written] == sorted(
        f"{file_stem(run.trajectory_id)}{suffix}" for run in runs
    )
    assert report["bytes"] == sum(path.stat().st_size for path in written)
    assert len(list(folder.rglob("*.png"))) == 4  # Each is stored once.
    for path in written:
        text = path.read_text()
        if variant == "atif":
            check_atif(json.loads(text), folder)
        else:
            check_session([json.loads(line) for line in text.splitlines()])
    assert sum(SECRET in path.read_text() for path in written) == 3
    assert json.loads((tmp_path / "out/progress.json").read_text())["done"] == 5


def test_imported_runs_can_be_exported(tmp_path):
    fara_run(tmp_path / "runs/Shop--1")
    run_import("fara", tmp_path / "runs", tmp_path / "imported")
    export("atif", tmp_path / "imported", tmp_path / "out")
    (path,) = (tmp_path / "out/traces").glob("*.json")
    made = json.loads(path.read_text())
    check_atif(made, path.parent)
    assert [call["function_name"] for call in made["steps"][2]["tool_calls"]] == [
        "click_coordinates",
        "input_text",
        "send_keys",
    ]


def test_a_stopped_export_run_again_ends_with_the_unbroken_files(tmp_path, monkeypatch):
    write_runs(tmp_path / "data", count=4)
    export("hub", tmp_path / "data", tmp_path / "whole")
    write, written = exports.write_atomic, []

    def write_until_full(path: Path, data: bytes) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(exports, "write_atomic", write_until_full)
        export("hub", tmp_path / "data", tmp_path / "stopped")
    assert not (tmp_path / "stopped/report.json").exists()
    folder = tmp_path / "stopped/traces"
    (folder / ".left.jsonl.0123456789abcdef.tmp").write_bytes(b"half")
    (folder / "of-another-data-set.jsonl").write_bytes(b"{}")
    again = export("hub", tmp_path / "data", tmp_path / "stopped")
    assert (again["kept"], again["removed"]) == (2, 2)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_only_few_episodes_are_in_memory(tmp_path, monkeypatch):
    """The data set is read entry by entry, whatever the size of its shards."""
    store = ImageStore(tmp_path / "data")
    runs = [episode(store, f"shop/{number}") for number in range(40)]
    write_dataset(tmp_path / "data", runs, "trajectories")
    decoded, most, done = [0], [0], [0]
    decode, write = dataset.decode_entry, exports.write_atomic

    def counting(*arguments):
        decoded[0] += 1
        most[0] = max(most[0], decoded[0] - done[0])
        return decode(*arguments)

    def writes(path: Path, data: bytes) -> None:
        write(path, data)
        done[0] += 1

    monkeypatch.setattr(dataset, "decode_entry", counting)
    monkeypatch.setattr(exports, "write_atomic", writes)
    export("hub", tmp_path / "data", tmp_path / "out")
    assert done[0] == decoded[0] == 40 and most[0] == 1


def test_user_errors_are_one_line(tmp_path):
    write_runs(tmp_path / "data")
    prompt = RlPrompt(prompt_id="p", task_id="t", site="s", category="c", messages=(), target="{}")
    write_dataset(tmp_path / "prompts", [prompt], "rl_prompts")
    for data, message in (
        (tmp_path / "none", "no finished data set here"),
        (tmp_path / "prompts", "holds rl_prompts, not trajectories: give another --config.data"),
        ("", "config.data is empty"),
    ):
        with pytest.raises(UserError, match=rf"^[^\n]*{message}[^\n]*$"):
            export("atif", data, tmp_path / "out")
    for path in (tmp_path / "data").glob("images-*"):
        path.unlink()
    with pytest.raises(UserError, match=r"^[^\n]*shard missing[^\n]*$"):
        export("atif", tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out/report.json").exists()


def test_the_command_exports_and_then_returns_at_once(tmp_path):
    write_runs(tmp_path / "data")
    flags = (f"--config.data={tmp_path / 'data'}", f"--workdir={tmp_path / 'out'}")
    done = run_script("experiments.export_traces", "--config=configs/export_traces.py:atif", *flags)
    assert done.returncode == 0
    before = files(tmp_path / "out")
    shutil.rmtree(tmp_path / "data")
    assert export("atif", tmp_path / "data", tmp_path / "out")["trajectories"] == 3
    assert files(tmp_path / "out") == before


def test_different_ids_have_different_names():
    ids = ["a/b#c-1", "a-b#c-1", "a/b-c-1", "x" * 300, "x" * 301, "../../etc", "~", "ü"]
    names = [file_stem(one) for one in ids]
    assert len(set(names)) == len(ids) and all(len(name) < 100 and "/" not in name for name in names)
    assert not any(name.startswith(".") for name in names)
