"""One process of the fleet: a browser, a teacher, a journal."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from collection.agent.loop import EpisodeRunner, Limits, crashed_trajectory
from collection.agent.miniwob_session import MiniWobSession
from collection.agent.prompt import PromptConfig
from collection.browser.session import Browser, BrowserConfig, BrowserLostError, PageError
from collection.environments.miniwob import MiniWobServer
from collection.llm.base import Teacher
from collection.llm.config import ActorConfig, make_teacher
from collection.reflect import reflect
from collection.rounds import History, Job, Reflected, run_job
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Task, Trajectory


@dataclasses.dataclass(frozen=True)
class WorkerConfig:
    """What every worker needs.

    Attributes:
      actor: resolved; a policy's `base_url` is set.
      browser: without host rules, which are the environment's.
      crashes: how often an episode is begun again after its browser was lost.
    """

    actor: ActorConfig
    browser: BrowserConfig
    prompt: PromptConfig
    limits: Limits
    crashes: int = 2


@dataclasses.dataclass(frozen=True)
class Kept:
    """A round is on disk."""

    trajectory_id: str


@dataclasses.dataclass(frozen=True)
class Finished:
    """The job is over; send another."""


@dataclasses.dataclass(frozen=True)
class Failed:
    """Nothing will go better with another job."""

    reason: str


def work(link: Connection, workdir: Path, journal: str, config: WorkerConfig) -> None:
    """Takes (job, history) from `link` until it closes; the target of a worker process."""
    # A group of its own: Ctrl-C reaches the parent alone, and the parent can end us with all we started.
    os.setpgrp()
    die_with_parent()
    with (
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
        Journal(workdir / "journal" / journal) as kept,
        MiniWobServer() as server,
    ):
        browser = dataclasses.replace(config.browser, host_rules=server.host_rules)
        try:
            player = _Player(dataclasses.replace(config, browser=browser), workdir)
            with contextlib.closing(player):
                for job, history in _jobs(link):
                    run_job(job, history, player.play, player.reflect, lambda one: _keep(one, kept, link))
                    link.send(Finished())
        except UserError as error:
            link.send(Failed(str(error)))


def _jobs(link: Connection) -> Iterator[tuple[Job, History]]:
    while True:
        yield link.recv()


def _keep(record: Trajectory | Reflected, journal: Journal, link: Connection) -> None:
    journal.append(record.model_dump_json().encode())
    if isinstance(record, Trajectory):
        link.send(Kept(record.trajectory_id))


class _Player:
    """A browser that is replaced when it is lost, and the teacher that uses it."""

    def __init__(self, config: WorkerConfig, workdir: Path):
        self._config = config
        self._images = ImageStore(workdir)
        self._teacher: Teacher = make_teacher(config.actor)
        self._browser: Browser | None = None

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def play(self, task: Task, attempt: int, guidance: str) -> Trajectory:
        """One episode; begun again in a new browser when the browser is lost."""
        reason = ""
        for _ in range(self._config.crashes + 1):
            try:
                return self._runner().run_episode(task, attempt, guidance)
            except (BrowserLostError, PageError) as error:
                reason = str(error)
                print(f"{task.task_id}: {reason}", file=sys.stderr, flush=True)
                traceback.print_exc()
                self.close()
        return crashed_trajectory(task, self._config.actor.label, self._teacher.name, attempt, reason)

    def reflect(self, trajectory: Trajectory, guidance: str) -> Reflected:
        return reflect(trajectory, guidance, self._teacher)

    def _runner(self) -> EpisodeRunner:
        if self._browser is None:
            self._browser = Browser(self._config.browser)
        return EpisodeRunner(
            environment=MiniWobSession(self._browser, self._images),
            teacher=self._teacher,
            images=self._images,
            actor=self._config.actor.label,
            prompt=self._config.prompt,
            limits=self._config.limits,
        )
