"""Seeded mistakes of the kinds that real agents make.

A mistake is a coherent wrong decision: its goal names what its action does. Whether an episode has one,
which kind and where is drawn from the task and the attempt alone, so that every step of an episode,
in whatever process, agrees on it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Mapping
from typing import Literal, get_args

from collection.llm.base import seeded
from collection.llm.scripted import solve
from collection.llm.scripted.plan import Plan, Suggest
from collection.llm.scripted.solve import Move
from collection.llm.scripted.view import Element, View

Kind = Literal["wrong_index", "premature_done", "needless_scroll", "skipped_field"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_DETOUR_STEPS = 2  # Down and up again.


@dataclasses.dataclass(frozen=True)
class MistakeConfig:
    """How often the teacher errs.

    Attributes:
      rate: probability that an episode has a mistake.
      weights: how the kinds share it; kinds that a request leaves no room for pass their share on.
      heeded: what is left of a kind's probability when guidance warns of it.
    """

    rate: float = 0.0
    weights: Mapping[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(KINDS, 1.0))
    heeded: float = 0.15


@dataclasses.dataclass(frozen=True)
class Mistake:
    """What goes wrong in an episode: from which step on, or for `skipped_field` which part of the plan."""

    kind: Kind
    step: int = 0
    part: int | None = None


def draw_mistake(
    config: MistakeConfig, plan: Plan, task_id: str, attempt: int, warned: Collection[str]
) -> Mistake | None:
    """The mistake of one episode, None for a clean one.

    Args:
      warned: kinds that the guidance names.
    """
    rng = seeded("mistake", task_id, attempt)
    kinds = [kind for kind in KINDS if kind != "skipped_field" or len(plan) > 1]
    total = sum(config.weights.get(kind, 0.0) for kind in kinds)
    left = rng.random()
    for kind in kinds:
        chance = config.rate * config.weights.get(kind, 0.0) / total if total else 0.0
        left -= chance * (config.heeded if kind in warned else 1.0)
        if left < 0:
            return _place(kind, plan, rng)
    return None


def _place(kind: Kind, plan: Plan, rng: random.Random) -> Mistake:
    if kind == "skipped_field":
        return Mistake(kind, part=rng.randrange(len(plan) - 1))
    moves = sum(2 if isinstance(part, Suggest) else 1 for part in plan)
    # Done before anything was done would be no plausible slip where there is more than one thing to do.
    first = min(2, moves) if kind == "premature_done" else 1
    return Mistake(kind, step=rng.randint(first, moves))


def apply_mistake(mistake: Mistake, view: View, move: Move, seed: tuple[object, ...]) -> Move:
    """The move actually made at this step: `move` itself unless the mistake falls on it."""
    if view.covered or view.done_only:
        return move
    if mistake.kind == "premature_done" and view.step == mistake.step:
        return solve.finish(True)
    if mistake.kind == "needless_scroll" and 0 <= view.step - mistake.step < _DETOUR_STEPS:
        return solve.scroll(down=view.step == mistake.step)
    if mistake.kind == "wrong_index" and view.step == mistake.step and move.target is not None:
        return _mistarget(view, move, move.target, seeded("target", *seed))
    return move


def _mistarget(view: View, move: Move, target: Element, rng: random.Random) -> Move:
    """The same kind of move on another element that looks like a fair candidate for it."""
    others = [
        element
        for element in view.elements
        if element.index != target.index and element.label != target.label
    ]
    alike = [
        element for element in others if element.tag == target.tag and element.is_field == target.is_field
    ]
    if "input_text" in move.action:
        return solve.type_into(rng.choice(alike), move.action["input_text"]["text"]) if alike else move
    if "select_dropdown_option" in move.action:
        # The attribute is cut when long, and then its last option is no whole one.
        shown = [
            option for option in target.attributes.get("options", "").split("|") if not option.endswith("...")
        ]
        wrong = [option for option in shown if option != move.action["select_dropdown_option"]["text"]]
        return solve.select(target, rng.choice(wrong)) if wrong else move
    candidates = alike or others
    return solve.click(rng.choice(candidates)) if candidates else move
