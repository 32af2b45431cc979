"""A run prepared for mining: its steps parsed and described in words that other runs share."""

from __future__ import annotations

import dataclasses
import functools
import re

from collection.steps import INVALID, StepView, view
from rmsweb_jax.actions import Action
from rmsweb_jax.actions.similarity import parse_url
from rmsweb_jax.records.lean import Element, Run, Step, lean
from rmsweb_jax.records.schema import Trajectory

_WORD = re.compile(r"[^\W_]+")


# Compared and hashed by identity: what is computed of a branch is kept by it.
@dataclasses.dataclass(frozen=True, eq=False)
class Branch:
    """One run of a task."""

    run: Run
    steps: tuple[StepView[Step], ...]

    def __len__(self) -> int:
        return len(self.steps)

    @functools.cached_property
    def signatures(self) -> tuple[tuple[str, ...], ...]:
        """Each step's actions with element indices replaced by what the elements are."""
        return tuple(signature(step) for step in self.steps)

    @functools.cached_property
    def targets(self) -> tuple[tuple[int | None, ...], ...]:
        """The indices that each step's actions name: what tells actions apart on one page."""
        return tuple(
            tuple(getattr(action.params, "index", None) for action in step.reply.executable)
            if step.reply
            else ()
            for step in self.steps
        )

    @functools.cached_property
    def named(self) -> tuple[str, ...]:
        """Everything each step's actions name: labels of their elements and their own text."""
        return tuple(_named(step) for step in self.steps)

    @functools.cached_property
    def pages(self) -> tuple[str, ...]:
        """Host and path of each step's address."""
        return tuple(_page(step.step.observation.url) for step in self.steps)

    @functools.cached_property
    def task_words(self) -> frozenset[str]:
        return words(" ".join((self.run.task.objective, *self.run.task.constraints)))

    @property
    def candidates(self) -> tuple[int, ...]:
        """Positions that may be a divergence: all but a verified success's closing `done`.

        A failed run's `done` stays a candidate. It ended nothing that was finished; a premature `done`
        is the very mistake that many pairs are about.
        """
        last = len(self.steps) - 1
        closing = self.run.success and last >= 0 and self.steps[last].is_done
        return tuple(range(last if closing else last + 1))


def branch(run: Run | Trajectory) -> Branch:
    run = lean(run) if isinstance(run, Trajectory) else run
    return Branch(run, tuple(view(step) for step in run.steps))


def _page(url: str) -> str:
    parsed = parse_url(url)
    return url if parsed is None else f"{parsed.host}{parsed.pathname.rstrip('/')}"


def words(text: str) -> frozenset[str]:
    """The words and numbers of a text, in lower case."""
    return frozenset(_WORD.findall(text.casefold()))


def element_of(step: StepView[Step], action: Action) -> Element | None:
    """The element that an action names by its index, if it was on the page."""
    index = getattr(action.params, "index", None)
    if not index:
        return None
    return next((item for item in step.step.observation.elements if item.index == index), None)


def signature(step: StepView[Step]) -> tuple[str, ...]:
    """What a step did, with labels for indices, so that it compares between differently numbered pages."""
    return tuple(_describe(step, action) for action in step.reply.executable) if step.reply else INVALID


def _describe(step: StepView[Step], action: Action) -> str:
    params = action.params.model_dump(exclude_defaults=True)
    # Case and spaces are no other decision.
    params = {name: _plain(value) if isinstance(value, str) else value for name, value in params.items()}
    element = element_of(step, action)
    if element is not None and element.text:
        params["index"] = f"{element.tag} {element.text}"
    return f"{action.name} {params}"


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _named(step: StepView[Step]) -> str:
    parts = []
    for action in step.reply.executable if step.reply else ():
        element = element_of(step, action)
        parts.append(element.text if element else "")
        parts += [str(value) for value in action.params.model_dump().values() if isinstance(value, str)]
    return " ".join(parts)
