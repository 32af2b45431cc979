"""Plays runs of three kinds of actors in a browser, and finds the last critical step of each failed one.

    python -m tests.mining.truth.make --seeds=24 --policies=runs/sft_policy,runs/early_policy

The scripted teacher makes one mistake in each of its runs. The runs of policies (in the set: the demo's SFT
policy, and one of a sixth of its training) are collected before, on `PAGES` from `FIRST_SEED` on:

    python -m experiments.collect --config=configs/collect.py:demo_policy --config.actor.model=MODEL \
        --config.actor.label=sft --config.pages=PAGES --config.first_seed=7000 --config.seeds=6

A competent actor, the teacher without mistakes, goes on from each step. Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from collection.agent.config import EpisodeLimits, PromptConfig
from collection.browser.config import BrowserConfig
from collection.environments.miniwob import make_task
from collection.mining.replay import Player, Trial, move_reply
from collection.mining.runs import parse_run
from collection.teacher.mistakes import WEIGHTS, MistakeConfig
from collection.teacher.teacher import ScriptedTeacher
from configs.collect import DEMO_EPISODES
from rmsweb_jax.actions import recorded_reply, render_reply
from rmsweb_jax.processes import exit_with_parent
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task, Trajectory
from tests.mining.truth.runs import Part, Truth, part_of, write

# Pages that the teacher without mistakes solves; the demo collects on the first seeds.
PAGES = [
    "choose-list",
    "click-button",
    "click-button-sequence",
    "click-checkboxes",
    "click-checkboxes-transfer",
    "click-collapsible",
    "click-collapsible-2",
    "click-collapsible-2-nodelay",
    "click-collapsible-nodelay",
    "click-dialog",
    "click-dialog-2",
    "click-link",
    "click-option",
    "click-tab",
    "click-tab-2",
    "click-tab-2-easy",
    "click-tab-2-medium",
    "click-test-2",
    "click-test-transfer",
    "enter-password",
    "enter-text",
    "enter-text-dynamic",
    "focus-text",
    "focus-text-2",
    "login-user",
    "navigate-tree",
    "search-engine",
    "unicode-test",
    "use-autocomplete",
    "use-autocomplete-nodelay",
]
FIRST_SEED, FURTHER_STEPS = 7000, 10
FLAWLESS = ScriptedTeacher(MistakeConfig(rate=0.0))
ERRING = ScriptedTeacher(MistakeConfig(rate=1.0, weights=WEIGHTS))


@dataclasses.dataclass(frozen=True)
class Job:
    """A task, and runs of it that failed and are on record already."""

    task: Task
    failed: tuple[Trajectory, ...] = ()


class Maker:
    """Plays jobs in one process."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        images = ImageStore(Path(self._stack.enter_context(tempfile.TemporaryDirectory())))
        player = functools.partial(
            Player,
            BrowserConfig(**DEMO_EPISODES["browser"]),
            PromptConfig(style="compact"),
            EpisodeLimits(max_steps=FURTHER_STEPS),
            images,
            further_steps=FURTHER_STEPS,
        )
        self._flawless = self._stack.enter_context(player(then=FLAWLESS, label="flawless"))
        self._erring = self._stack.enter_context(player(then=ERRING, label="teacher"))

    def make(self, job: Job) -> tuple[list[Trajectory], list[Truth]]:
        """The runs of a task and the truth about its failed ones; nothing without a success and a failure."""
        success = self._flawless.run(job.task)
        failed = job.failed or (self._erring.run(job.task),)
        failed = tuple(run for run in failed if not run.success and run.steps)
        if not success.success or not failed:
            return [], []
        return [success, *failed], [self._truth(run, success) for run in failed]

    def _truth(self, run: Trajectory, success: Trajectory) -> Truth:
        ends: dict[int, str] = {}
        # A run that has not ended itself may only have been too slow: nothing that it did was critical.
        for kept in reversed(range(len(run.steps) + (run.outcome != "done"))):
            ends[kept + 1] = self._flawless.play(Trial(run, kept))
            if ends[kept + 1] == "success":
                break
        step = min(ends) if ends[min(ends)] == "success" and min(ends) <= len(run.steps) else None
        right = self._right(run, success, step - 1) if step else ()
        task = run.task
        return Truth(run.trajectory_id, task.task_id, task.site, run.actor, ends, step, right)

    def _right(self, run: Trajectory, success: Trajectory, at: int) -> tuple[tuple[str, ...], ...]:
        """The acts of the success that lead to success at a step of the failed run."""
        found: dict[tuple[str, ...], None] = {}
        for step, acts in zip(success.steps, parse_run(success).acts, strict=True):
            reply = move_reply(recorded_reply(step.response)[0], step.observation, run.steps[at].observation)
            key = tuple(sorted(acts))
            if reply is None or key in found or any(action.name == "done" for action in reply.actions):
                continue
            if self._flawless.play(Trial(run, at, render_reply(reply))) == "success":
                found[key] = None
        return tuple(found)


_maker: list[Maker] = []


def _begin() -> None:
    exit_with_parent()
    _maker.append(Maker())


def _make(job: Job) -> tuple[list[Trajectory], list[Truth]]:
    return _maker[0].make(job)


def jobs(seeds: int, policies: Sequence[str]) -> list[Job]:
    """The teacher's tasks, and those at which policies failed."""
    found = [Job(make_task(page, seed)) for page in PAGES for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
    for folder in policies:
        failed = (run for run in read_dataset(folder, Trajectory) if not run.success)
        found += [Job(run.task, (run,)) for run in map(renamed, failed)]
    return found


def renamed(run: Trajectory) -> Trajectory:
    """The run as one of a task of its own: its policy's runs are no runs of the teacher's pool."""
    task = run.task.model_copy(update={"task_id": f"{run.task.task_id}/{run.actor}"})
    return run.model_copy(update={"task": task, "trajectory_id": f"{task.task_id}#{run.attempt}"})


def make(jobs: Sequence[Job], workers: int) -> dict[Part, tuple[list[Trajectory], list[Truth]]]:
    made: dict[Part, tuple[list[Trajectory], list[Truth]]] = {"work": ([], []), "report": ([], [])}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin) as executor:
        for number, (runs, truths) in enumerate(executor.map(_make, jobs), start=1):
            if runs:
                part = made[part_of(runs[0].task.site)]
                part[0].extend(runs)
                part[1].extend(truths)
            if number % 50 == 0:
                print(
                    number, "of", len(jobs), {name: len(found[1]) for name, found in made.items()}, flush=True
                )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--policies", type=lambda text: text.split(","), default=())
    parser.add_argument("--workers", type=int, default=3)
    flags = parser.parse_args()
    for part, (runs, truths) in make(jobs(flags.seeds, flags.policies), flags.workers).items():
        write(part, runs, truths)
        known = [truth for truth in truths if truth.step is not None]
        actors = dict(Counter(truth.actor for truth in truths))
        digest = hashlib.sha256("".join(run.model_dump_json() for run in runs).encode()).hexdigest()[:12]
        print(
            f"{part}: {len(truths)} failed runs, {len(known)} with a critical step, {actors}, runs {digest}"
        )


if __name__ == "__main__":
    main()
