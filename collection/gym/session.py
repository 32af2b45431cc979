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

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.session import BrowserLostError, PageError
from collection.environments.apps.suite import apps_folder, find_task, make_application
from collection.environments.base import Environment, ExtractionError, SiteUnreachableError, View
from collection.environments.miniwob import make_task, page_names
from collection.environments.web import WebConfig
from collection.fleet.browser_pool import BrowserPool
from collection.fleet.config import RecyclePolicy
from rmsweb_jax.actions import Action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Task


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

    A browser or an application that is lost, and any error of this program, raises an error and is no reward.
    `reset` starts another.

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

    def reset(self, task: Task) -> tuple[Task, View]:
        """Begins an episode; returns the task with its objective, and its first page.

        Raises:
          UserError: there is no browser or application, or no such task.
          SiteUnreachableError, BrowserLostError, PageError: the start page does not open.
        """
        self._leave()
        # Screenshots of earlier episodes.
        shutil.rmtree(self._folder.name)
        os.mkdir(self._folder.name)
        self.images = ImageStore(self._folder.name)
        with self._lost_after_errors():
            browser = self._pool.browser(task)
            environment = self._open.enter_context(
                self._pool.environment(
                    task, browser, self.images, Path(self._folder.name) / "files", WebConfig()
                )
            )
            task = environment.reset(task)
            view = environment.observe()
        self._environment = environment
        return task, view

    def step(self, actions: Sequence[Action]) -> Stepped:
        """Carries out actions; `done` ends the episode.

        Raises:
          UserError: no episode is open.
          BrowserLostError, PageError: the browser was lost, or this program failed; the episode has no
            reward.
        """
        environment = self._environment
        if environment is None:
            raise UserError("no episode is open: call reset first")
        if not actions:
            raise UserError("no action: give at least one")
        with self._lost_after_errors():
            if actions[0].name == "done":
                results: tuple[ActionResult, ...] = (environment.finish(actions[0]),)
                reward = max(0.0, environment.reward() or 0.0)
                self._environment = None
                return Stepped(environment.observe(), results, reward, ended=True)
            results = environment.act(actions, _no_reader, math.inf).results
            return Stepped(environment.observe(), results, 0.0, ended=False)

    def look(self) -> View:
        """Returns the page as it is now; raises as `step`."""
        if self._environment is None:
            raise UserError("no episode is open: call reset first")
        with self._lost_after_errors():
            return self._environment.observe()

    @contextlib.contextmanager
    def _lost_after_errors(self) -> Iterator[None]:
        """Ends the episode after an error; one that `step` does not document becomes a BrowserLostError."""
        try:
            yield
        except (UserError, SiteUnreachableError, BrowserLostError, PageError):
            self._leave(lost=True)
            raise
        except Exception as error:
            self._leave(lost=True)
            raise BrowserLostError(f"unexpected {type(error).__name__}: {error}") from error
        except BaseException:
            self._leave(lost=True)
            raise

    def _leave(self, lost: bool = False) -> None:
        self._environment = None
        self._open.close()
        if lost:
            # It may have been the application.
            self._pool.close()


def _no_reader(query: str, text: str) -> tuple[str, float]:
    raise ExtractionError("this harness has no model that reads pages")


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
