"""Shared parts of the importers of agents that see screenshots and act on points of them.

Such runs have neither page text nor elements nor the input of our agent: they can be viewed, judged and
compared, but not trained on. A click at a point becomes `click_coordinates`, typing at a point a click and
`input_text` into the focused element.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from collection.importers.common import (
    UNKNOWN_MODEL,
    Notes,
    RunContext,
    UnmappedError,
    fingerprint,
    store_screenshot,
    to_action,
)
from collection.tasks.websites import site_of
from rmsweb_jax.actions import Action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Observation,
    Outcome,
    Step,
    Tab,
    Task,
    Trajectory,
)

# Longer lists of keys are refused: their order matters, and a reply has at most ten actions.
_MOST_KEYS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignStep:
    """What a file says of one decision; empty or None where it says nothing.

    Attributes:
      raw: the reply in the source's own form, which is kept if it cannot be mapped.
      screenshot: SHA-256 of the stored screenshot before the decision.
      results: text of each result, and True if it is an error; None if there is none in the file.
      error: the reason why the reply cannot be used.
    """

    raw: str
    screenshot: str | None = None
    url: str = ""
    title: str = ""
    tabs: tuple[Tab, ...] = ()
    current_tab: str = ""
    page_text: str = ""
    thought: str = ""
    memory: str = ""
    goal: str = ""
    results: tuple[tuple[str, bool], ...] | None = None
    usage: CallUsage | None = None
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A judge's verdict that the files contain."""

    judge: str
    passed: bool
    text: str = ""
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
      known: False if the files do not say why it ended.
      declared: the agent's own word on its success, if it gave one.
    """

    outcome: Outcome
    known: bool = True
    text: str = ""
    declared: bool | None = None
    detail: str = ""
    seconds: float | None = None
    model: str = ""


@dataclasses.dataclass(frozen=True)
class Screen:
    """Size of a screenshot in pixels; None if the files do not say it."""

    width: int | None = None
    height: int | None = None

    def point(self, value: Any, name: str, width: float | None = None, height: float | None = None) -> Action:
        """Returns a click at a point.

        Args:
          value: `[x, y]`.
          name: of the foreign action, for the error.
          width, height: size of the plane in which the point is given; None: in pixels of the screenshot.

        Raises:
          UnmappedError: it is no point of the plane, or the size of the screenshot is needed and not known.
        """
        x, y = _numbers(value, name)
        if width is not None and height is not None:
            if self.width is None or self.height is None:
                raise UnmappedError(name, "no screenshot gives the size of the page")
            x, y = x * self.width / width, y * self.height / height
        # The agents' browsers keep points inside the window.
        x = min(x, self.width - 1) if self.width else x
        y = min(y, self.height - 1) if self.height else y
        return to_action({"click_coordinates": {"x": max(0, round(x)), "y": max(0, round(y))}})


def screen_of(images: ImageStore, screenshot: str | None) -> Screen:
    """Returns the size of a stored screenshot."""
    if screenshot is None:
        return Screen()
    with images.open(screenshot) as file, Image.open(file) as image:
        return Screen(*image.size)


def store_base64(images: ImageStore, text: Any) -> str | None:
    """Stores a data URL or bare base64 as a PNG; None if it is no complete image."""
    if not isinstance(text, str):
        return None
    try:
        data = base64.b64decode(text.rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return store_screenshot(images, data)


def typed(text: Any, clear: bool, enter: bool) -> list[Action]:
    """Returns the actions that type into the focused element."""
    # Index 0 is the focused element.
    actions = [to_action({"input_text": {"index": 0, "text": text, "clear_existing": clear}})]
    return [*actions, press("Enter")] if enter else actions


def press(keys: Any) -> Action:
    return to_action({"send_keys": {"keys": keys}})


def chord(keys: Any, name: str) -> str:
    """Returns keys that are held at once as one combination, for example `Control+a`.

    Raises:
      UnmappedError: these are no keys.
    """
    listed = [keys] if isinstance(keys, str) else keys
    if not isinstance(listed, list) or not listed or not all(isinstance(key, str) and key for key in listed):
        raise UnmappedError(name, "it names no keys")
    return "+".join(listed)


def key_sequence(keys: Any, presses: Any, name: str) -> list[Action]:
    """Returns keys that are pressed one after the other, each `presses` times.

    Raises:
      UnmappedError: these are no keys, or too many.
    """
    listed = [keys] if isinstance(keys, str) else keys
    times = presses if isinstance(presses, int) and presses > 0 else 1
    chord(listed, name)
    if len(listed) * times > _MOST_KEYS:
        raise UnmappedError(name, f"more than {_MOST_KEYS} keys")
    return [press(key) for key in listed for _ in range(times)]


def wait(seconds: Any, name: str) -> Action:
    """Returns a wait in whole seconds, rounded up.

    Raises:
      UnmappedError: it is no time.
    """
    (value,) = _numbers([seconds], name, 1)
    return to_action({"wait": {"seconds": math.ceil(max(0.0, value))}})


def scrolled(pages: Any, name: str) -> Action:
    """Returns a scroll by so many heights of the window, down if positive.

    Raises:
      UnmappedError: it does not move the page.
    """
    (value,) = _numbers([pages], name, 1)
    if value == 0:
        raise UnmappedError(name, "it moves by nothing")
    return to_action({"scroll": {"down": value > 0, "num_pages": round(abs(value), 3) or 0.001}})


def make_step(number: int, found: ForeignStep, actions: Callable[[], list[Action]], notes: Notes) -> Step:
    """Makes the record of one decision, and notes what the files lack.

    Args:
      actions: maps the foreign action; raises UnmappedError if it has no counterpart.
    """
    notes.lacks(
        *(f"steps.observation.{key}" for key in ("elements", "pages_above", "pages_below")), "steps.messages"
    )
    shown = ("url", "title", "tabs", "current_tab", "page_text", "screenshot")
    notes.lacks(*(f"steps.observation.{key}" for key in shown if not getattr(found, key)))
    notes.lacks(*([] if found.usage else ["steps.usage"]))
    observation = Observation(
        **{key: getattr(found, key) for key in shown},
        elements=(),
        fingerprint=fingerprint(found.url, found.page_text, found.screenshot, number),
    )
    usage = found.usage or CallUsage()
    mapped: list[Action] = []
    error = found.error
    if not error:
        try:
            mapped = actions()
        except UnmappedError as unmapped:
            notes.not_mapped[unmapped.name] += 1
            error = f"No counterpart for action {unmapped.name!r}: {unmapped.reason}"
    if error:
        return Step(
            number=number, observation=observation, messages=(), response=found.raw, error=error, usage=usage
        )
    texts = {"thinking": found.thought, "memory": found.memory, "next_goal": found.goal}
    notes.lacks("steps.response.evaluation_previous_goal")
    notes.lacks(*(f"steps.response.{key}" for key, text in texts.items() if not text))
    response = notes.reply("", found.memory, found.goal, actions=mapped, thinking=found.thought)
    return Step(
        number=number,
        observation=observation,
        messages=(),
        response=response,
        results=_results(found, mapped, notes),
        usage=usage,
    )


def make_trajectory(
    name: str,
    source: str,
    attempt: int,
    context: RunContext,
    steps: Sequence[Step],
    ending: Ending,
    verdict: Verdict | None,
    objective: str = "",
    website: str = "",
) -> Trajectory:
    """Makes the record of a run, and notes what the files lack.

    Args:
      objective, website: of the run's own files; the tasks file has priority.
    """
    notes, info = context.notes, context.info(name)
    objective, website = info.objective or objective, info.website or website
    if info.success is not None:
        verdict = Verdict("given", info.success)
    lacks = {
        "task.objective": objective,
        "task.website": website,
        "success": verdict,
        "model": ending.model,
        "outcome": ending.known,
        "seconds": ending.seconds,
        "declared_success": ending.declared is not None or ending.outcome != "done",
    }
    notes.lacks(*(key for key, value in lacks.items() if not value))
    done = ending.outcome == "done" and ending.declared is not False
    return Trajectory(
        trajectory_id=f"{source}/{name}#{context.actor}-{attempt}",
        task=Task(task_id=f"{source}/{name}", website=website, objective=objective, site=site_of(website)),
        actor=context.actor,
        model=ending.model or UNKNOWN_MODEL,
        attempt=attempt,
        steps=tuple(steps),
        outcome=ending.outcome,
        detail=ending.detail,
        declared_success=ending.declared,
        final_text=ending.text,
        # As for our own runs: declared by the agent and passed by a judge.
        success=done and verdict is not None and verdict.passed,
        judge=verdict.judge if verdict else "",
        judge_text=verdict.text if verdict else "",
        judge_score=verdict.score if verdict else None,
        seconds=ending.seconds or 0.0,
        source=source,
        missing=tuple(sorted(notes.missing)),
    )


def _results(found: ForeignStep, actions: Sequence[Action], notes: Notes) -> tuple[ActionResult, ...]:
    if not found.results:
        if actions[0].name != "done":
            notes.lacks("steps.results")
        return ()
    notes.lacks("steps.results.changed")
    if len(found.results) == len(actions):
        pairs = list(zip(actions, found.results, strict=True))
    else:
        # One foreign action may be several of ours; the result is of all of them.
        text = "\n".join(text for text, _ in found.results)
        pairs = [(actions[0], (text, any(failed for _, failed in found.results)))]
    return tuple(ActionResult(action=action.name, text=text, error=error) for action, (text, error) in pairs)


def _numbers(value: Any, name: str, count: int = 2) -> list[float]:
    if isinstance(value, list | tuple) and len(value) == count:
        try:
            numbers = [float(item) for item in value if not isinstance(item, bool)]
        except (TypeError, ValueError, OverflowError):
            numbers = []
        if len(numbers) == count and all(math.isfinite(item) and abs(item) < 1e6 for item in numbers):
            return numbers
    raise UnmappedError(name, f"not {'a point' if count == 2 else 'a number'}: {str(value)[:40]!r}")
