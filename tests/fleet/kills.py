"""Runs with real browsers whose parent and workers are killed again and again; nothing is lost or doubled.

    python -m tests.fleet.kills --kills=100   # prints figures as JSON; a quarter of an hour of two cores

The parent is a process of its own, killed by SIGKILL at a drawn moment; or one of its workers is.
The same run is started again until it ends, and is then compared with one that was not killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from collection.fleet.rounds import Reflected
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.episodes import EPISODES, REFLECTION
from rmsweb_jax.records.journal import iter_journal
from rmsweb_jax.records.schema import Trajectory
from rmsweb_jax.records.tools import check_dataset
from tests.fleet.processes import kind_of

_RUN = """
import sys
from pathlib import Path
from collection.environments.miniwob import make_task
from collection.fleet.rounds import Job
from collection.fleet.run import run_tasks
from tests.fleet.test_local import PAGES, setup
if __name__ == "__main__":
    jobs = [Job(make_task(page, int(sys.argv[2])), 5, 2, True) for page in PAGES]
    run_tasks(jobs, Path(sys.argv[1]), setup(retries=10**6), None, "collect")
"""


def measure(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kills parents and workers in equal numbers.

    Returns:
      Number of kills of each, of episodes, and of faults: `lost`, or changed since they were on disk,
      `doubled` in a journal or a data set, and `different` from the run that was not killed.
    """
    draw, counts = random.Random(seed), Counter[str]()
    script = folder / "run.py"
    script.write_text(_RUN)
    number = 0
    while counts["parents"] + counts["workers"] < kills:
        workdir, whole = folder / f"{number}", folder / f"{number}-whole"
        before: dict[str, str] = {}
        while True:
            process = _start(script, workdir, number)
            # Of the workers, each start of which takes a while: from their start to the middle of an episode.
            while process.poll() is None and counts["parents"] + counts["workers"] < kills:
                wait = time.monotonic() + draw.uniform(0.5, 6.0)
                while not (workers := _workers(process)) and process.poll() is None:
                    time.sleep(0.05)
                while time.monotonic() < wait and process.poll() is None:
                    time.sleep(0.05)
                before |= _episodes(workdir)[0]
                victim = "parents" if counts["parents"] <= counts["workers"] else "workers"
                killed = process if victim == "parents" else draw.choice(_workers(process) or [None])
                if killed is not None and process.poll() is None:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        killed.kill()
                        counts[victim] += 1
                    if victim == "parents":
                        process.wait()
                        _wait_gone(workers)
            if process.wait() == 0:
                break
        _start(script, whole, number).wait()
        episodes, doubled = _episodes(workdir)
        found, wanted = (_records(one) for one in (workdir, whole))
        ids = [one.trajectory_id for one in read_dataset(workdir, Trajectory)]
        counts["runs"] += 1
        counts["episodes"] += len(ids)
        counts["lost"] += sum(episodes.get(one) != record for one, record in before.items())
        counts["lost"] += len(episodes.keys() - found.keys())
        counts["doubled"] += doubled + len(ids) - len(set(ids))
        counts["different"] += sum(found.get(one) != wanted.get(one) for one in found.keys() | wanted.keys())
        counts["problems"] += len(check_dataset(workdir).problems)
        number += 1
        print(json.dumps(counts), file=sys.stderr, flush=True)
    names = ("parents", "workers", "runs", "episodes", "lost", "doubled", "different", "problems")
    return {name: counts[name] for name in names}


def _start(script: Path, workdir: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(script), str(workdir), str(number)],
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        stderr=subprocess.DEVNULL,
    )


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.Error):
                found += [child] if kind_of(child) == "worker" else []
    return found


def _wait_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def _episodes(workdir: Path) -> tuple[dict[str, str], int]:
    """Returns the whole records of a journal, episodes and reflections, by name; and how many repeat one."""
    records, doubled = {}, 0
    path = workdir / EPISODES
    for _, record in iter_journal(path) if path.exists() else ():
        if record.startswith(REFLECTION):
            one = Reflected.model_validate_json(record).reflection
            name = f"reflection {one.task_id} {one.attempt}"
        else:
            name = Trajectory.model_validate_json(record).trajectory_id
        doubled += name in records
        records[name] = record.decode()
    return records, doubled


def _records(workdir: Path) -> dict[str, Any]:
    """The records of a finished run, less what the kills change: seconds and retries."""
    lines = (workdir / "reflections.jsonl").read_text().splitlines()
    reflections = [json.loads(line) for line in lines]
    found = {f"reflection {one['task_id']} {one['attempt']}": one for one in reflections}
    for one in read_dataset(workdir, Trajectory):
        found[one.trajectory_id] = one.model_copy(update={"seconds": 0.0, "retries": 0})
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments.kills, arguments.seed, Path(folder))))
