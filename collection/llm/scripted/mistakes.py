"""Seeded mistakes of the kinds that real agents make.

A mistake is a coherent wrong decision: its goal describes its action. Only the task and the attempt
determine an episode's mistake, its kind and its position, so that all steps of the episode agree on it in
any process.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from collection.llm.model import call_seed
from collection.llm.scripted import solve
from collection.llm.scripted.plan import Plan, Suggest
from collection.llm.scripted.solve import Move
from collection.llm.scripted.state import ParsedState, StateElement

MistakeKind = Literal["wrong_index", "premature_done", "needless_scroll", "skipped_field"]
KINDS: tuple[MistakeKind, ...] = get_args(MistakeKind)
# Relative frequencies of a collecting teacher.
WEIGHTS = {"wrong_index": 0.35, "premature_done": 0.25, "needless_scroll": 0.15, "skipped_field": 0.25}
_DETOUR_STEPS = 2  # Down and up again.


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
        if left < 0:
            return _place(kind, plan, rng)
    return None


def _place(kind: MistakeKind, plan: Plan, rng: random.Random) -> Mistake:
    if kind == "skipped_field":
        return Mistake(kind, part=rng.randrange(len(plan) - 1))
    moves = sum(2 if isinstance(part, Suggest) else 1 for part in plan)
    # With several parts to do, declaring done before the first one would not be a plausible mistake.
    first = min(2, moves) if kind == "premature_done" else 1
    return Mistake(kind, step=rng.randint(first, moves))


def apply_mistake(mistake: Mistake, state: ParsedState, move: Move, seed: tuple[object, ...]) -> Move:
    """Returns the wrong move if the mistake applies to this step, else `move`."""
    if state.covered or state.done_only:
        return move
    if mistake.kind == "premature_done" and state.step == mistake.step:
        return solve.finish(True)
    if mistake.kind == "needless_scroll" and 0 <= state.step - mistake.step < _DETOUR_STEPS:
        return solve.scroll(down=state.step == mistake.step)
    if mistake.kind == "wrong_index" and state.step == mistake.step and move.target is not None:
        return _wrong_target(state, move, move.target, random.Random(call_seed("target", *seed)))
    return move


def _wrong_target(state: ParsedState, move: Move, target: StateElement, rng: random.Random) -> Move:
    """Returns the same kind of move on another plausible element; `move` if there is none."""
    others = [
        element
        for element in state.elements
        if element.index != target.index and element.label != target.label
    ]
    alike = [
        element for element in others if element.tag == target.tag and element.is_field == target.is_field
    ]
    if "input_text" in move.action:
        return solve.type_into(rng.choice(alike), move.action["input_text"]["text"]) if alike else move
    if "select_dropdown_option" in move.action:
        # A long attribute is truncated, so its last option may be incomplete.
        shown = [
            option for option in target.attributes.get("options", "").split("|") if not option.endswith("...")
        ]
        wrong = [option for option in shown if option != move.action["select_dropdown_option"]["text"]]
        return solve.select(target, rng.choice(wrong)) if wrong else move
    candidates = alike or others
    return solve.click(rng.choice(candidates)) if candidates else move
