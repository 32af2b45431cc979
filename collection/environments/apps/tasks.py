"""Tasks at applications, each with a check of its result."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collection.browser.config import SnapshotError
from collection.environments.apps.application import Application
from collection.environments.apps.templates import Goal
from collection.environments.apps.world import World, differences
from collection.environments.base import Environment, Extractor, StepResults, View
from rmsweb_jax.actions import Action
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import ActionResult, Task


@dataclasses.dataclass(frozen=True)
class Ending:
    """End of an episode, in addition to the application's state.

    Attributes:
      url: the page the agent saw last.
      answer: the text of its `done`.
    """

    url: str
    answer: str


@dataclasses.dataclass(frozen=True)
class AppTask:
    """A task at an application.

    Attributes:
      check: whether it has been done, by the ending and what the application holds now.
    """

    task: Task
    application: Application
    check: Callable[[Ending], float]

    def reward(self, ending: Ending) -> float:
        """Returns what the check pays.

        Raises:
          UserError: it is not a number from 0 to 1.
        """
        reward = float(self.check(ending))
        if not 0 <= reward <= 1:
            raise UserError(f"{self.task.task_id}: its check pays {reward:g}: make that 0 to 1")
        return reward


@dataclasses.dataclass(frozen=True)
class AppSnapshot:
    """State of an episode at an application.

    Attributes:
      application, page: what the application and the inner environment have returned.
      url, answer: of the `Ending` so far.
    """

    task_id: str
    application: Any
    page: Any
    url: str
    answer: str


class AppEnvironment:
    """`collection.environments.base.Environment` at applications: set back before every episode, own reward.

    Args:
      inner: the browser; its own reward is not asked for.
      tasks: all that may come.
    """

    def __init__(self, inner: Environment, tasks: Iterable[AppTask]) -> None:
        self._inner = inner
        self._tasks = {task.task.task_id: task for task in tasks}
        self._current: AppTask | None = None
        self._url, self._answer = "", ""

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        return self._inner.excluded_actions

    def reset(self, task: Task) -> Task:
        self._current = self._tasks[task.task_id]
        self._url = self._answer = ""
        self._current.application.reset(task.seed or 0)
        return self._inner.reset(task)

    def observe(self) -> View:
        view = self._inner.observe()
        self._url = view.observation.url
        return view

    def act(self, actions: Sequence[Action], extract: Extractor, deadline: float) -> StepResults:
        return self._inner.act(actions, extract, deadline)

    def finish(self, done: Action) -> ActionResult:
        self._answer = done.params.model_dump()["text"]
        return self._inner.finish(done)

    def reward(self) -> float | None:
        """1 when the check passes, else 0, also for an episode that had no `done`."""
        if self._current is None:
            return None
        return self._current.reward(Ending(self._url, self._answer))

    def redact(self, text: str) -> str:
        return self._inner.redact(text)

    def snapshot(self) -> AppSnapshot:
        if self._current is None:
            raise SnapshotError("no episode is open: call reset first")
        page = self._inner.snapshot()
        state = self._current.application.snapshot()
        return AppSnapshot(self._current.task.task_id, state, page, self._url, self._answer)

    def restore(self, snapshot: AppSnapshot) -> None:
        self._current = None  # Until all is there.
        restored = self._tasks[snapshot.task_id]
        application = restored.application
        # What visitors cannot change is read from the seed's world.
        application.seed = restored.task.seed or 0
        application.restore(snapshot.application)
        self._inner.restore(snapshot.page)
        # Without what its pages have written meanwhile, such as when they were looked at.
        application.restore(snapshot.application)
        self._current, self._url, self._answer = restored, snapshot.url, snapshot.answer


def make_task(
    application: Application,
    name: str,
    seed: int,
    objective: str,
    check: Callable[[Ending], float],
    start: str = "/",
) -> AppTask:
    """Returns a task whose id is `{application}/{name}/{seed}`, in the world of the seed.

    Args:
      start: path of the page on which it begins.
    """
    task = Task(
        task_id=f"{application.name}/{name}/{seed}",
        website=f"{application.url}{start}",
        objective=objective,
        environment="app",
        site=application.host,
        seed=seed,
    )
    return AppTask(task, application, check)


def tasks_of(application: Application, seed: int) -> list[AppTask]:
    """Returns a task of each template, in the seed's world."""
    return [template_task(application, name, seed) for name in application.templates]


def template_task(application: Application, name: str, seed: int) -> AppTask:
    """Returns the task of one template."""
    goal = application.goal(name, seed)

    def check(end: Ending) -> bool:
        return not shortfalls(goal, application.read(), end)

    return make_task(application, name, seed, goal.words, check, goal.start)


def shortfalls(goal: Goal, world: World, end: Ending) -> list[str]:
    """Returns what an ending lacks, a line each; nothing if the task is done."""
    found = differences(goal.after, world)
    if goal.answer is not None and not goal.answer.accepts(end.answer, goal.words):
        found.append(f"the answer is {end.answer!r}, not {goal.answer.value!r}")
    parts = urllib.parse.urlsplit(end.url)
    if goal.page and not urllib.parse.urlunsplit(("", "", *parts[2:])).startswith(goal.page):
        found.append(f"the last page is {end.url}, not {goal.page}")
    return found
