"""Mining gives the same bytes for any layout of its pools, any number of processes, and after a kill."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collection.mining import mine
from rmsweb_jax.records.schema import Trajectory
from tests.mining.disk_pools import mine_pools_at, outcome, put_pool
from tests.mining.runs import failure_of, success_of, tied_runs

ROOT = Path(__file__).parents[2]


@functools.cache
def large() -> list[Trajectory]:
    alone = [success_of(11, attempt=attempt, actor=actor) for actor in ("sft", "base") for attempt in (1, 2)]
    hopeless = [failure_of(12, attempt=attempt) for attempt in (1, 2, 3)]
    return [*tied_runs(11), *alone, *hopeless]


@pytest.fixture(scope="module")
def in_order(tmp_path_factory) -> dict[str, bytes]:
    """The result of mining one data set in the order of writing, in one process."""
    folder = tmp_path_factory.mktemp("in_order")
    report = mine_pools_at(folder / "mine", put_pool(folder / "pool", large()))
    assert report["tasks"] == 13 and report["prompts"] > 5 and len(report["categories"]) == 11
    return outcome(folder / "mine")


def spread(folder: Path, runs: list[Trajectory], data_sets: int, shard_size: int, seed: int) -> list[Path]:
    """The runs, shuffled, in several data sets; some of them twice."""
    order = random.Random(seed)
    shuffled = order.sample(runs, len(runs))
    shares: list[list[Trajectory]] = [shuffled[number::data_sets] for number in range(data_sets)]
    shares[0] = shares[0] + order.sample(shuffled, 3)
    folders = [put_pool(folder / f"{seed}-{at}", share, shard_size) for at, share in enumerate(shares)]
    return order.sample(folders, len(folders))


@pytest.mark.parametrize(("data_sets", "shard_size"), [(1, 1024), (5, 1)])
def test_the_order_of_runs_and_where_they_lie_decide_nothing(tmp_path, in_order, data_sets, shard_size):
    folders = spread(tmp_path, large(), data_sets, shard_size, seed=data_sets)
    mine_pools_at(tmp_path / "mine", *folders)
    assert outcome(tmp_path / "mine") == in_order


def test_two_processes_give_the_same_result_as_one(tmp_path, in_order, monkeypatch):
    monkeypatch.setattr(mine, "_SMALL_BYTES", 0)
    processes = []
    make = mine.ProcessPoolExecutor
    monkeypatch.setattr(
        mine,
        "ProcessPoolExecutor",
        lambda *args, **options: processes.append(args[0]) or make(*args, **options),
    )
    mine_pools_at(tmp_path / "mine", *spread(tmp_path, large(), 2, 5, seed=8), workers=2)
    assert processes == [2]
    assert outcome(tmp_path / "mine") == in_order


def test_the_hashes_of_strings_decide_nothing(tmp_path, in_order):
    folder = put_pool(tmp_path / "pool", large())
    options = (f"--config.pools={folder}", f"--workdir={tmp_path / 'mine'}", "--config.workers=1")
    result = subprocess.run(
        [sys.executable, "-m", "experiments.mine", "--config=configs/mine.py:demo", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert outcome(tmp_path / "mine") == in_order


def test_a_finished_run_is_left_alone(tmp_path):
    folder = put_pool(tmp_path / "pool", tied_runs(3))
    first = mine_pools_at(tmp_path / "mine", folder)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")}
    assert mine_pools_at(tmp_path / "mine", folder) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").rglob("*")} == stamps


def test_no_process_outlives_a_run_that_is_killed(tmp_path, in_order):
    folder = put_pool(tmp_path / "pool", large())
    command = [sys.executable, "-m", "tests.mining.kill_mine", str(tmp_path / "mine"), str(folder)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout
    children = json.loads(run.stdout.readline())
    assert len(children) == 2
    try:
        # They share its output, which ends when the last of them does.
        run.communicate(timeout=3000)
    except subprocess.TimeoutExpired:
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    assert run.returncode == -signal.SIGKILL
    mine_pools_at(tmp_path / "mine", folder)
    assert outcome(tmp_path / "mine") == in_order
