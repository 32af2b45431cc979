"""A run's data set while the run goes on: what it holds, and what a later run of the workdir makes of it."""

import contextlib

import pytest

from collection.fleet.journals import JournalIndex
from collection.fleet.publishing import Publisher
from collection.fleet.run import run_tasks
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.records.dataset import read_dataset, read_manifest, write_dataset
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.fleet.acting import Act, ActedPool, config, run, web_job

JOBS = [web_job(f"site{number}/1", attempts=2, reflective=True) for number in range(3)]


def publisher(workdir, jobs=JOBS):
    return Publisher(jobs, workdir, config().settings.actor, JournalIndex(workdir))


def play(workdir, until=float("inf")):
    with contextlib.suppress(StoppedError):
        run(JOBS, workdir, lambda task, number: Act(), config(), lambda now: now >= until)


def ids(workdir):
    return [one.trajectory_id for one in read_dataset(workdir, Trajectory)]


def test_a_run_that_is_interrupted_publishes_what_there_is(tmp_path, monkeypatch):
    """As at a second Ctrl-C, for which running episodes are not waited for."""
    pool = ActedPool(tmp_path, lambda task, number: Act())
    wait, calls = pool.wait, iter(range(3))

    def interrupted(seconds):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return wait(10.0)

    monkeypatch.setattr(pool, "wait", interrupted)
    monkeypatch.setattr("collection.fleet.run.make_pool", lambda *_: pool)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(JOBS, tmp_path, config(publish_s=0.0), "collect")
    assert len(ids(tmp_path)) == 2


def test_a_run_adds_to_what_an_earlier_one_has_published(tmp_path):
    play(tmp_path, 1.5)
    publisher(tmp_path).publish()
    before = ids(tmp_path)
    assert 0 < len(before) < 6
    play(tmp_path)
    # Another job's records are none of this run's.
    some = publisher(tmp_path, JOBS[:1])
    again = publisher(tmp_path)
    again.publish()
    assert ids(tmp_path)[: len(before)] == before and len(set(ids(tmp_path))) == len(ids(tmp_path)) == 6
    manifest = read_manifest(tmp_path)
    assert manifest.provenance == {"actor": "teacher", "kind": "scripted", "tasks": 3, "reflections": 3}
    assert sum(shard.records for shard in manifest.reflections) == 3
    again.publish()
    assert read_manifest(tmp_path) == manifest, "nothing was new"
    assert check_dataset(tmp_path).problems == []
    reflected = again.finish()
    assert [one.reflection.task_id for one in reflected] == [job.task.task_id for job in JOBS]
    assert ids(tmp_path) == sorted(ids(tmp_path)) and len(ids(tmp_path)) == 6
    whole = tmp_path / "whole"
    write_dataset(whole, read_dataset(tmp_path), "trajectories", manifest.provenance)
    assert (whole / "manifest.json").read_bytes() == (tmp_path / "manifest.json").read_bytes()
    some.finish()
    assert len(ids(tmp_path)) == 2


def test_damage_of_what_was_published_is_repaired_from_the_journals(tmp_path):
    play(tmp_path)
    publisher(tmp_path).publish()
    (shard, *_) = read_manifest(tmp_path).shards
    path = tmp_path / shard.file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    publisher(tmp_path).publish()
    assert len(ids(tmp_path)) == 6 and check_dataset(tmp_path).problems == []


def test_a_publish_that_fails_is_a_line_and_is_made_up_for(tmp_path, capsys, monkeypatch):
    play(tmp_path)
    one = publisher(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("rmsweb_jax.records.growing.save_manifest", _full)
        one.try_to_publish()
    assert capsys.readouterr().err == "not published, what was stays readable: the disk is full\n"
    with pytest.raises(UserError, match="no finished data set here"):
        ids(tmp_path)
    with one.publishing(0.01):
        while not (tmp_path / "manifest.json").exists():
            pass
    assert len(ids(tmp_path)) == 6


def _full(*_):
    raise UserError("the disk is full")


def test_a_run_without_an_episode_publishes_nothing(tmp_path):
    one = publisher(tmp_path)
    one.publish()
    assert not (tmp_path / "manifest.json").exists()
    with pytest.raises(UserError, match="no records to write"):
        one.finish()
