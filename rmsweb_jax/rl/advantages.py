"""Group-relative advantages behind two gates (RMSWeb, section 3.4: gated dynamic sampling)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.qwen3_vl.inputs import Array

ADVANTAGE_EPSILON = 1e-6
# Nine rewards split 8 to 1 between levels 0.3 apart have a deviation of 0.1: rounding must not decide that.
ROUNDING = 1e-5


class GatedAdvantages(NamedTuple):
    """What the gates say of G groups of K samples.

    Every group is exactly one of accepted, rejected by the std gate (solved or unsolved), or rejected by
    the competence gate.

    Attributes:
      advantages: [G, K] float32, 0 in groups that are not accepted.
      accepted: [G] bool, k_g.
      std, mean, best: [G] float32 of the raw rewards; std is Bessel-corrected.
      solved, unsolved: [G] bool, std gate failed, with and without a competent sample.
      incompetent: [G] bool, std gate passed, competence gate failed.
    """

    advantages: Array
    accepted: Array
    std: Array
    mean: Array
    best: Array
    solved: Array
    unsolved: Array
    incompetent: Array


def gated_advantages(
    rewards: Array, *, min_std: float, competent_reward: float, competence_gate: bool = True
) -> GatedAdvantages:
    """Advantages within each group, zero where a gate rejects it (RMSWeb, equation 1).

        k_g       = 1[sigma_g >= min_std] 1[max_i r_{g,i} >= competent_reward]
        A_{g,i}   = k_g (r_{g,i} - mu_g) / (sigma_g + 1e-6)
        sigma_g^2 = sum_i (r_{g,i} - mu_g)^2 / (K - 1)

    Groups are independent, so that a mesh may split them.

    Args:
      rewards: [G, K] raw rewards, without any KL term; K >= 2.
      competence_gate: False leaves the second gate open (DAPO); `solved` and `unsolved` still use its bar.
    """
    rewards = jnp.asarray(rewards)
    mean, best = rewards.mean(1), rewards.max(1)
    apart = rewards - mean[:, None]
    std = jnp.sqrt(jnp.sum(apart**2, axis=1) / (rewards.shape[1] - 1))
    contrast, competent = std >= min_std * (1 - ROUNDING), best >= competent_reward
    accepted = contrast & (competent | (not competence_gate))
    return GatedAdvantages(
        advantages=jnp.where(accepted[:, None], apart / (std[:, None] + ADVANTAGE_EPSILON), 0.0),
        accepted=accepted,
        std=std,
        mean=mean,
        best=best,
        solved=~contrast & competent,
        unsolved=~contrast & ~competent,
        incompetent=contrast & ~accepted,
    )


_compiled = jax.jit(gated_advantages, static_argnames="competence_gate")


def gates_on_host(
    rewards: np.ndarray, *, min_std: float, competent_reward: float, competence_gate: bool = True
) -> GatedAdvantages:
    """`gated_advantages`, compiled, of and as numpy arrays."""
    gates = _compiled(
        rewards, min_std=min_std, competent_reward=competent_reward, competence_gate=competence_gate
    )
    return jax.device_get(gates)
