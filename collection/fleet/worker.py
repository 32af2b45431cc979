"""A worker of the fleet: a browser, an actor and a journal, in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from collection.agent.loop import EpisodeRunner, crashed_trajectory
from collection.browser.guard.redaction import Redactor
from collection.browser.session import Browser, BrowserLostError, PageError
from collection.environments.base import Environment
from collection.environments.web import WebConfig
from collection.fleet.activity import Reporter, ReportingActor
from collection.fleet.browser_pool import BrowserPool, read_secrets
from collection.fleet.build import FleetConfig
from collection.fleet.journals import FOLDER, JournalEntry, append_record, read_history
from collection.fleet.rounds import Job, Reflected, TaskHistory, reflect, run_round
from collection.llm.actor import ActorModel
from collection.llm.build import check_model, make_actor
from collection.llm.calls import Calls, connect
from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.processes import die_with_parent
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal
from rmsweb_jax.records.schema import Task, Trajectory

FILES = "files"  # Folder of files that running episodes download or write.
# Attempts to start a browser: the start can fail on a machine that is busy for a moment.
_STARTS = 4


def check_models(config: FleetConfig, calls: Calls) -> None:
    """Calls the models of actor and judge once; raises as `check_model`. A policy's server has answered."""
    actor, judge = config.settings.actor, config.judge.model if config.judge else None
    if actor.kind in ("gemini", "chat"):
        check_model(actor, calls)
    if judge and judge != actor.model_copy(update={"temperature": judge.temperature}):
        check_model(judge, calls)


@dataclasses.dataclass(frozen=True)
class RoundRequest:
    """Asks for one round: the first of the job that has no entry.

    Attributes:
      entries: journal entries of the job's task.
      lost: number of workers that died in this round.
    """

    job: Job
    entries: tuple[JournalEntry, ...] = ()
    lost: int = 0


@dataclasses.dataclass(frozen=True)
class RoundDone:
    """The round is on disk, with the reflection before it if one was due.

    Attributes:
      error: an error of this program with which the last try of its episode ended; "" if there is none.
    """

    entries: tuple[JournalEntry, ...]
    error: str = ""


@dataclasses.dataclass(frozen=True)
class RunFailure:
    """An error that every other job would also meet, such as an endpoint that is down."""

    reason: str
    exit_code: int


def run_failure(error: BaseException, where: Path) -> RunFailure:
    """Returns the failure of a run for an error that the user can fix; raises all other errors.

    Args:
      where: what the message about a file names if the error does not say which one.
    """
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(where)
    if (known := user_message(error)) is None:
        raise error
    return RunFailure(*known)


class Worker(contextlib.AbstractContextManager["Worker"]):
    """Plays one round after another; created and used in one thread.

    Args:
      journal: name of a journal that no other worker writes.
    """

    def __init__(self, workdir: Path, journal: str, config: FleetConfig):
        self._workdir, self._settings, self._name = workdir, config.settings, journal
        self._calls = config.calls
        self._images = ImageStore(workdir)
        self._journal = Journal(workdir / FOLDER / journal)
        self._lost, self._error = 0, ""
        self._reporter = Reporter(config.calls, Path(journal).stem)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if "_browsers" in vars(self):
            self._browsers.close()
        self._journal.close()
        self._reporter.close()

    def play(self, request: RoundRequest) -> RoundDone | RunFailure:
        """Plays a round. An error that the user can fix ends the run, not this worker."""
        entries: list[JournalEntry] = []
        self._lost, self._error = request.lost, ""

        def append(record: Trajectory | Reflected) -> None:
            entries.append(append_record(record, self._journal, self._name))

        try:
            run_round(request.job, self._read_history(request), self._play, self._reflect, append)
        except Exception as error:
            return run_failure(error, self._workdir)
        return RoundDone(tuple(entries), self._error)

    def _read_history(self, request: RoundRequest) -> TaskHistory:
        return read_history(self._workdir, request.entries)

    def _play(self, task: Task, attempt: int, guidance: str) -> Trajectory:
        """Plays one episode; starts it again in a new browser after any error, `crashes` times.

        This is the boundary of an episode: no error in it ends the worker. Those that the user can fix end
        the run.
        """
        reason, start = "", time.monotonic()
        for lost in range(self._lost, self._lost + self._settings.fleet.crashes + 1):
            try:
                trajectory = self._play_once(task, attempt, guidance)
                self._error = ""
                return trajectory.model_copy(update={"retries": lost})
            except Exception as error:
                if user_message(error) is not None:
                    raise
                # The message of an error of this program may have parts of the page, also secrets.
                known = isinstance(error, (BrowserLostError, PageError))
                self._error = "" if known else f"unexpected {type(error).__name__}"
                reason = self._redactor.text(str(error)) if known else f"{self._error}, see the log"
                trace = self._redactor.text(traceback.format_exc())
                print(f"{task.task_id}: {reason}\n{trace}", end="", file=sys.stderr, flush=True)
            self._browsers.discard()
        actor = self._settings.actor
        seconds = time.monotonic() - start
        crashed = crashed_trajectory(task, actor.label, self._actor.name, attempt, reason, seconds)
        return crashed.model_copy(update={"retries": self._lost + self._settings.fleet.crashes})

    def _play_once(self, task: Task, attempt: int, guidance: str) -> Trajectory:
        self._reporter.set(
            task_id=task.task_id, site=task.site, attempt=attempt, step=0, waiting_for="browser"
        )
        browser = self._browser(task)
        self._reporter.set(waiting_for="page")
        # In the workdir, so that the parent can remove the files of a killed worker.
        files = self._workdir / FILES / Path(self._name).stem
        web = WebConfig(self._settings.search_urls, extra_actions=self._settings.extra_actions)
        with self._browsers.environment(task, browser, self._images, files, web) as environment:
            return self._runner(environment).run_episode(task, attempt, guidance)

    def _reflect(self, trajectory: Trajectory, guidance: str) -> Reflected:
        # It belongs to the next attempt.
        task = trajectory.task
        self._reporter.set(task_id=task.task_id, site=task.site, attempt=trajectory.attempt + 1, step=0)
        return reflect(trajectory, guidance, self._actor)

    def _browser(self, task: Task) -> Browser:
        """Returns a browser for an episode; retries, as a start can fail."""
        for left in reversed(range(_STARTS)):
            try:
                return self._browsers.browser(task)
            except (UserError, BrowserLostError) as error:
                if not left:
                    raise
                print(f"{task.task_id}: {error}", file=sys.stderr, flush=True)
        raise AssertionError("unreachable")

    def _runner(self, environment: Environment) -> EpisodeRunner:
        return EpisodeRunner(
            environment=environment,
            actor=self._actor,
            images=self._images,
            label=self._settings.actor.label,
            prompt=self._settings.prompt,
            limits=self._settings.limits,
        )

    # Created on first use, so that their errors belong to a round and are reported to the parent.
    @functools.cached_property
    def _browsers(self) -> BrowserPool:
        one = self._settings
        return BrowserPool(one.browser, one.guard, one.fleet, one.secrets, one.apps_folder)

    @functools.cached_property
    def _redactor(self) -> Redactor:
        return Redactor(read_secrets(self._settings.secrets)[0], cards=True)

    @functools.cached_property
    def _actor(self) -> ActorModel:
        actor = make_actor(self._settings.actor, connect(self._calls) if self._calls else None)
        return ReportingActor(actor, self._reporter)


def work(link: Connection, workdir: Path, journal: str, config: FleetConfig) -> None:
    """Plays and answers requests from `link` until it closes; the target of a worker process."""
    # Own process group: Ctrl-C reaches only the parent, and the parent can kill a worker with its children.
    os.setpgrp()
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        return  # The parent ended before `die_with_parent`; its request may still be in the pipe.
    with (
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
        Worker(workdir, journal, config) as worker,
    ):
        while True:
            link.send(worker.play(link.recv()))
