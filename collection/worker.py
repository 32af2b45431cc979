"""One worker of the fleet: a browser, a teacher, a journal. Engines run it in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from collection.agent.environment import Environment
from collection.agent.loop import EpisodeRunner, Limits, crashed_trajectory
from collection.agent.miniwob_session import MiniWobSession
from collection.agent.prompt import PromptConfig
from collection.agent.web_session import WebConfig, WebSession
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.proxy import ProxyLostError
from collection.browser.session import Browser, BrowserConfig, BrowserLostError, PageError
from collection.journals import FOLDER, Kept, keep, read_history
from collection.judges.base import Judge
from collection.judges.config import JudgeConfig, make_judge
from collection.llm.base import Teacher
from collection.llm.config import ActorConfig, make_teacher
from collection.llm.ledger import LEDGER
from collection.reflect import reflect
from collection.rounds import Job, Reflected, run_round
from collection.station import Station, Wear
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Task, Trajectory

FILES = "files"  # Episodes' own, while they run.
# Of a browser's start, in a row. Behind a grid each has its own patience already.
_STARTS = 4
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True)
class WorkerConfig:
    """What every worker needs.

    Attributes:
      actor: resolved; a policy's `base_url` is set.
      browser: without host rules, which are the environment's.
      guard: what browsers are held to, beside what each task names.
      wear: when a browser is replaced.
      crashes: how often an episode is begun again after its browser or its guard was lost.
      web: what the agent may use on live pages.
      judge: says whether an episode on live pages was a success; None: nobody does, and none is.
      secrets: environment variables whose values the agent may type without seeing them.
    """

    actor: ActorConfig
    browser: BrowserConfig
    guard: GuardConfig
    wear: Wear
    prompt: PromptConfig
    limits: Limits
    crashes: int
    web: WebConfig = dataclasses.field(default_factory=WebConfig)
    judge: JudgeConfig | None = None
    secrets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Order:
    """One round to play: the first that is not among what is kept of the job's task.

    Attributes:
      lost: workers that died over this round.
    """

    job: Job
    kept: tuple[Kept, ...] = ()
    lost: int = 0


@dataclasses.dataclass(frozen=True)
class Ended:
    """The round is on disk, and maybe the reflection that it began with."""

    kept: tuple[Kept, ...]


@dataclasses.dataclass(frozen=True)
class Failed:
    """Nothing will go better with another job."""

    reason: str
    exit_code: int


class Worker(contextlib.AbstractContextManager["Worker"]):
    """Plays one round after another; to be made and used in one thread.

    Args:
      journal: name of a journal that nobody else writes.
    """

    def __init__(self, workdir: Path, journal: str, config: WorkerConfig):
        self._workdir, self._config, self._name = workdir, config, journal
        self._images = ImageStore(workdir)
        self._journal = Journal(workdir / FOLDER / journal)
        self._station: Station | None = None
        self._teacher: Teacher | None = None
        self._asked_judge: Judge | None = None
        self._lost = 0

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._station is not None:
            self._station.close()
        self._journal.close()

    def play(self, order: Order) -> Ended | Failed:
        """Plays a round; what a user can mend ends the run, not the worker."""
        kept: list[Kept] = []
        self._lost = order.lost

        def put(record: Trajectory | Reflected) -> None:
            kept.append(keep(record, self._journal, self._name))

        try:
            history = read_history(self._workdir, order.kept)
            run_round(order.job, history, self._play, self._reflect, put)
        except UserError as error:
            return Failed(str(error), error.exit_code)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            where = error.filename or self._workdir
            reason = f"disk full while writing {where}: free space, then run the same command again"
            return Failed(reason, UserError.exit_code)
        return Ended(tuple(kept))

    def _play(self, task: Task, attempt: int, guidance: str) -> Trajectory:
        """One episode; begun again in a new browser when the browser or its guard is lost."""
        reason, start = "", time.monotonic()
        for lost in range(self._lost, self._lost + self._config.crashes + 1):
            browser = self._browser(task)
            try:
                with self._environment(task, browser) as environment:
                    trajectory = self._runner(environment).run_episode(task, attempt, guidance)
                    return trajectory.model_copy(update={"retries": lost})
            except (BrowserLostError, PageError, ProxyLostError) as error:
                reason = str(error)
                print(f"{task.task_id}: {reason}", file=sys.stderr, flush=True)
                traceback.print_exc()
                self._at_hand().discard()
        actor = self._config.actor
        seconds = time.monotonic() - start
        crashed = crashed_trajectory(task, actor.label, self._actor().name, attempt, reason, seconds)
        return crashed.model_copy(update={"retries": self._lost + self._config.crashes})

    def _reflect(self, trajectory: Trajectory, guidance: str) -> Reflected:
        return reflect(trajectory, guidance, self._actor())

    def _browser(self, task: Task) -> Browser:
        """The browser for an episode. A grid that has lost a node may have room for a new one later."""
        for left in reversed(range(_STARTS)):
            try:
                return self._at_hand().browser(task)
            except (UserError, BrowserLostError, ProxyLostError) as error:
                if not left:
                    raise
                print(f"{task.task_id}: {error}", file=sys.stderr, flush=True)
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _environment(self, task: Task, browser: Browser) -> Iterator[Environment]:
        if task.environment == "miniwob":
            yield MiniWobSession(browser, self._images)
            return
        # In the workdir, where a killed worker's is found and removed.
        folder = self._workdir / FILES / Path(self._name).stem
        with contextlib.closing(WebSession(browser, self._images, folder, self._config.web)) as session:
            yield session

    def _runner(self, environment: Environment) -> EpisodeRunner:
        return EpisodeRunner(
            environment=environment,
            teacher=self._actor(),
            images=self._images,
            actor=self._config.actor.label,
            prompt=self._config.prompt,
            limits=self._config.limits,
            judge=self._judge(),
        )

    def _at_hand(self) -> Station:
        if self._station is None:
            config = self._config
            self._station = Station(config.browser, config.guard, config.wear, config.secrets)
        return self._station

    def _actor(self) -> Teacher:
        if self._teacher is None:
            self._teacher = make_teacher(self._config.actor, self._workdir / LEDGER)
        return self._teacher

    def _judge(self) -> Judge | None:
        if self._asked_judge is None and self._config.judge is not None:
            self._asked_judge = make_judge(self._config.judge, self._workdir)
        return self._asked_judge


def work(link: Connection, workdir: Path, journal: str, config: WorkerConfig) -> None:
    """Plays orders from `link` until it closes, and answers each; the target of a worker process."""
    # A group of its own: Ctrl-C reaches the parent alone, and the parent can end us with all we started.
    os.setpgrp()
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        return  # It was gone before the kernel knew whom to ask about; its order may wait in the pipe.
    with (
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
        Worker(workdir, journal, config) as worker,
    ):
        while True:
            link.send(worker.play(link.recv()))
