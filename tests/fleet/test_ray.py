"""Two nodes of Ray on this machine, with real browsers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collection.environments.miniwob import make_task
from collection.fleet.fleet import run_tasks
from collection.fleet.rounds import Job
from collection.fleet.run import Run
from rmsweb_jax.records.tools import check_dataset
from tests.fleet.test_local import PAGES, assert_equal, setup

ray = pytest.importorskip("ray")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster of two nodes with room for a worker each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        ray.init(address=cluster.address)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
def test_two_nodes_give_the_records_of_this_machine(
    nodes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(make_task(page, seed), 5, 2, True) for page in PAGES for seed in range(2)]
    local, far = tmp_path / "local", tmp_path / "far"
    wanted = run_tasks(jobs, local, setup(), None, "collect")
    wait, used = Run.wait_seconds, set[str]()

    def look(self: Run) -> float:
        actors = ray._private.state.actors().values()
        used.update(one["Address"]["NodeID"] for one in actors if one["State"] == "ALIVE")
        return wait(self)

    monkeypatch.setattr(Run, "wait_seconds", look)
    found = run_tasks(jobs, far, setup(engine="ray"), None, "collect")
    assert len(used) == 2
    assert_equal(found, wanted)
    assert (far / "reflections.jsonl").read_bytes() == (local / "reflections.jsonl").read_bytes()
    assert not check_dataset(far).problems and sorted(found.set_aside) == []
