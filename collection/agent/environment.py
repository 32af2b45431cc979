"""A browser at a task, as the loop of an episode sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from collection.agent.blockers import Blocker
from rmsweb_jax.actions import Action
from rmsweb_jax.records.schema import ActionResult, Incident, Observation, Task

# (query, Markdown) -> answer, by the teacher; raises ExtractionError.
Extract = Callable[[str, str], str]


class UnreachableError(Exception):
    """The task's start page cannot be opened, now or ever; the message says why.

    Attributes:
      incidents: what was noticed on the way there.
    """

    def __init__(self, message: str, incidents: tuple[Incident, ...] = ()):
        super().__init__(message)
        self.incidents = incidents


class ExtractionError(Exception):
    """The teacher gave no answer about a page; the message says why and is fit for the agent."""


@dataclasses.dataclass(frozen=True)
class Look:
    """What the agent is shown before a step.

    Attributes:
      page_stats, file_system, todo_contents: for the tags of these names.
      notice: one line in `<agent_state>`, empty for none.
      incidents: what was noticed on the page.
      blocker: what keeps the agent from the page, if anything does.
    """

    observation: Observation
    page_stats: str
    file_system: str = ""
    todo_contents: str = ""
    notice: str = ""
    incidents: tuple[Incident, ...] = ()
    blocker: Blocker | None = None


@dataclasses.dataclass(frozen=True)
class Acted:
    """What a step's actions came to."""

    results: tuple[ActionResult, ...]
    incidents: tuple[Incident, ...] = ()


class Environment(Protocol):
    """A browser at a task."""

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        """Actions that cannot be carried out here, so that no prompt offers them."""
        ...

    def reset(self, task: Task) -> Task:
        """Goes to the task's start; returns the task as it is recorded, with its objective.

        Raises:
          UnreachableError: there is nothing to start from.
        """
        ...

    def look(self) -> Look: ...

    def act(self, actions: Sequence[Action], extract: Extract, deadline: float) -> Acted:
        """Executes actions, stopping early where the page changes under them. `done` is not among them.

        Args:
          extract: reads pages for the agent.
          deadline: by `time.monotonic`; no action begins after it.
        """
        ...

    def finish(self, done: Action) -> ActionResult:
        """The result of `done`; `output` holds the files that it displays."""
        ...

    def reward(self) -> float | None:
        """The environment's own verdict; None while, or where, it has none."""
        ...

    def redact(self, text: str) -> str:
        """The text without secrets: everything a model wrote goes through it before it is recorded."""
        ...
