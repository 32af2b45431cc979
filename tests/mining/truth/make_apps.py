"""Plays failed runs at the real applications, and finds the last critical step of each by taking over.

    python -m tests.mining.truth.make_apps --each=20 --policies=runs/apps_sft,runs/apps_llm

Failed runs are those of policies and language models, in data sets of `experiments.collect` or `evaluate`,
and those of the hand-written policies (`tests/apps`) with one mistake, at any of their steps. Before each
step, and after the last one, the state is put back, and the hand-written policy goes on with the steps that
the run had left. It goes on from where its own run was at the same page and state, begins here, or goes back
to an earlier page. It knows only pages that the failed run has seen, too, and undoes nothing that its plan
does not change. A task of which there is a truth already is not played again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.util import Finalize
from pathlib import Path

from collection.browser.config import BrowserConfig, BrowserLostError, PageError, RestoreError
from collection.browser.guard.config import GuardConfig
from collection.environments.apps.suite import NAMES, level, prepared
from collection.environments.apps.tasks import template_task
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Message, Task, TextPart, Trajectory
from rmsweb_jax.settings import from_config
from tests.mining.truth.runs import Truth, path_of, read, write
from tests.mining.truth.takeover import DiffersError, Taker

FIRST_SEED = 5000
# A shorter success has no step to mine but its answer.
LEAST_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Job:
    """A task and runs of it that failed, or how many runs with a mistake are played.

    Attributes:
      browser, actions, steps: of the failed runs: their browser, its actions beyond the usual ones, and the
        maximum number of steps.
    """

    task: Task
    failed: tuple[Trajectory, ...] = ()
    erring: int = 0
    browser: BrowserConfig = BrowserConfig()
    actions: tuple[str, ...] = ()
    steps: int = 0


@dataclasses.dataclass(frozen=True)
class Made:
    """Runs, the truth about those that failed, the seconds of each, and what came of runs and tasks.

    Attributes:
      counts: runs that `failed`, were `solved` in spite of a mistake, or came to other pages (`differs`);
        tasks that the hand-written policy does not solve (`unsolved`), or in too few steps (`short`), and
        whose browser was `lost`.
    """

    runs: list[Trajectory] = dataclasses.field(default_factory=list)
    truths: list[Truth] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: Made) -> None:
        self.runs.extend(other.runs)
        self.truths.extend(other.truths)
        self.seconds.extend(other.seconds)
        self.counts.update(other.counts)


class Maker:
    """Plays jobs in one process."""

    def __init__(self, apps: str) -> None:
        self._apps = apps
        self._pools: dict[str, BrowserPool] = {}

    def close(self) -> None:
        while self._pools:
            self._pools.popitem()[1].close()

    def make(self, job: Job) -> Made:
        made, key = Made(), job.browser.model_dump_json()
        if key not in self._pools:
            self._pools[key] = BrowserPool(job.browser, GuardConfig(), RecyclePolicy(), apps=self._apps)
        pool, web = self._pools[key], WebConfig(extra_actions=job.actions)
        with tempfile.TemporaryDirectory(prefix="rmsweb-truth-") as folder:
            images, files = ImageStore(Path(folder)), Path(folder) / "files"
            try:
                with pool.environment(job.task, pool.browser(job.task), images, files, web) as environment:
                    application = pool.application(job.task.task_id.partition("/")[0])
                    _make(job, Taker(environment, application, images, job.task), made)
            except (BrowserLostError, PageError):
                pool.discard()
                made.counts["lost"] += 1
        return made


def _make(job: Job, taker: Taker, made: Made) -> None:
    success = taker.success
    if not success.success or (job.erring and len(success.steps) < LEAST_STEPS):
        made.counts["short" if success.success else "unsolved"] += 1
        return
    for number, failed in enumerate(job.failed or [None] * job.erring, 1):
        start = time.monotonic()
        try:
            run, points = taker.again(failed, job.steps) if failed else taker.err(number)
            if run.success:
                made.counts["solved"] += 1
                continue
            # Each has a task of its own, since a miner makes one decision for each.
            pair = [renamed(one, f"{run.actor}-{run.attempt}") for one in (success, run)]
            made.truths.append(taker.truth(pair[1], points))
        except (DiffersError, RestoreError) as error:
            print(f"{job.task.task_id}: {error!r}", flush=True)
            made.counts["differs"] += 1
        else:
            made.runs.extend(pair)
            made.seconds.append(time.monotonic() - start)
            made.counts["failed"] += 1


def renamed(run: Trajectory, name: str) -> Trajectory:
    """The run as one of another task, without its prompts: miners read pages and replies."""
    task = run.task.model_copy(update={"task_id": f"{run.task.task_id}/{name}"})
    prompt = (Message(role="user", content=(TextPart(text="left out"),)),)
    steps = tuple(step.model_copy(update={"messages": prompt, "extractions": ()}) for step in run.steps)
    name = f"{task.task_id}#{run.actor}-{run.attempt}"
    return run.model_copy(update={"task": task, "trajectory_id": name, "steps": steps})


_maker: list[Maker] = []


def _begin(apps: str) -> None:
    exit_with_parent()
    _maker.append(Maker(apps))
    Finalize(_maker[0], _maker[0].close, exitpriority=10)


def _play(job: Job) -> Made:
    return _maker[0].make(job)


def erring_jobs(
    names: Sequence[str], levels: Sequence[str], each: int, erring: int, apps: str
) -> Iterator[Job]:
    """So many tasks of each application, drawn from as few worlds as have them."""
    for application in prepared(names, apps):
        templates = [name for name in application.templates if level(application.name, name) in levels]
        worlds = range(FIRST_SEED, FIRST_SEED - -each // len(templates))
        tasks = [(name, seed) for seed in worlds for name in templates]
        for name, seed in random.Random(application.name).sample(tasks, each):
            yield Job(template_task(application, name, seed).task, erring=erring)


def policy_jobs(folder: str) -> Iterator[Job]:
    """The tasks at applications at which the runs of a data set failed."""
    config = json.loads((Path(folder) / "config.json").read_bytes())
    browser, steps = from_config(BrowserConfig, config["browser"]), config["limits"]["max_steps"]
    failed = defaultdict[str, list[Trajectory]](list)
    for run in read_dataset(folder, Trajectory):
        if run.task.environment == "app" and run.steps and not run.success:
            failed[run.task.task_id].append(run)
    for runs in failed.values():
        yield Job(runs[0].task, tuple(runs), 0, browser, tuple(config["extra_actions"]), steps)


def report(made: Made) -> None:
    groups = defaultdict[tuple[str, str], list[Truth]](list)
    for truth in made.truths:
        for key in ((truth.page, "all actors"), ("all", truth.actor), ("all", "all actors")):
            groups[key].append(truth)
    for (page, actor), truths in sorted(groups.items()):
        known = [truth for truth in truths if truth.step]
        last = sum(truth.step == max(truth.handovers) for truth in known)
        print(f"{page}, {actor}: {len(truths)} failed, {len(known)} with a critical step, {last} at the end")
    seconds = statistics.mean(made.seconds or [0])
    print(f"{dict(made.counts)}, {seconds:.0f} s for the truth about a run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    names = functools.partial(str.split, sep=",")
    parser.add_argument("--apps", type=names, default=NAMES)
    parser.add_argument("--levels", type=names, default=("easy", "medium", "hard"))
    parser.add_argument("--each", type=int, default=20, help="tasks of each application")
    parser.add_argument("--erring", type=int, default=2, help="runs with a mistake, of each of these tasks")
    parser.add_argument("--policies", type=names, default=())
    parser.add_argument("--apps_folder", default="build/apps")
    parser.add_argument("--workers", type=int, default=2)
    flags = parser.parse_args()
    todo = list(erring_jobs(flags.apps, flags.levels, flags.each, flags.erring, flags.apps_folder))
    todo += [job for folder in flags.policies for job in policy_jobs(folder)]
    made, context = Made(), multiprocessing.get_context("spawn")
    if path_of("apps").exists():
        before = read("apps")
        made.runs.extend(before.runs)
        made.truths.extend(before.truths)
        done = {truth.task_id.rpartition("/")[0] for truth in before.truths}
        todo = [job for job in todo if job.task.task_id not in done]
    settings = {"initializer": _begin, "initargs": (flags.apps_folder,)}
    with ProcessPoolExecutor(flags.workers, context, **settings) as executor:
        for number, one in enumerate(executor.map(_play, todo), 1):
            made.add(one)
            if one.truths:
                write("apps", made.runs, made.truths)
            print(f"{number} of {len(todo)}: {dict(made.counts)}", flush=True)
    report(made)


if __name__ == "__main__":
    main()
