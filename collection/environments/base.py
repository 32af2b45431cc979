"""The environment interface that the episode loop drives."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from collection.browser.config import SnapshotError
from collection.environments.blockers import Blocker
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import ActionResult, Incident, Observation, Task

# (query, Markdown) -> answer of the actor; raises ExtractionError.
# (query, page) -> answer, and the seconds that the call has waited for a model that did not answer.
Extractor = Callable[[str, str], tuple[str, float]]


class SiteUnreachableError(Exception):
    """The task's start page cannot be opened; the message gives the reason.

    Attributes:
      incidents: incidents recorded on the way there.
    """

    def __init__(self, message: str, incidents: tuple[Incident, ...] = ()):
        super().__init__(message)
        self.incidents = incidents


class ExtractionError(Exception):
    """The actor gave no answer about a page; the message gives the reason and is shown to the agent."""


@dataclasses.dataclass(frozen=True)
class View:
    """The input of one step: the observation and everything else that the agent is shown.

    Attributes:
      page_stats, file_system, todo_contents: contents of the prompt tags of these names.
      notice: one line in `<agent_state>`; empty for none.
      incidents: incidents found on the page.
      blocker: the obstacle that keeps the agent from the page, if there is one.
    """

    observation: Observation
    page_stats: str = ""
    file_system: str = ""
    todo_contents: str = ""
    notice: str = ""
    incidents: tuple[Incident, ...] = ()
    blocker: Blocker | None = None


@dataclasses.dataclass(frozen=True)
class StepResults:
    """Results of the actions of one step."""

    results: tuple[ActionResult, ...]
    incidents: tuple[Incident, ...] = ()


class Environment(Protocol):
    """A browser with a task, or another world that is acted in by the same actions.

    One that inherits from it need only observe, act and pay. To be named in settings it has a static method
    `tasks(seed)`, which returns the tasks of a seed (docs/own.md).
    """

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        """Names of actions that this environment cannot execute; prompts do not offer them."""
        return ()

    def reset(self, task: Task) -> Task:
        """Opens the task's start page; returns the task as it is recorded, with its objective.

        Raises:
          SiteUnreachableError: the start page cannot be opened.
        """
        return task

    @abc.abstractmethod
    def observe(self) -> View:
        """Returns the current page."""

    @abc.abstractmethod
    def act(self, actions: Sequence[Action], extract: Extractor, deadline: float) -> StepResults:
        """Executes actions other than `done`; stops early if the page changes under them.

        Args:
          extract: answers a question about a page.
          deadline: `time.monotonic` value after which no action starts; later by the time that `extract` has
            waited for its model.
        """

    def finish(self, done: Action) -> ActionResult:
        """Returns the result of `done`; its `output` contains the files that `done` displays."""
        return ActionResult(action=done.name, text="Done")

    @abc.abstractmethod
    def reward(self) -> float | None:
        """Returns the environment's own reward (-1..1); None if it has none, or none yet."""

    def redact(self, text: str) -> str:
        """Returns the text without secrets. Model output passes through it before it is recorded."""
        return text

    def snapshot(self) -> Any:
        """Takes the state of the episode between two actions; it goes on as if nothing had happened.

        Returns:
          A value that can be pickled, for `restore` of any environment with the same settings.

        Raises:
          SnapshotError: it could not be put back.
        """
        raise SnapshotError(f"{type(self).__name__} has no snapshots")

    def restore(self, snapshot: Any) -> None:
        """Puts back what `snapshot` has taken, in place of the state that the environment has.

        Raises:
          RestoreError: what is there now is another state, and nothing may be learned from it.
          BrowserLostError: the browser is gone.
        """
        raise SnapshotError(f"{type(self).__name__} has no snapshots")
