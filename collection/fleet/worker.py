"""A worker of the fleet: it keeps a browser, and plays one episode after another."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from collection.agent.loop import EpisodeRunner, crashed_trajectory
from collection.browser.guard.redaction import Redactor
from collection.browser.session import Browser, BrowserLostError, PageError
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import BrowserPool, read_secrets
from collection.fleet.config import CollectSettings, EpisodeSettings
from collection.fleet.forks import fork_actor
from collection.fleet.rounds import Round
from collection.fleet.status import LiveView
from collection.llm.actor import ActorModel, ActorReply, ExtractionRequest, ReflectionRequest, StepRequest
from collection.llm.build import make_actor
from collection.llm.calls import CallsAddress, connect
from collection.llm.config import GEMINI_KEY, ActorConfig
from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.records.episodes import Fork
from rmsweb_jax.records.images import ImageStore, image_names, record_images
from rmsweb_jax.records.schema import Task, Trajectory

FILES = "files"  # Folder of files that running episodes download or write.
# Variables that clients of models read by themselves.
_CLIENTS = ("GEMINI_", "GOOGLE_API_", "GOOGLE_GENAI_", "OPENAI_", "ANTHROPIC_")
# Of two runs: a policy at two temperatures, and the teacher.
_ACTORS = 6
# Attempts to start a browser: the start can fail on a machine that is busy for a moment.
_STARTS = 4


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode that is to be played.

    Attributes:
      guidance: of its task's reflections.
      lost: number of workers that died playing it.
      workdir: of its run.
      actor: resolved.
      calls: of its run; None for an actor that makes none.
      fork: of its job.
    """

    task: Task
    attempt: int
    guidance: str
    lost: int
    workdir: Path
    actor: ActorConfig
    calls: CallsAddress | None
    fork: Fork | None = None


@dataclasses.dataclass(frozen=True)
class PlayedEpisode:
    """An episode that was played.

    Attributes:
      record: the trajectory, as JSON.
      error: an error of this program with which its last try ended; "" if there is none.
      images: screenshots by SHA-256, where they are not in the run's workdir yet.
    """

    record: bytes
    summary: Round
    error: str = ""
    images: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class RunFailure:
    """An error that every other episode would also meet, such as an endpoint that is down."""

    reason: str
    exit_code: int


def credentials(settings: EpisodeSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with keys and secrets of a run, and those that clients of models read."""
    names = {GEMINI_KEY, settings.actor.api_key_env}
    names |= {entry.partition("=")[0] for entry in settings.secrets}
    return {name: value for name, value in environment.items() if name in names or name.startswith(_CLIENTS)}


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


class Worker:
    """Plays episodes; created and used in one thread, of a process of its own or of a Ray actor.

    Args:
      number: of the worker.
      keys: `credentials` of the run, where this is another machine than that of its workdir: they replace
        those of this machine.
    """

    def __init__(self, number: int, settings: EpisodeSettings, keys: Mapping[str, str] | None = None):
        self._number, self._settings, self._own = number, settings, None
        if keys is not None:
            for name in credentials(settings, os.environ):
                del os.environ[name]
            os.environ.update(keys)
            self._own = Path(tempfile.mkdtemp(prefix="rmsweb-"))
        # By what they are made of.
        self._actors: dict[object, ActorModel] = {}
        self._error = ""

    def ready(self) -> None:
        """Returns when this worker runs."""

    def close(self) -> None:
        if "_browsers" in vars(self):
            self._browsers.close()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def play(self, episode: Episode) -> PlayedEpisode | RunFailure:
        """Plays an episode. An error that the user can fix ends the run, not this worker."""
        folder = self._own or episode.workdir
        try:
            trajectory = self._play(episode, folder)
            record = trajectory.model_dump_json().encode()
            images = {}
            if self._own is not None:
                store = ImageStore(folder)
                images = {name: store.get(name) for name in dict.fromkeys(record_images(trajectory))}
                shutil.rmtree(folder / "images", ignore_errors=True)
            return PlayedEpisode(record, Round.of(trajectory), self._error, images)
        except Exception as error:
            return run_failure(error, folder)

    def _play(self, episode: Episode, folder: Path) -> Trajectory:
        """Plays one episode; starts it again in a new browser after any error, `crashes` times.

        This is the boundary of an episode: no error in it ends the worker. Those that the user can fix end
        the run.
        """
        task, last = episode.task, episode.lost + self._settings.fleet.crashes
        reason, start = "", time.monotonic()
        for lost in range(episode.lost, last + 1):
            try:
                trajectory = self._play_once(episode, folder)
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
        name, seconds = self._actor(episode).name, time.monotonic() - start
        crashed = crashed_trajectory(task, episode.actor.label, name, episode.attempt, reason, seconds)
        return crashed.model_copy(update={"retries": last})

    def _play_once(self, episode: Episode, folder: Path) -> Trajectory:
        task, one = episode.task, self._settings
        live = LiveView(folder, self._number, task, episode.attempt)
        live.show(waiting_for="browser")
        browser = self._browser(task) if self._browsers.needs_browser(task) else None
        live.show(waiting_for="page")
        images = ImageStore(folder)
        # In the workdir, so that the parent can remove the files of a killed worker.
        files = folder / FILES / str(self._number)
        web = WebConfig(one.search_urls, extra_actions=one.extra_actions)
        with self._browsers.environment(task, browser, images, files, web) as environment:
            runner = EpisodeRunner(
                environment=environment,
                actor=_ShownActor(self._actor(episode), live),
                images=images,
                label=episode.actor.label,
                prompt=one.prompt,
                limits=one.limits,
                # Evaluation measures what an actor can do, and what a policy misses is there to be mined.
                lenient=isinstance(one, CollectSettings) and episode.actor.kind != "policy",
            )
            return runner.run_episode(task, episode.attempt, episode.guidance)

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

    def _actor(self, episode: Episode) -> ActorModel:
        """The actor of an episode's run; those of the last runs are kept."""
        actor = self._made(episode.actor, episode.calls)
        if episode.fork is None:
            return actor
        greedy = self._made(episode.actor.model_copy(update={"temperature": 0.0}), episode.calls)
        return fork_actor(episode.fork, actor, greedy)

    def _made(self, config: ActorConfig, calls: CallsAddress | None) -> ActorModel:
        key = repr(config), calls
        if key not in self._actors:
            if len(self._actors) == _ACTORS:
                del self._actors[next(iter(self._actors))]
            self._actors[key] = make_actor(config, connect(calls) if calls else None)
        return self._actors[key]

    # Created on first use, so that their errors belong to an episode and are reported to the parent.
    @functools.cached_property
    def _browsers(self) -> BrowserPool:
        one = self._settings
        return BrowserPool(one.browser, one.guard, one.fleet, one.secrets, one.apps_folder, one.applications)

    @functools.cached_property
    def _redactor(self) -> Redactor:
        return Redactor(read_secrets(self._settings.secrets)[0], cards=True)


@dataclasses.dataclass(frozen=True)
class _ShownActor:
    """An actor whose calls are shown."""

    actor: ActorModel
    live: LiveView

    @property
    def name(self) -> str:
        return self.actor.name

    def reply(self, request: StepRequest) -> ActorReply:
        shown = image_names(request.messages)
        with self.live.calling(self.name, step=request.step, **({"screenshot": shown[-1]} if shown else {})):
            return self.actor.reply(request)

    def reflect(self, request: ReflectionRequest) -> ActorReply:
        return self.actor.reflect(request)

    def extract(self, request: ExtractionRequest) -> ActorReply:
        with self.live.calling(self.name):
            return self.actor.extract(request)
