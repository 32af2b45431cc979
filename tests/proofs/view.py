"""The viewer's speed on generated data: 100,000 episodes with a million steps. A quarter of an hour."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from collection.viewer.app import link
from collection.viewer.index import FILTERS
from rmsweb_jax.records.growing import GrowingDataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table
from tests.trajectories import CLICK, DONE, PNG, TYPE, step, trajectory

EPISODES, STEPS, LONG, CHUNK = 100_000, 10, 100, 2_000
SITES, WORDS = 150, ("hotel", "flight", "refund", "jacket", "museum", "ticket", "lamp", "coffee")
LEAST_PER_S, MOST_LIST_MS, MOST_EPISODE_MS, MOST_MB = 2_000, 300, 200, 500
_REPEATS = 5


def episode(number: int, steps: int = STEPS) -> Trajectory:
    """A run on pages of 60 lines, about 4 KB a step."""
    rng = random.Random(number)
    page = "\n".join(f"[{at}]<a href=/item/{rng.randrange(9999)}>{rng.choice(WORDS)} />" for at in range(60))
    acts = [rng.choice((CLICK, TYPE)) for _ in range(steps - 1)] + [DONE]
    made = tuple(
        step(at, act, page=page, memory=f"looked for a {rng.choice(WORDS)} {number}")
        for at, act in enumerate(acts, start=1)
    )
    return trajectory(
        *made,
        task_id=f"web/site-{number % SITES}/{number // 5}",
        attempt=1 + number % 5,
        success=number % 3 == 0,
        objective=f"Find a {rng.choice(WORDS)} under {number} dollars",
        outcome=("done", "done", "max_steps", "captcha", "failures")[number % 5],
        judge="reward" if number % 4 else "",
        seconds=rng.random() * 60,
    )


def records() -> Iterator[bytes]:
    """Every twentieth episode is new; the others differ from it in their ids and figures."""
    for first in range(0, EPISODES, 20):
        text = episode(first).model_dump_json()
        for number in range(first, first + 20):
            own = json.dumps(f"web/site-{number % SITES}/{number // 5}")[1:-1]
            named = text.replace(f"web/site-{first % SITES}/{first // 5}", own)
            yield named.replace("#teacher-1", f"#teacher-{number}").encode()


def generate(folder: Path) -> str:
    """Writes the data set; returns the id of an episode of 100 steps."""
    ImageStore(folder).put(PNG)
    growing, chunk = GrowingDataset(folder, "trajectories"), []
    for record in records():
        chunk.append(record)
        if len(chunk) == CHUNK:
            growing.publish(chunk, [], {})
            chunk = []
    long = episode(1, LONG).model_copy(update={"trajectory_id": "long"})
    growing.publish([*chunk, long.model_dump_json().encode()], [], {})
    return long.trajectory_id


def measure() -> Figures:
    with tempfile.TemporaryDirectory(prefix="rmsweb-view-") as name:
        root = Path(name)
        long = generate(root / "runs/data")
        size = sum(path.stat().st_size for path in (root / "runs").rglob("*.array_record"))
        command = [
            sys.executable,
            "-m",
            "experiments.view",
            "--port=0",
            f"--cache={root}",
            str(root / "runs"),
        ]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = server.stdout.readline().strip().rstrip("/")
                indexed_s = float(server.stdout.readline().split()[2])
                lists = _lists(address)
                episode_ms = _milliseconds(address + link("/episode", data="runs/data", id=long))
                memory = psutil.Process(server.pid).memory_info().rss / 1e6
            finally:
                server.terminate()
        index = sum(path.stat().st_size for path in root.glob("*.sqlite*"))
    return {
        "episodes": EPISODES + 1,
        "steps": EPISODES * STEPS + LONG,
        "disk_mb": round(size / 1e6),
        "index_mb": round(index / 1e6),
        "index_s": indexed_s,
        "index_per_s": round((EPISODES + 1) / indexed_s),
        "list_ms": max(lists.values()),
        "lists": lists,
        "episode_ms": episode_ms,
        "memory_mb": round(memory),
    }


def _lists(address: str) -> dict[str, int]:
    """Milliseconds of the first page, by what is asked for."""
    values = {
        "dataset": "runs/data",
        "site": "site-40",
        "category": "Other",
        "actor": "teacher",
        "attempt": "1",
        "outcome": "captcha",
        "result": "failed",
        "judge": "reward",
        "incidents": "",
    }
    asked = {name: {name: values[name]} for name in FILTERS if values[name]}
    asked |= {"none": {}, "words": {"q": "coffee jacket"}, "sort": {"sort": "-seconds"}}
    asked |= {"ranges": {"steps_from": "5", "tokens_from": "1", "date_from": "2020-01-01"}}
    asked |= {"words, filter and sort": {"q": "museum", "result": "solved", "sort": "-steps"}}
    return {name: _milliseconds(address + link("/episodes", **query)) for name, query in asked.items()}


def _milliseconds(address: str) -> int:
    """The median of five requests, the first left out."""
    took = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        with urllib.request.urlopen(address) as answer:
            answer.read()
        took.append(1000 * (time.perf_counter() - start))
    return round(statistics.median(took[1:]))


def claims(figures: Figures) -> list[Claim]:
    limits = {
        "index_per_s": (f"at least {LEAST_PER_S:,} episodes are indexed a second", LEAST_PER_S, True),
        "list_ms": (f"the first page of any list takes less than {MOST_LIST_MS} ms", MOST_LIST_MS, False),
        "episode_ms": (
            f"an episode of {LONG} steps takes less than {MOST_EPISODE_MS} ms",
            MOST_EPISODE_MS,
            False,
        ),
        "memory_mb": (f"the server takes less than {MOST_MB} MB", MOST_MB, False),
    }
    return [
        Claim(text, f"{figures[name]:,}", figures[name] >= limit if at_least else figures[name] < limit)
        for name, (text, limit, at_least) in limits.items()
    ]


def tables(figures: Figures) -> str:
    return table(("list filtered by", "ms"), [list(item) for item in figures["lists"].items()])


ABOUT = """\
`experiments.view` on {episodes} generated episodes with {steps} steps ({disk_mb} MB compressed; every
twentieth is new, the others differ in their ids). Times are medians of five requests over loopback. The index
takes {index_mb} MB. Memory is the server's resident size after all requests.
"""
PROOF = Proof("The viewer's speed", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
