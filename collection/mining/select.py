"""The last critical divergence of a task: candidates, gates, and the choice among them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from collection.agent.prompt import GUIDANCE_TAG
from collection.mining.branch import Branch
from collection.mining.labels import Label, rule_label
from collection.mining.pairs import RunPair
from collection.mining.scores.action import action_scores, eligible
from collection.mining.scores.category import category_scores
from collection.mining.scores.state import StateAlignment
from collection.mining.signals import trivial
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


def cases(pairs: Sequence[RunPair], labels: Sequence[Label], config: MiningConfig) -> list[Case]:
    """The last critical divergence of each pair.

    Args:
      pairs: of one task.
      labels: the failure that each pair shows.
    """
    branches = dict.fromkeys(branch for pair in pairs for branch in (pair.success, pair.localization))
    states = StateAlignment(list(branches))
    return [_divergence(pair, label, states, config) for pair, label in zip(pairs, labels, strict=True)]


def divergence(pair: RunPair, config: MiningConfig) -> Case:
    """The last critical divergence between two runs, by the rule label."""
    return cases((pair,), (rule_label(pair.success, pair.localization),), config)[0]


def _divergence(pair: RunPair, label: Label, states: StateAlignment, config: MiningConfig) -> Case:
    success, localization = pair.success, pair.localization
    same = states.same_states(success, localization)
    parts = states.scores(success, localization) | category_scores(success, localization, label, same)
    alive = eligible(success, localization)
    if not alive.any():
        return _case(pair, label, GATES[0], {}, None)
    # Comparing actions is slow, so only those are compared that a later gate needs to know about.
    near = alive & (parts["state"] >= config.min_state)
    evident = near & (parts["category"] >= config.min_category)
    told = next((mask for mask in (evident, near, alive) if mask.any()), alive)
    parts["action"] = action_scores(success, localization, told)
    parts["total"] = (
        config.state_weight * parts["state"]
        + config.action_weight * parts["action"]
        + config.category_weight * parts["category"]
    )
    if not near.any():
        return _case(pair, label, "state_score", parts, alive)
    if not evident.any():
        return _case(pair, label, "category_score", parts, near)
    return _by_quality(pair, label, parts, evident, config)


def _by_quality(
    pair: RunPair, label: Label, parts: dict[str, np.ndarray], alive: np.ndarray, config: MiningConfig
) -> Case:
    """The best of the candidates that nothing else is wrong with, or the first gate that left none."""
    success, localization = pair.success, pair.localization
    # The gates after the scores need the prompt, so they are asked of steps that got this far alone.
    rows = np.flatnonzero((alive & (parts["total"] >= config.min_total)).any(1))
    shots, other_shots = _screenshots(success)[:, None], _screenshots(localization)[None, :]
    gates = (
        ("total_score", parts["total"] >= config.min_total),
        ("no_progress", _rows(success, rows, makes_progress)[:, None]),
        ("invalid_model_io", _rows(success, rows, valid_sample)[:, None]),
        ("no_screenshot", shots | other_shots),
    )
    for name, passed in gates:
        if not (alive & passed).any():
            return _case(pair, label, name, parts, alive)
        alive = alive & passed
    return _case(pair, label, KEPT, parts, alive)


def _rows(branch: Branch, rows: np.ndarray, gate: Callable[[Branch, int], bool]) -> np.ndarray:
    """Which of some steps pass a gate: bool [num_steps]; the others do not."""
    passed = np.zeros(len(branch), bool)
    passed[rows] = [gate(branch, int(row)) for row in rows]
    return passed


def makes_progress(success: Branch, at: int) -> bool:
    """The success-side action did something that lasted, and more than look around."""
    step = success.steps[at]
    undone = at + 1 < len(success) and set(success.steps[at + 1].action_names) == {"go_back"}
    return step.complete and step.effective and not step.failed and not undone and not trivial(success, at)


# A success meets several other runs.
@functools.lru_cache(maxsize=64)
def valid_sample(success: Branch, at: int) -> bool:
    """The step can be trained on: a chat that ends with the user, a reply that its own reward accepts."""
    step = success.steps[at]
    messages = step.step.messages
    if not step.complete or not messages or messages[-1].role != "user":
        return False
    if any(f"<{GUIDANCE_TAG}>" in message.text for message in messages):
        return False
    return score_response(step.target, step.target) == 1.0


def _screenshots(branch: Branch) -> np.ndarray:
    return np.array([step.step.observation.screenshot is not None for step in branch.steps], bool)


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
