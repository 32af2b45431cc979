"""One browser at one task at a time, for harnesses that decide the actions themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from collection.browser.config import BrowserConfig, BrowserLostError, PageError
from collection.browser.guard.config import GuardConfig
from collection.environments.apps.suite import apps_folder, find_task, make_application
from collection.environments.base import Environment, ExtractionError, SiteUnreachableError, View
from collection.environments.miniwob import make_task, page_names
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from collection.gym.errors import EpisodeLostError
from rmsweb_jax.actions import Action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Task

NO_READER = "this harness has no model that reads pages"


@dataclasses.dataclass(frozen=True)
class Stepped:
    """What an action has led to.

    Attributes:
      view: the page now.
      results: of the actions, in order; a list stops at the first error.
      reward: 0 to 1 when the episode has ended, before that 0.
      ended: the agent has said that it is done.
    """

    view: View
    results: tuple[ActionResult, ...]
    reward: float
    ended: bool


class Session(contextlib.AbstractContextManager["Session"]):
    """A browser with its guard, started with the first task.

    An episode whose browser, network or application is lost raises `EpisodeLostError`, and so does any error
    of this program: it is no reward. `reset` starts another.

    Args:
      apps: folder in which applications are installed; "" is the user's cache.
    """

    def __init__(
        self, browser: BrowserConfig | None = None, guard: GuardConfig | None = None, apps: str = ""
    ):
        self._apps, self._config = apps, browser or BrowserConfig()
        self._pool = BrowserPool(self._config, guard or GuardConfig(), RecyclePolicy(), apps=apps)
        self._folder = tempfile.TemporaryDirectory(prefix="rmsweb-session-")
        self.images = ImageStore(self._folder.name)
        self._open = contextlib.ExitStack()
        self._environment: Environment | None = None
        self._lost: EpisodeLostError | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends browser, guard and applications."""
        try:
            self._open.close()
        finally:
            self._environment = None
            self._pool.close()
            self._folder.cleanup()

    @property
    def environment(self) -> Environment:
        """The environment of the episode.

        Raises:
          EpisodeLostError: the episode was lost.
          UserError: no episode is open.
        """
        if self._lost is not None:
            raise EpisodeLostError(self._lost.reason)
        if self._environment is None:
            raise UserError("no episode is open: call reset first")
        return self._environment

    def open(self, task: Task) -> Environment:
        """Ends the episode; returns the environment of another one, which has not been reset.

        Raises:
          UserError: there is no browser or application, or no such task.
          EpisodeLostError: the browser does not start.
        """
        self.end()
        # Screenshots of earlier episodes.
        shutil.rmtree(self._folder.name)
        os.mkdir(self._folder.name)
        self.images = ImageStore(self._folder.name)
        with self.losses():
            browser = self._pool.browser(task)
            files = Path(self._folder.name) / "files"
            opened = self._pool.environment(task, browser, self.images, files, WebConfig())
            environment = cast(Environment, _Served(self._open.enter_context(opened), self._pool))
        self._environment = environment
        return environment

    def reset(self, task: Task) -> tuple[Task, View]:
        """Begins an episode; returns the task with its objective, and its first page.

        Raises:
          UserError: there is no browser or application, or no such task.
          EpisodeLostError: the start page does not open.
        """
        environment = self.open(task)
        with self.losses():
            return environment.reset(task), environment.observe()

    def step(self, actions: Sequence[Action]) -> Stepped:
        """Carries out actions; `done` ends the episode.

        Raises:
          UserError: no episode is open.
          EpisodeLostError: the episode was lost, now or before.
        """
        environment = self.environment
        if not actions:
            raise UserError("no action: give at least one")
        with self.losses():
            if actions[0].name == "done":
                results: tuple[ActionResult, ...] = (environment.finish(actions[0]),)
                reward = max(0.0, environment.reward() or 0.0)
                self._environment = None
                return Stepped(environment.observe(), results, reward, ended=True)
            results = environment.act(actions, _no_reader, math.inf).results
            return Stepped(environment.observe(), results, 0.0, ended=False)

    def look(self) -> View:
        """Returns the page as it is now; raises as `step`."""
        environment = self.environment
        with self.losses():
            return environment.observe()

    def end(self) -> None:
        """Ends the episode, if one is open; the browser stays."""
        self._environment = self._lost = None
        self._open.close()

    @contextlib.contextmanager
    def losses(self) -> Iterator[None]:
        """Ends the episode after an error; all but the user's own become an EpisodeLostError."""
        try:
            yield
        except EpisodeLostError:
            raise
        except BaseException as error:
            self.end()
            # It may have been the application.
            self._pool.close()
            if isinstance(error, UserError) or not isinstance(error, Exception):
                raise
            known = isinstance(error, (BrowserLostError, PageError, SiteUnreachableError))
            reason = str(error) if known else f"unexpected {type(error).__name__}: {error}"
            self._lost = EpisodeLostError(reason)
            raise self._lost from error


class _Served:
    """An environment that is lost with what serves its pages: an error page is no observation of a task."""

    def __init__(self, environment: Environment, pool: BrowserPool):
        self._environment, self._pool = environment, pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def observe(self) -> View:
        view = self._environment.observe()
        self._pool.check()
        return view

    def reward(self) -> float | None:
        self._pool.check()
        return self._environment.reward()


def _no_reader(query: str, text: str) -> tuple[str, float]:
    raise ExtractionError(NO_READER)


def find(name: str, seed: int, apps: str = "") -> Task:
    """Returns a task by name: `miniwob/PAGE`, or `APPLICATION/TEMPLATE`.

    Raises:
      UserError: there is none.
    """
    kind, _, template = name.partition("/")
    if kind == "miniwob":
        if template not in page_names():
            raise UserError(f"MiniWoB++ has no page {template!r}")
        return make_task(template, seed)
    application = make_application(kind, apps_folder(apps))
    if template not in application.templates:
        templates = ", ".join(sorted(application.templates))
        raise UserError(f"{kind} has no template {template!r}: use {templates}")
    return find_task(application, f"{name}/{seed}").task
