"""Seeded mistakes of the kinds that real agents make, and the guidance against them.

A mistake is a coherent wrong decision: its goal describes its action. Only the task and the attempt
determine an episode's mistake, its kind and its position, so that all steps of the episode agree on it in
any process. Reflection infers the kind from the goals of a round, and the next round makes it less often.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from collection.llm.model import call_seed
from collection.teacher import parts
from collection.teacher.parts import Move, Part, Plan, Suggest, make_plan
from collection.teacher.state import ParsedState, StateElement

MistakeKind = Literal["wrong_index", "premature_done", "needless_scroll", "skipped_field"]
KINDS: tuple[MistakeKind, ...] = get_args(MistakeKind)
# Relative frequencies of a collecting teacher.
WEIGHTS = {"wrong_index": 0.35, "premature_done": 0.25, "needless_scroll": 0.15, "skipped_field": 0.25}
_DETOUR_STEPS = 2  # Down and up again.
# For each kind, the advice against it, and the words by which any guidance warns of it.
_ADVICE: dict[MistakeKind, tuple[str, str]] = {
    "wrong_index": (
        "The wrong element was used. Compare the label of the indexed element with what the request names "
        "before acting, and take the index from the current page.",
        r"\bwrong (element|index|field|button|link|option|choice)",
    ),
    "premature_done": (
        "It was declared done too early. Carry out the last thing the request asks for first; finish once "
        "the page has reacted.",
        r"\b(done|finished|declared)\b.{0,20}\b(too early|prematurely)",
    ),
    "needless_scroll": (
        "There was needless scrolling. Everything is in view: skip that detour and act on the elements "
        "at once.",
        r"\b(needless|unnecessary|useless)(ly)? scroll",
    ),
    "skipped_field": (
        "A part of the request was skipped. Go through the request in order and do every field or choice "
        "before the closing button.",
        r"\b(was|were|you) (skipped|left out|omitted|missed)\b",
    ),
}
_FOR_NOTHING = re.compile(r"Finish|Scroll (down|up)")
_OPENS = re.compile(r"Click '((Tab|Section) #\d+|\d|<|>)'")


@dataclasses.dataclass(frozen=True)
class MistakeConfig:
    """Mistake probabilities of the scripted teacher.

    Attributes:
      rate: probability that an episode has a mistake.
      weights: relative frequency of each kind; kinds that are impossible in a request pass theirs on.
      heeded: factor on a kind's probability if guidance warns of it.
    """

    rate: float = 0.0
    weights: Mapping[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    heeded: float = 0.15


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An episode's mistake, and the step where it starts or, for `skipped_field`, the part of the plan."""

    kind: MistakeKind
    step: int = 0
    part: int | None = None


def draw_mistake(
    config: MistakeConfig, plan: Plan, task_id: str, attempt: int, warned: Collection[str]
) -> Mistake | None:
    """Returns the mistake of one episode, or None.

    Args:
      warned: kinds that the guidance warns of.
    """
    # Not the step: all steps of an episode must agree on its mistake.
    rng = random.Random(call_seed("mistake", task_id, attempt))
    kinds = [kind for kind in KINDS if kind != "skipped_field" or len(plan) > 1]
    total = sum(config.weights.get(kind, 0.0) for kind in kinds)
    left = rng.random()
    for kind in kinds:
        chance = config.rate * config.weights.get(kind, 0.0) / total if total else 0.0
        left -= chance * (config.heeded if kind in warned else 1.0)
        if left >= 0:
            continue
        if kind == "skipped_field":
            return Mistake(kind, part=rng.randrange(len(plan) - 1))
        moves = sum(part.moves for part in plan)
        # With several parts to do, declaring done before the first one would not be a plausible mistake.
        return Mistake(kind, step=rng.randint(min(2, moves) if kind == "premature_done" else 1, moves))
    return None


def apply_mistake(mistake: Mistake, state: ParsedState, move: Move, seed: tuple[object, ...]) -> Move:
    """Returns the wrong move if the mistake applies to this step, else `move`."""
    if state.covered or state.done_only:
        return move
    if mistake.kind == "premature_done" and state.step == mistake.step:
        return parts.finish(True)
    if mistake.kind == "needless_scroll" and 0 <= state.step - mistake.step < _DETOUR_STEPS:
        return parts.scroll(down=state.step == mistake.step)
    if mistake.kind == "wrong_index" and state.step == mistake.step and move.target is not None:
        return _wrong_target(state, move, move.target, random.Random(call_seed("target", *seed)))
    return move


def _wrong_target(state: ParsedState, move: Move, target: StateElement, rng: random.Random) -> Move:
    """Returns the same kind of move on another plausible element; `move` if there is none."""
    others = [one for one in state.elements if one.index != target.index and one.label != target.label]
    alike = [one for one in others if one.tag == target.tag and one.is_field == target.is_field]
    if typed := move.action.get("input_text"):
        return parts.type_into(rng.choice(alike), typed["text"]) if alike else move
    if picked := move.action.get("select_dropdown_option"):
        # A long attribute is truncated, so its last option may be incomplete.
        shown = [one for one in target.attributes.get("options", "").split("|") if not one.endswith("...")]
        wrong = [option for option in shown if option != picked["text"]]
        return parts.select(target, rng.choice(wrong)) if wrong else move
    candidates = alike or others
    return parts.click(rng.choice(candidates)) if candidates else move


def warnings_in(guidance: str) -> frozenset[MistakeKind]:
    """Returns the kinds of mistake that a guidance text warns of."""
    return frozenset(kind for kind in KINDS if re.search(_ADVICE[kind][1], guidance, re.IGNORECASE))


def write_guidance(request: str, summary: str, success: bool, previous: str) -> str:
    """Returns guidance for the next round; earlier advice stays.

    Args:
      summary: one line per step: its address, thinking, goal and number of actions, separated by ` | `.
    """
    goals = [line.rpartition("| goal: ")[2].rpartition(" | ")[0] for line in summary.splitlines()]
    lines = previous.splitlines()
    for kind in _diagnose(make_plan(request) or (), goals, success):
        if (advice := _ADVICE[kind][0]) not in lines:
            lines.append(advice)
    if success and not lines:
        lines = ["The last round reached the goal: go the same way again."]
    return "\n".join(lines)


def _diagnose(plan: Plan, goals: list[str], success: bool) -> list[MistakeKind]:
    """Returns the kinds of mistake that the goals of a round reveal."""
    found: list[MistakeKind] = ["needless_scroll"] if any(goal.startswith("Scroll") for goal in goals) else []
    # A success can still have had a detour.
    if success:
        return found
    missing: list[Part] = []
    left = [goal for goal in goals if not _FOR_NOTHING.fullmatch(goal)]
    for part in plan:
        for test in (part.serves, part.types) if isinstance(part, Suggest) else (part.serves,):
            hit = next((goal for goal in left if test(goal)), None)
            if hit is None:
                missing.append(part)
                break
            left.remove(hit)
    # Goals that served no part.
    if any(not (any(part.opens for part in plan) and _OPENS.fullmatch(goal)) for goal in left):
        return [*found, "wrong_index"]
    if missing:
        return [*found, "premature_done" if missing[-1] is plan[-1] else "skipped_field"]
    # Every part seems done, so one of the actions was on another element than its goal names.
    return [*found, "wrong_index"] if not found or plan else found
