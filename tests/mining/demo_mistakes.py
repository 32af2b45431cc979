"""Finds the step of the scripted teacher's mistake in a recorded run.

No code of the miner is used. Two findings must agree: the drawn mistake, which depends on task, attempt,
settings and guidance, and the first step at which the teacher without mistakes acts differently on the same
state message.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from collection.agent.prompt import GUIDANCE_TAG
from collection.llm.actor import DONE_ONLY, StepRequest
from collection.llm.scripted.guidance import warnings_in
from collection.llm.scripted.mistakes import Mistake, MistakeConfig, MistakeKind, draw_mistake
from collection.llm.scripted.plan import make_plan
from collection.llm.scripted.state import ParsedState, parse_state
from collection.llm.scripted.teacher import ScriptedTeacher
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Reflection, Step, TextPart, Trajectory

# (action, what it acts on, its other parameters) of each action of a step.
Acts = tuple[tuple[str, str, str], ...]

_FLAWLESS = ScriptedTeacher(MistakeConfig(rate=0.0))


@dataclasses.dataclass(frozen=True)
class KnownMistake:
    """The mistake of a run.

    Attributes:
      step: its number, 1-based: the first at which the teacher without mistakes would have acted otherwise.
      made, right: what the run did there, and what that teacher would have done on the same state.
    """

    kind: MistakeKind
    step: int
    made: Acts
    right: Acts


@dataclasses.dataclass(frozen=True)
class Reading:
    """The mistake of a run, found in two ways.

    Attributes:
      drawn: the mistake that its seeds give; None for a clean run.
      found: the mistake it shows; None where it acts as the teacher without mistakes does. A wrong element
        may be drawn where there is no other to take: then the run shows none.
      replayed: whether the teacher with the drawn mistake writes each of its replies again, to the letter.
    """

    drawn: Mistake | None
    found: KnownMistake | None
    replayed: bool

    @property
    def agrees(self) -> bool:
        """True if draw and replay agree."""
        if self.drawn is None or self.found is None:
            return self.replayed and self.found is None
        return self.replayed and (self.drawn.part is not None or self.found.step == self.drawn.step)


def read_settings(folder: Path) -> MistakeConfig:
    """The mistakes' settings of a collecting run.

    Raises:
      UserError: the folder holds no such run.
    """
    try:
        settings = json.loads((folder / "config.json").read_text())
        return MistakeConfig(**settings["mistakes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}: no config.json of a collecting run: give a run of experiments.demo"
        ) from error


def read_guidance(folder: Path) -> dict[tuple[str, int], str]:
    """The guidance of each round that had any: (task id, attempt) -> guidance.

    Raises:
      UserError: the folder holds no reflections.
    """
    try:
        lines = (folder / "reflections.jsonl").read_text().splitlines()
    except OSError as error:
        raise UserError(
            f"{folder}: no reflections.jsonl: give a folder made by experiments.collect"
        ) from error
    reflections = [Reflection.model_validate_json(line) for line in lines]
    return {(one.task_id, one.attempt + 1): one.guidance for one in reflections}


def read_run(run: Trajectory, config: MistakeConfig, guidance: Mapping[tuple[str, int], str]) -> Reading:
    """Replays the teacher on the recorded state messages of one of its runs, with and without mistakes."""
    given = guidance.get((run.task.task_id, run.attempt), "")
    plan = make_plan(run.task.objective)
    warned = warnings_in(given)
    drawn = draw_mistake(config, plan, run.task.task_id, run.attempt, warned) if plan else None
    erring = ScriptedTeacher(config)
    # A run of another teacher or of other settings gives other replies.
    replayed = all(_answer(erring, run, step, given) == step.response for step in run.steps)
    found = None
    for step in run.steps:
        view = view_of(step)
        made, right = acts_in(view, step.response), acts_in(view, _answer(_FLAWLESS, run, step, ""))
        if made != right and drawn:
            found = KnownMistake(drawn.kind, step.number, made, right)
            break
    return Reading(drawn, found, replayed)


def view_of(step: Step) -> ParsedState:
    """The page as the actor was shown it."""
    return parse_state(step.messages[-1].text, DONE_ONLY)


def acts_in(view: ParsedState, response: str) -> Acts:
    """The actions of a reply, comparable between runs of a task: elements are named by label, not by index.

    Elements of one label are numbered; an unusable reply has no actions.
    """
    try:
        actions = json.loads(response)["action"]
        return tuple(_act(view, name, dict(params)) for action in actions for name, params in action.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _act(view: ParsedState, name: str, params: dict) -> tuple[str, str, str]:
    index = params.pop("index", None)
    target = next((element for element in view.elements if element.index == index), None)
    label = ""
    if target is not None:
        alike = [element.index for element in view.elements if element.label == target.label]
        label = f"{target.tag} '{target.label}' #{alike.index(target.index) + 1}"
    elif index is not None:
        label = f"no element [{index}]"
    return name, label, json.dumps(params, sort_keys=True)


def _answer(teacher: ScriptedTeacher, run: Trajectory, step: Step, guidance: str) -> str:
    """The teacher's reply to a recorded state; the guidance is added, since records do not hold it."""
    *before, last = step.messages
    if guidance:
        part = TextPart(text=f"\n<{GUIDANCE_TAG}>\n{guidance}\n</{GUIDANCE_TAG}>")
        last = last.model_copy(update={"content": (*last.content, part)})
    request = StepRequest(run.task.task_id, run.attempt, step.number, (*before, last), images=_NoImages())
    return teacher.reply(request).text


class _NoImages:
    """The scripted teacher looks at none."""

    def get(self, sha256: str) -> bytes:
        raise AssertionError(sha256)
