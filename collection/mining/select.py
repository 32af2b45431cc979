"""The last critical divergence of a task: candidates, gates, and the choice among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from collection.agent.prompt import GUIDANCE_TAG
from collection.mining.branch import Branch
from collection.mining.features import trivial
from collection.mining.labels import Label, rule_label
from collection.mining.pairs import RunPair
from collection.mining.scores.action import action_scores, eligible
from collection.mining.scores.category import category_scores
from collection.mining.scores.state import state_scores
from rmsweb_jax.actions import score_response

# In the order in which they are applied; a case is reported under the first that left nothing.
GATES = (
    "no_eligible_pair",
    "state_score",
    "category_score",
    "total_score",
    "no_progress",
    "invalid_model_io",
    "no_screenshot",
)
KEPT = "kept"


@dataclasses.dataclass(frozen=True)
class MiningConfig:
    """The figures of RMSWeb, section 3.3."""

    state_weight: float = 0.50
    action_weight: float = 0.25
    category_weight: float = 0.25
    min_state: float = 0.60
    min_category: float = 0.45
    min_total: float = 0.62


@dataclasses.dataclass(frozen=True)
class Case:
    """The best candidate of a pair of runs.

    Attributes:
      decision: `kept`, or the gate that no candidate passed; the candidate is then the best of those
        that came that far.
      success_at, localization_at: positions of the divergence, from 0; None without any candidate.
      scores: all components there.
    """

    pair: RunPair
    label: Label
    decision: str
    success_at: int | None
    localization_at: int | None
    scores: dict[str, float]

    @property
    def depth(self) -> int:
        """How many gates were passed."""
        return len(GATES) if self.decision not in GATES else GATES.index(self.decision)

    @property
    def rank(self) -> tuple:
        """Larger is better: first the score, then a failed run before a detour, then the later step."""
        later = (self.success_at or 0, self.localization_at or 0)
        names = (self.pair.success.run.trajectory_id, self.pair.localization.run.trajectory_id)
        total = round(self.scores.get("total", 0.0), 9)
        return (self.depth, total, self.pair.kind == "primary", *later, -len(self.pair.success), *names)


def best_case(pairs: Iterable[RunPair], config: MiningConfig) -> Case | None:
    """The task's case with the highest S_total among those that pass most gates; None without pairs."""
    return max((divergence(pair, config) for pair in pairs), key=lambda case: case.rank, default=None)


def divergence(pair: RunPair, config: MiningConfig) -> Case:
    """The last critical divergence between two runs."""
    success, localization = pair.success, pair.localization
    label = rule_label(success, localization)
    parts = state_scores(success, localization) | category_scores(success, localization, label)
    parts["action"] = action_scores(success, localization)
    parts["total"] = (
        config.state_weight * parts["state"]
        + config.action_weight * parts["action"]
        + config.category_weight * parts["category"]
    )
    masks = _gate_masks(pair, parts, config)
    alive = np.ones_like(parts["total"], bool)
    for name, mask in zip(GATES, masks, strict=True):
        if not (alive & mask).any():
            return _case(pair, label, name, parts, alive if name != GATES[0] else None)
        alive &= mask
    return _case(pair, label, KEPT, parts, alive)


def _gate_masks(pair: RunPair, parts: dict[str, np.ndarray], config: MiningConfig) -> tuple[np.ndarray, ...]:
    success, localization = pair.success, pair.localization
    shots = _column(_has_screenshot(step) for step in success.steps)[:, None]
    other_shots = _column(_has_screenshot(step) for step in localization.steps)[None, :]
    shape = parts["total"].shape
    return (
        eligible(success, localization),
        parts["state"] >= config.min_state,
        parts["category"] >= config.min_category,
        parts["total"] >= config.min_total,
        np.broadcast_to(_column(makes_progress(success, at) for at in range(len(success)))[:, None], shape),
        np.broadcast_to(_column(valid_sample(success, at) for at in range(len(success)))[:, None], shape),
        shots | other_shots,
    )


def makes_progress(success: Branch, at: int) -> bool:
    """The success-side action did something, and more than look around."""
    step = success.steps[at]
    return step.complete and step.effective and not step.failed and not trivial(success, at)


def valid_sample(success: Branch, at: int) -> bool:
    """The step can be trained on: a chat that ends with the user, a reply that its own reward accepts."""
    step = success.steps[at]
    messages = step.step.messages
    if not step.complete or not messages or messages[-1].role != "user":
        return False
    if any(f"<{GUIDANCE_TAG}>" in message.text for message in messages):
        return False
    return score_response(step.target, step.target) == 1.0


def _has_screenshot(step) -> bool:
    return step.step.observation.screenshot is not None


def _column(values: Iterable[bool]) -> np.ndarray:
    return np.fromiter(values, bool)


def _case(
    pair: RunPair, label: Label, decision: str, parts: dict[str, np.ndarray], alive: np.ndarray | None
) -> Case:
    if alive is None:
        return Case(pair, label, decision, None, None, {})
    # Rounded, so that equal scores tie whatever the order of summation; ties go to the later step.
    best = max(
        zip(*np.nonzero(alive), strict=True), key=lambda at: (round(float(parts["total"][at]), 9), *at)
    )
    scores = {name: round(float(part[best]), 6) for name, part in parts.items()}
    return Case(pair, label, decision, int(best[0]), int(best[1]), scores)
