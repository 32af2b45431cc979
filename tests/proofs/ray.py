"""The same run by the local pool, on Ray with and without a common disk, and on a Selenium Grid. Java.

An actor and nodes of both clusters are killed meanwhile.

Ray is installed into build/, not into the environment; the grid's jar comes from npm.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.apart import install_apart
from tests.fleet.grid import Grid
from tests.fleet.ray_nodes import RayNodes
from tests.fleet.watched import ROOT, Watched, compare
from tests.proofs.collector_kill import settings
from tests.proofs.result import Claim, Figures, Proof, main, table

FOLDER = ROOT / "build" / "ray"
REQUIREMENTS = Path(__file__).with_name("ray.txt")
RAY = ("--config.fleet.engine=ray",)
_MODULE = "experiments.collect"
NODES, KILLED = 4, 2
# A secret that the agent may type: set for the driver alone, and to something else on the nodes.
SECRET = "RMSWEB_PROOF_SECRET"
ACTOR = '{"num_cpus": 1, "resources": {"browser": 1}, "runtime_env": {"env_vars": {"RMSWEB_PROOF": "1"}}}'


def with_killed_actor(run: Watched, episodes: int) -> None:
    """A run on Ray; one of its actors is killed after a third of the episodes."""
    run.start()
    run.until(lambda: run.count_episodes() >= episodes // 3 and bool(run.processes("worker")))
    run.processes("worker")[0].kill()
    run.finish_started()


def with_killed_node(run: Watched, grid: Grid, episodes: int) -> int:
    """A run on Ray and a grid; a node that plays is killed after a third of the episodes.

    Returns:
      How many sessions it had.
    """
    run.start()
    run.until(lambda: run.count_episodes() >= episodes // 3 and sum(grid.busy()) == 2)
    busy = grid.busy()
    node = grid.nodes[busy.index(max(busy))]
    orphans = psutil.Process(node.pid).children(recursive=True)
    node.kill()
    run.finish_started()
    # Processes of a node can be ended only from its own machine.
    for process in orphans:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return max(busy)


def with_killed_ray_nodes(run: Watched, ray: RayNodes, episodes: int) -> int:
    """A run on nodes without a common disk, of which two are killed, after a third and half of the episodes.

    Returns:
      The number of the nodes' processes that could have read the driver's folder.
    """
    run.start()
    seeing = 0
    for share in (1 / 3, 1 / 2):
        run.until(lambda share=share: run.count_episodes() >= share * episodes and bool(ray.busy()))
        seeing += ray.seeing()
        ray.kill(ray.busy()[0])
    run.finish_started()
    return seeing


def measure(episodes: int = 60) -> Figures:
    install_apart(REQUIREMENTS, FOLDER)
    # Otherwise the first cluster would write a token into the home folder, which heads take and nodes do not.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with tempfile.TemporaryDirectory(prefix="") as name:
        runs, seeing = _play(Path(name), episodes)
        return {"episodes": episodes, "nodes": NODES, "nodes_killed": KILLED, "seeing": seeing, "runs": runs}


def _play(folder: Path, episodes: int) -> tuple[list[dict[str, Any]], int]:
    os.environ[SECRET] = "of the driver"
    base = [*settings(episodes), f"--config.secrets=('{SECRET}',)"]
    local = Watched(folder / "a", base, _MODULE)
    seconds = [_timed(local.finish)]
    wanted = local.played()
    ray = Watched(folder / "b", [*base, *RAY], _MODULE, [FOLDER])
    seconds.append(_timed(lambda: with_killed_actor(ray, episodes)))
    sessions = 0
    with Grid(folder / "grid", nodes=2, sessions=2) as grid:
        settings_of_both = [*base, *RAY, f"--config.browser.grid_url={grid.url}"]
        both = Watched(folder / "c", settings_of_both, _MODULE, [FOLDER])

        def play() -> None:
            nonlocal sessions
            sessions = with_killed_node(both, grid, episodes)

        seconds.append(_timed(play))
    apart = Watched(folder / "d", base, _MODULE, [FOLDER])
    seeing = 0
    with RayNodes(folder / "r", FOLDER, apart.folder, NODES, {SECRET: "of a node"}) as nodes:
        cluster = (f"--config.fleet.workers={NODES}", f"--config.fleet.ray_address={nodes.address}")
        apart.add(*RAY, *cluster, f"--config.fleet.ray_actor={ACTOR}")

        def play_apart() -> None:
            nonlocal seeing
            seeing = with_killed_ray_nodes(apart, nodes, episodes)

        seconds.append(_timed(play_apart))
    names = (
        "Ray, 2 actors; one killed",
        f"Ray, and a grid of 2 nodes; one killed with {sessions} sessions",
        f"Ray on {NODES} nodes without a common disk; {KILLED} killed",
    )
    rows: list[dict[str, Any]] = [
        {"run": "local pool, 2 workers", "episodes": len(wanted), "seconds": round(seconds[0])}
    ]
    for name, run, took in zip(names, (ray, both, apart), seconds[1:], strict=True):
        found = compare(wanted, run.played())
        print(*found.lost, *found.doubled, *found.different, sep="\n")
        faults = {kind: len(getattr(found, kind)) for kind in _FAULTS}
        rows.append({"run": name, "episodes": found.wanted, "seconds": round(took)} | faults)
    return rows, seeing


def _timed(function: Callable[[], None]) -> float:
    start = time.monotonic()
    function()
    return time.monotonic() - start


def claims(figures: Figures) -> list[Claim]:
    return [
        Claim(
            f"{row['run']}: the same episodes as from the local pool",
            f"of {row['episodes']}: {', '.join(f'{row[fault]} {fault}' for fault in _FAULTS)}",
            not any(row[fault] for fault in _FAULTS),
        )
        for row in figures["runs"][1:]
    ] + [
        Claim(
            "the driver's folder is not there on the nodes",
            f"{figures['seeing']} processes of nodes see it",
            figures["seeing"] == 0,
        )
    ]


def tables(figures: Figures) -> str:
    return table(("run", "seconds"), [(row["run"], row["seconds"]) for row in figures["runs"]])


_FAULTS = ("lost", "doubled", "different")
ABOUT = """\
{episodes} episodes on MiniWoB++ (two rounds of each task, with reflection) are played by the scripted teacher
and two workers: by the local pool, by actors on Ray 2.60 with browsers on the same machine, and by actors on
Ray with browsers on a Selenium Grid 4.48 of a hub and two nodes. All is on one machine. After a third of the
episodes an actor, or a node that is playing, gets SIGKILL. Trajectories are compared with those of the local
pool in everything but seconds. A killed node of the grid leaves its browsers running; the proof ends them.

The last run has {nodes} Ray nodes, each with an address on loopback and a mount namespace of its own, in
which `/tmp` is empty and the driver's folder is covered. Actors ask for a resource of the nodes.
{nodes_killed} nodes that play are killed with all their processes, after a third and half of the episodes.
A secret of the run is set in the driver's environment, and to something else on the nodes.
"""
PROOF = Proof(
    "The same run on Ray and on a Selenium Grid", ABOUT, measure, claims, tables, ("selenium",), browser=True
)

if __name__ == "__main__":
    main(PROOF)
