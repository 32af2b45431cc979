"""Gates: which groups of samples are trained on, and the advantages of their samples (RMSWeb, equation 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

# epsilon_sigma and r_comp of the appendix. 0.55 is between core-correct (0.7) and the right type (0.3).
MIN_STD, COMPETENT_REWARD = 0.10, 0.55
# The paper's value, also verl's.
ADVANTAGE_EPSILON = 1e-6
# Relative tolerance of the std gate. Nine rewards split 8 to 1 between levels 0.3 apart have a standard
# deviation of exactly 0.1, which rounding must not reject.
ROUNDING = 1e-5
# What becomes of a group: it is trained on; or its rewards hardly differ, with or without a competent sample
# among them; or they differ, and none is competent.
FATES = ("accepted", "solved", "unsolved", "incompetent")


class Gated(NamedTuple):
    """Decisions on groups of samples.

    Attributes:
      fates: one of `FATES` for each group.
      advantages: 0 in groups that are not accepted.
    """

    fates: Shaped[np.ndarray, " groups"]
    advantages: Float64[np.ndarray, "groups samples"]


Gate = Callable[[Float64[np.ndarray, "groups samples"]], Gated]


def contrast(rewards: Float64[np.ndarray, "groups samples"]) -> Gated:
    """Accepts groups whose rewards differ (DAPO), and divides by their standard deviation.

        k_g       = 1[sigma_g >= MIN_STD]
        A_{g,i}   = k_g (r_{g,i} - mu_g) / (sigma_g + 1e-6)
        sigma_g^2 = sum_i (r_{g,i} - mu_g)^2 / (K - 1)

    Args:
      rewards: raw rewards, without any KL term; at least two samples.
    """
    apart = rewards - rewards.mean(1, keepdims=True)
    std = rewards.std(1, ddof=1)
    accepted = std >= MIN_STD * (1 - ROUNDING)
    rejected = np.where(rewards.max(1) >= COMPETENT_REWARD, "solved", "unsolved")
    # Zero behind the gate, not only small: a rounding of the mean would be divided by 1e-6. In float32
    # verl's advantage of eight rewards of 0.7 is 0.056 for every sample.
    advantages = np.where(accepted[:, None], apart / (std[:, None] + ADVANTAGE_EPSILON), 0.0)
    return Gated(np.where(accepted, "accepted", rejected), advantages)


def salvage_ds(rewards: Float64[np.ndarray, "groups samples"]) -> Gated:
    """Accepts groups that pass `contrast` and have a competent sample (RMSWeb, equation 1).

    k_g = 1[sigma_g >= MIN_STD] 1[max_i r_{g,i} >= COMPETENT_REWARD]
    """
    fates, advantages = contrast(rewards)
    rejected = (fates == "accepted") & (rewards.max(1) < COMPETENT_REWARD)
    return Gated(np.where(rejected, "incompetent", fates), np.where(rejected[:, None], 0.0, advantages))


def gate_group(
    gate: Gate, rewards: Float64[np.ndarray, " samples"]
) -> tuple[str, Float64[np.ndarray, " samples"]]:
    """Returns a group's fate and its advantages."""
    assert np.isfinite(rewards).all()
    # A copy, since a gate may change its argument, and the group keeps its rewards.
    fates, advantages = gate(rewards[None].copy())
    return str(fates[0]), advantages[0]
