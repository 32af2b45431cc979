"""Snapshots of episodes: put back in another browser and finished there; one browser and eight. Half an hour.

What each environment has given is kept in docs/results/snapshots, and only what is missing there is measured;
APPS=trac,miniwob measures these again, EACH=5 plays so many episodes of each and writes nothing.
"""

from __future__ import annotations

import difflib
import json
import math
import multiprocessing
import os
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

from collection.browser.config import BrowserConfig, RestoreError
from collection.browser.guard.config import GuardConfig
from collection.environments.apps.suite import NAMES, prepared
from collection.environments.apps.tasks import template_task
from collection.environments.base import Environment
from collection.environments.miniwob import make_task
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from configs.collect import get_config
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task
from tests.apps.actor import NotShownError
from tests.apps.policies import policies_of
from tests.environments.forks import Decide, Episode, oracle, teacher
from tests.proofs.page import RESULTS, ROOT, publish, table

MINIWOB = "miniwob"
PAGES: Any = get_config("demo").pages
EPISODES, FIRST_SEED = 25, 1000
BROWSERS, RESTORES = 8, 5
MOST_MS = 500
COUNTS = ("episodes", "taken", "restored", "same_prompt", "finished")
LISTS = ("failed", "refused")
APPS = str(ROOT / "build/apps")
KEPT = RESULTS / "snapshots"
Case = tuple[Task, Callable[[], Decide]]


@contextmanager
def opened(task: Task, pool: BrowserPool) -> Iterator[Environment]:
    with tempfile.TemporaryDirectory(prefix="rmsweb-snapshots-") as folder:
        images = ImageStore(Path(folder))
        browser = pool.browser(task)
        with pool.environment(task, browser, images, Path(folder) / "files", WebConfig()) as environment:
            yield environment


def new_pool() -> BrowserPool:
    return BrowserPool(BrowserConfig(), GuardConfig(), RecyclePolicy(), apps=APPS)


def cases(name: str, pool: BrowserPool, number: int) -> list[Case]:
    """Draws so many tasks of an application, or of MiniWoB++, each with the policy that solves it."""
    found: list[Case] = []
    for seed in range(FIRST_SEED, FIRST_SEED + number):
        if name == MINIWOB:
            found += [(make_task(page, seed), lambda: teacher) for page in PAGES]
            continue
        application = pool.application(name)
        for template, policy in policies_of(name).items():
            task = template_task(application, template, seed).task
            found.append((task, lambda policy=policy: oracle(policy)))
    return random.Random(name).sample(found, number)


def measure(name: str, number: int) -> tuple[dict[str, Any], list[tuple[Task, bytes]]]:
    """Plays in one browser with a snapshot before each step, and from the middle one on in another.

    Returns:
      What came of it, and the snapshots from which an episode was finished.
    """
    found: dict[str, Any] = {"episodes": number, "taken": 0, "restored": 0, "same_prompt": 0, "finished": 0}
    found |= {"failed": [], "refused": [], "snapshot_ms": [], "restore_ms": [], "kilobytes": []}
    kept = []
    with new_pool() as pool, new_pool() as other:
        for task, policy in cases(name, pool, number):
            with opened(task, pool) as environment, opened(task, other) as second:
                played = Episode(environment, environment.reset(task))
                taken: list[tuple[bytes, Episode]] = []
                try:
                    for _ in played.steps(policy()):
                        start = time.perf_counter()
                        snapshot = environment.snapshot()
                        found["snapshot_ms"].append(1000 * (time.perf_counter() - start))
                        taken.append((pickle.dumps(snapshot), played.fork(second)))
                except (AssertionError, LookupError, NotShownError, RuntimeError) as error:
                    found["failed"].append(f"{task.task_id}: the policy fails: {error!r}")
                    print(found["failed"][-1], flush=True)
                    continue
                if environment.reward() != 1:
                    found["failed"].append(f"{task.task_id}: the policy does not solve it")
                    print(found["failed"][-1], flush=True)
                    continue
                found["taken"] += 1
                snapshot, rest = taken[len(taken) // 2]
                found["kilobytes"].append(len(snapshot) / 1000)
                start = time.perf_counter()
                try:
                    second.restore(pickle.loads(snapshot))
                except RestoreError as error:
                    found["refused"].append(f"{task.task_id}: {error}")
                    print(found["refused"][-1], flush=True)
                    continue
                found["restore_ms"].append(1000 * (time.perf_counter() - start))
                found["restored"] += 1
                decide, step = policy(), len(rest.texts)
                for text in rest.texts:
                    decide(text)
                for _ in rest.steps(decide):
                    pass
                found["same_prompt"] += rest.texts[step] == played.texts[step]
                if rest.texts[step] != played.texts[step]:
                    then, now = played.texts[step].splitlines(), rest.texts[step].splitlines()
                    print(task.task_id, *difflib.unified_diff(then, now, n=0, lineterm=""), sep="\n")
                paid = second.reward() == 1
                found["finished"] += paid
                if not paid:
                    print(f"{task.task_id}: restored before step {step + 1}, not paid", flush=True)
                kept.append((task, snapshot))
    return found, kept


def _restore_at_once(task: Task, snapshot: bytes, barrier: Barrier) -> list[float]:
    """Milliseconds of each restore, in a browser of this process's own."""
    with new_pool() as pool, opened(task, pool) as environment:
        environment.restore(pickle.loads(snapshot))  # Starts the browser and its application.
        barrier.wait()
        taken = []
        for _ in range(RESTORES):
            start = time.perf_counter()
            environment.restore(pickle.loads(snapshot))
            taken.append(1000 * (time.perf_counter() - start))
    return taken


def at_once(task: Task, snapshot: bytes) -> list[float]:
    """Restores one snapshot in eight browsers with their own applications, all at the same time."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(BROWSERS, mp_context=context) as workers:
        barrier: Any = manager.Barrier(BROWSERS)
        parts = [workers.submit(_restore_at_once, task, snapshot, barrier) for _ in range(BROWSERS)]
        return [ms for part in parts for ms in part.result()]


def row(name: str, number: int) -> dict[str, Any]:
    found, kept = measure(name, number)
    print(name, {key: value for key, value in found.items() if not isinstance(value, list)}, flush=True)
    together = at_once(*kept[0]) if kept else []
    return {
        "environment": name,
        **{key: found[key] for key in COUNTS},
        "snapshot_ms": quantile(found["snapshot_ms"], 0.5),
        "restore_ms": quantile(found["restore_ms"], 0.5),
        "restore_ms_p90": quantile(found["restore_ms"], 0.9),
        "eight_at_once_ms": quantile(together, 0.5),
        "kilobytes": quantile(found["kilobytes"], 0.5),
        **{key: found[key] for key in LISTS},
    }


def quantile(values: list[float], part: float) -> float | None:
    """None without values."""
    return round(float(np.quantile(values, part)), 1) if values else None


def main() -> None:
    asked = [name for name in os.environ.get("APPS", "").split(",") if name]
    number = int(os.environ.get("EACH", EPISODES))
    names = (*NAMES, MINIWOB)
    missing = asked or [name for name in names if not (KEPT / f"{name}.json").exists()]
    prepared([name for name in missing if name != MINIWOB], APPS)
    for name in missing:
        found = row(name, number)
        print(table([found]), flush=True)
        if number == EPISODES:
            KEPT.mkdir(exist_ok=True)
            write_atomic(KEPT / f"{name}.json", json.dumps(found, indent=1).encode())
    if number == EPISODES:
        _publish(
            [json.loads(path.read_bytes()) for name in names if (path := KEPT / f"{name}.json").exists()]
        )


def _publish(rows: list[dict[str, Any]]) -> None:
    total = {key: sum(one[key] for one in rows) for key in COUNTS}
    slowest = max(one["restore_ms"] or math.inf for one in rows if one["environment"] != MINIWOB)
    failed = [line for one in rows for line in one["failed"]]
    checks = [
        ("all environments are measured", f"{len(rows)} of {len(NAMES) + 1}", len(rows) == len(NAMES) + 1),
        (
            "the policies finish their episodes in the first browser",
            "; ".join((f"{total['taken']} of {total['episodes']}", *failed)),
            total["taken"] == total["episodes"],
        ),
        (
            "a snapshot in the middle is put back in another browser",
            f"{total['restored']} of {total['taken']}",
            total["restored"] == total["taken"],
        ),
        (
            "the agent is shown the same state message there, to the character",
            f"{total['same_prompt']} of {total['restored']}",
            total["same_prompt"] == total["restored"],
        ),
        (
            "what was put back is finished and paid",
            f"{total['finished']} of {total['restored']}",
            total["finished"] == total["restored"],
        ),
        (
            f"an application is put back with its page in less than {MOST_MS} ms, in the median",
            f"{slowest} ms at most",
            slowest < MOST_MS,
        ),
    ]
    about = f"""\
**No baseline, no control:** the episode in the first browser is the reference. No episode goes on from a mere
reset, and nothing is left out of a snapshot on purpose, so the page does not say how many need theirs.

Policies written by hand play {EPISODES} tasks of each application, and the scripted teacher as many of
MiniWoB++, in one browser, with a snapshot before each step. From the middle one the same policy goes on in
another browser with another instance of the application. Then {BROWSERS} browsers, each with an instance of
its own, restore one snapshot {RESTORES} times at the same time. MiniWoB++ is put back by its seed and by
repeating the steps."""
    shown = [{name: value for name, value in one.items() if name not in LISTS} for one in rows]
    publish("snapshots", "Snapshots of episodes", about, {"environments": rows}, checks, table(shown))


if __name__ == "__main__":
    main()
