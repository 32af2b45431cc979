"""Proof that Ray and a Selenium Grid play what the local pool plays, with an actor and a node killed.

    python -m tests.fleet.proof_ray --output=docs/results/ray.md

Ray is installed into build/, not into the environment; the grid's jar comes from npm. Java is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

import psutil

from tests.apart import install_apart
from tests.fleet.grid import Grid
from tests.fleet.proof_kill import settings
from tests.fleet.watched import ROOT, Compared, Watched, compare

FOLDER = ROOT / "build" / "ray"
REQUIREMENTS = Path(__file__).with_name("ray.txt")
RAY = ("--config.fleet.engine=ray",)
_MODULE = "experiments.collect"


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
    # Nobody but the machine of a node can end what the node has started.
    for process in orphans:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return max(busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    install_apart(REQUIREMENTS, FOLDER)
    with tempfile.TemporaryDirectory(prefix="") as name:
        rows, holds = prove(Path(name), options.episodes)
    command = f"python -m tests.fleet.proof_ray --episodes={options.episodes} --output={options.output}"
    text = _REPORT.format(command=command, rows="\n".join(rows), episodes=options.episodes)
    print(text)
    options.output.write_text(text)
    if not holds:
        raise SystemExit("error: not every line holds")


def prove(folder: Path, episodes: int) -> tuple[list[str], bool]:
    """Plays all runs; returns the table's rows and whether all are as the local one."""
    base = settings(episodes)
    local = Watched(folder / "a", base, _MODULE)
    seconds = [_timed(local.finish)]
    wanted = local.played()
    ray = Watched(folder / "b", [*base, *RAY], _MODULE, [FOLDER])
    seconds.append(_timed(lambda: with_killed_actor(ray, episodes)))
    sessions = 0
    with Grid(folder / "grid", nodes=2, sessions=2) as grid:
        both = Watched(
            folder / "c", [*base, *RAY, f"--config.browser.grid_url={grid.url}"], _MODULE, [FOLDER]
        )

        def play() -> None:
            nonlocal sessions
            sessions = with_killed_node(both, grid, episodes)

        seconds.append(_timed(play))
    found = [compare(wanted, run.played()) for run in (ray, both)]
    for name in (name for one in found for name in (*one.lost, *one.doubled, *one.different)):
        print(name)
    rows = [
        f"| local pool, 2 workers | {len(wanted)} | - | {seconds[0]:.0f} | - |",
        _row("Ray, 2 actors; one killed", found[0], seconds[1]),
        _row(f"Ray, and a grid of 2 nodes; one killed with {sessions} sessions", found[1], seconds[2]),
    ]
    return rows, all(one.equal for one in found)


def _timed(function) -> float:
    start = time.monotonic()
    function()
    return time.monotonic() - start


def _row(name: str, found: Compared, seconds: float) -> str:
    faults = f"{len(found.lost)} lost, {len(found.doubled)} doubled, {len(found.different)} different"
    return f"| {name} | {found.wanted} | {faults} | {seconds:.0f} | {'yes' if found.equal else 'NO'} |"


_REPORT = """# The same run on Ray and on a Selenium Grid

    make proof-ray

`{command}`

{episodes} episodes on MiniWoB++ (two rounds of each task, with reflection), scripted teacher, two workers:
by the local pool, by actors on Ray 2.60 with browsers beside them, and by actors on Ray with browsers on a
Selenium Grid 4.48 of a hub and two nodes. All is on one machine. After a third of the episodes an actor, or
a node that is playing, gets SIGKILL. Trajectories are compared with those of the local pool in everything
but seconds.

| run | episodes | against the local pool | seconds | same |
|---|---|---|---|---|
{rows}

A node that is killed leaves its browsers to its machine; the proof ends them itself.
"""


if __name__ == "__main__":
    main()
