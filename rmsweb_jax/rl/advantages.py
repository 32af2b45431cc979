"""Group-relative advantages behind two gates (RMSWeb, section 3.4: gated dynamic sampling)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ADVANTAGE_EPSILON = 1e-6


class GatedAdvantages(NamedTuple):
    """What the gates say of G groups of K samples.

    Every group is exactly one of accepted, rejected by the std gate (solved or unsolved), or rejected by
    the competence gate.

    Attributes:
      advantages: [G, K] float64, 0 in groups that are not accepted.
      accepted: [G] bool, k_g.
      std, mean, best: [G] float64 of the raw rewards; std is Bessel-corrected.
      solved, unsolved: [G] bool, std gate failed, with and without a competent sample.
      incompetent: [G] bool, std gate passed, competence gate failed.
    """

    advantages: np.ndarray
    accepted: np.ndarray
    std: np.ndarray
    mean: np.ndarray
    best: np.ndarray
    solved: np.ndarray
    unsolved: np.ndarray
    incompetent: np.ndarray


def gated_advantages(
    rewards: np.ndarray, *, min_std: float, competent_reward: float, competence_gate: bool = True
) -> GatedAdvantages:
    """Advantages within each group, zero where a gate rejects it.

        k_g = [std_g >= min_std] [max_g >= competent_reward]
        A_{g,i} = k_g (r_{g,i} - mean_g) / (std_g + 1e-6)

    Args:
      rewards: [G, K] raw rewards, without any KL term; K >= 2.
      competence_gate: False leaves the second gate open (DAPO); `solved` and `unsolved` still use its bar.
    """
    rewards = np.asarray(rewards, np.float64)
    mean, best = rewards.mean(1), rewards.max(1)
    std = rewards.std(1, ddof=1)
    contrast, competent = std >= min_std, best >= competent_reward
    accepted = contrast & (competent | (not competence_gate))
    relative = (rewards - mean[:, None]) / (std[:, None] + ADVANTAGE_EPSILON)
    return GatedAdvantages(
        advantages=np.where(accepted[:, None], relative, 0.0),
        accepted=accepted,
        std=std,
        mean=mean,
        best=best,
        solved=~contrast & competent,
        unsolved=~contrast & ~competent,
        incompetent=contrast & ~accepted,
    )
