"""Stages whose workdir is in a bucket, and scripts that refuse one."""

import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from collection.config import BuildSftSettings
from configs.build_sft import get_config
from experiments import build_sft
from rmsweb_jax.errors import TakenOverError, UserError
from rmsweb_jax.records.bucket import publish_dataset
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.episodes import EPISODES, write_episodes
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.staging import publish_episodes, staged
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.settings import from_config
from rmsweb_jax.storage import Owner
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.workdir import open_workdir
from tests.records.sets import trajectory
from tests.scripts import run_script

# Without screenshots, which tests/storage/test_published.py has.
RUNS = [trajectory(number, None) for number in range(3)]
BEGUN = {".owner"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def collected(folder, runs=RUNS):
    """A stage's workdir with a data set of its own, one below it, and other files."""
    write_dataset(folder, runs, "trajectories")
    write_dataset(folder / "audit", runs[:1], "trajectories")
    (folder / "calls.jsonl").write_text("{}\n")
    (folder / "refresh.diff").write_text("a\n")
    (folder / "notes.jsonl").write_text("{}\n")
    (folder / "release").mkdir(exist_ok=True)
    (folder / "release/model.bin").write_bytes(b"weights")
    (folder / "report.json").write_text('{"stage": "collect"}')


def names(bucket):
    skip = len(bucket.key) + 1
    return {entry.key[skip:] for entry in bucket.entries() if not entry.key.endswith(".array_record")}


def test_a_local_workdir_is_used_as_it_is(tmp_path, cache):
    with staged(tmp_path / "run") as folder:
        assert folder == tmp_path / "run"
    assert not cache.exists()


def test_a_stage_appears_in_the_bucket_when_it_has_finished(bucket):
    with staged(bucket) as folder, open_workdir(folder, ConfigDict({"seed": 1})):
        collected(folder)
        assert names(bucket) == BEGUN
    assert list(read_dataset(bucket, Trajectory)) == RUNS
    assert list(read_dataset(bucket / "audit", Trajectory)) == RUNS[:1]
    own = {"manifest.json", "report.json", "config.json", "notes.jsonl", "refresh.diff", "release/model.bin"}
    assert names(bucket) == own | BEGUN | {"audit/manifest.json"}
    assert (bucket / "release/model.bin").read_bytes() == b"weights"


def test_a_stage_that_fails_leaves_nothing_and_continues_where_it_was(bucket):
    with pytest.raises(UserError, match="stopped"), staged(bucket) as folder:
        (folder / "begun").write_text("")
        raise UserError("stopped")
    assert names(bucket) == BEGUN
    with staged(bucket) as folder:
        assert (folder / "begun").exists()
        collected(folder)
    assert "report.json" in names(bucket)


def test_another_machine_finds_a_finished_stage_finished(bucket, tmp_path, monkeypatch):
    with staged(bucket) as folder, open_workdir(folder, ConfigDict({"seed": 1})):
        collected(folder)
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "another"))
    with staged(bucket) as folder:
        assert (folder / "report.json").read_text() == '{"stage": "collect"}'
        with (
            pytest.raises(UserError, match="begun with other settings"),
            open_workdir(folder, ConfigDict({"seed": 2})),
        ):
            pass


def remove(bucket):
    for entry in bucket.entries():
        bucket.store.delete(entry.key)


@pytest.mark.parametrize("again", [True, False], ids=["finished elsewhere", "deleted"])
def test_what_a_machine_has_of_an_earlier_run_is_forgotten(bucket, tmp_path, monkeypatch, again):
    """A half-done run here is finished by another machine, or it is deleted and begun anew."""
    first, other = tmp_path / "first", tmp_path / "other"
    monkeypatch.setenv("RMSWEB_CACHE", str(first))
    with pytest.raises(UserError, match="stopped"), staged(bucket) as folder:
        (folder / "notes.jsonl").write_text('"of the first machine"')
        raise UserError("stopped")
    if not again:
        remove(bucket)
    monkeypatch.setenv("RMSWEB_CACHE", str(other))
    with staged(bucket) as folder:
        collected(folder, RUNS[:1])
    before = names(bucket)
    monkeypatch.setenv("RMSWEB_CACHE", str(first))
    with staged(bucket) as folder:
        assert (folder / "report.json").exists() and not (folder / "notes.jsonl").exists()
    assert names(bucket) == before
    assert list(read_dataset(bucket, Trajectory)) == RUNS[:1]


def test_a_finished_run_that_was_deleted_begins_anew(bucket, cache):
    with staged(bucket) as folder:
        collected(folder)
    remove(bucket)
    with staged(bucket) as folder:
        assert [path.name for path in folder.iterdir()] == [".run"]
    assert not [path for path in (cache / "workdirs").iterdir() if path.is_dir()]


def test_the_process_that_has_started_last_owns_the_workdir(bucket, tmp_path, monkeypatch):
    """The first one, on a machine that was given up, publishes nothing more."""
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "first"))
    first = staged(bucket)
    folder = first.__enter__()
    collected(folder, RUNS[:1])
    monkeypatch.setenv("RMSWEB_CACHE", str(tmp_path / "second"))
    with staged(bucket) as own:
        collected(own, RUNS)
    with pytest.raises(TakenOverError, match="another process has taken over this run") as caught:
        first.__exit__(None, None, None)
    assert caught.value.exit_code == 75
    assert list(read_dataset(bucket, Trajectory)) == RUNS and check_dataset(bucket).problems == []


def test_a_second_call_on_the_same_machine_is_refused_and_does_not_stop_the_first(bucket):
    with staged(bucket) as folder:
        collected(folder)
        for live in (False, True):
            with pytest.raises(UserError, match="in use by another run"), staged(bucket, live=live):
                pass
    assert list(read_dataset(bucket, Trajectory)) == RUNS


def test_a_checkpoint_of_a_run_that_was_taken_over_is_not_saved(bucket):
    with (
        pytest.raises(TakenOverError),
        staged(bucket, live=True),
        Checkpoints(bucket / "checkpoints") as checkpoints,
    ):
        checkpoints.save(1, {"w": jnp.zeros(3)}, {})
        checkpoints.wait()
        Owner(bucket)  # Of another machine.
        checkpoints.save(2, {"w": jnp.zeros(3)}, {})
    with Checkpoints(bucket / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() == 1


def test_the_library_builds_a_corpus_from_a_bucket(bucket, tmp_path):
    write_dataset(tmp_path / "collect", RUNS, "trajectories")
    publish_dataset(tmp_path / "collect", bucket / "collect")
    config = get_config("demo")
    config.trajectories = f"{bucket}/collect,{tmp_path}/collect"
    assert build_sft.source_folders(from_config(BuildSftSettings, config)) == [
        bucket / "collect",
        tmp_path / "collect",
    ]
    runs = {str(bucket / "collect"): bucket / "corpus", f"{tmp_path}/collect": tmp_path / "corpus"}
    for source, workdir in runs.items():
        config.trajectories = source
        with pytest.raises(UserError, match="no trajectory passed"), staged(workdir) as folder:
            folder.mkdir(exist_ok=True)
            build_sft.main(from_config(BuildSftSettings, config), folder)
    assert check_dataset(bucket / "collect").records == 3
    assert not (bucket / "corpus").exists() or names(bucket / "corpus") == BEGUN


COMMANDS = {
    "train_sft": ("--workdir=gs://", "--config.corpus=nowhere"),
    "serve": ("--workdir=s3:/bucket/serve",),
    "build_sft": ("--workdir=gcs://bucket/corpus", "--config.trajectories=nowhere"),
    "mine": ("--workdir=gs:/bucket/mine", "--config.pools=nowhere"),
}


@pytest.mark.parametrize("script", COMMANDS)
def test_an_address_that_does_not_work_is_one_line_and_makes_no_folder(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = run_script(f"experiments.{script}", *COMMANDS[script])
    assert (run.returncode, run.stderr.count("\n")) == (2, 1), run.stderr
    assert run.stderr.startswith("error: --workdir=")
    assert not list(tmp_path.iterdir()) or [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_stopped_stage_leaves_its_episodes_in_the_bucket_and_goes_on(bucket):
    with pytest.raises(UserError, match="stopped"), staged(bucket) as folder:
        with Journal(folder / EPISODES) as journal:
            for run in RUNS[:2]:
                journal.append(run.model_dump_json().encode())
        publish_episodes(folder)
        raise UserError("stopped")
    assert list(read_dataset(bucket, Trajectory)) == RUNS[:2] and not (bucket / "report.json").is_file()
    publish_episodes(folder)  # No stage works there any more.
    with staged(bucket) as again, Journal(again / EPISODES) as journal:
        assert again == folder
        journal.append(RUNS[2].model_dump_json().encode())
        write_episodes(again / EPISODES, again, {})
        (again / "report.json").write_text("{}")
    assert list(read_dataset(bucket, Trajectory)) == RUNS
    assert not any(EPISODES in name for name in names(bucket))
