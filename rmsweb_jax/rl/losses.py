"""The Salvage-DS objective as functions of log-probabilities (RMSWeb, section 3; verl's PPO losses).

Means over sequences of means over tokens are linear in the token losses, so each token gets its weight
on the host, `1 / ((tokens of its sequence) * (sequences of the optimizer step))`, and a loss is a plain
weighted sum, so any split into micro-batches, rows and padding gives the same result.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Bool, Float, Float32, Float64

from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.rl.config import Objective

# The bounds are verl's. exp(20) is 4.9e8: a token whose probability has changed a lot gives a large loss,
# not an infinite one whose gradient would be NaN.
LOG_RATIO_BOUND = 20.0
KL_BOUND = 10.0
# verl's bound of the ratio of a negative advantage; 1 would bound tokens whose probability has not changed.
DUAL_CLIP = 3.0
# Largest weight of a token from earlier policies; below 1 it would be a factor of the policy's own tokens.
IMPORTANCE_CAP = 2.0
# Added to the number of tokens, as in verl's masked mean: a sequence without tokens weighs 0, not NaN.
MASK_EPSILON = 1e-8


class PolicyLoss(NamedTuple):
    """Token losses of the clipped surrogate, and the tokens at which clipping changed them.

    Attributes:
      loss: to be minimised.
      clipped_lower: the ratio fell below `1 - clip_low` where the advantage is negative.
      clipped_upper: the ratio rose above `1 + clip_high` where the advantage is positive.
      clipped_dual: the bound `-dual_clip * A` was used (verl's `pg_clipfrac_lower`).
    """

    loss: Float[jax.Array, "*shape"]
    clipped_lower: Bool[jax.Array, "*shape"]
    clipped_upper: Bool[jax.Array, "*shape"]
    clipped_dual: Bool[jax.Array, "*shape"]


def policy_loss(
    log_probs: Float[jax.Array, "*shape"],
    old_log_probs: Float[jax.Array, "*shape"],
    advantages: Float[jax.Array, "*shape"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> PolicyLoss:
    """Computes asymmetric PPO clipping with a dual clip, token by token (RMSWeb, equation 2, first term).

        rho = exp(clip(log_probs - old_log_probs, -20, 20))
        pg  = max(-A rho, -A clip(rho, 1 - clip_low, 1 + clip_high));  where A < 0: min(pg, -dual_clip A)

    The paper does not write out the dual clip (Ye et al. 2020); verl, with which it trained, has it.
    """
    ratio = jnp.exp(jnp.clip(log_probs - old_log_probs, -LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    plain = -advantages * ratio
    clipped = -advantages * jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    # The maximum does not bound the loss where A < 0 and the ratio is large, that is where the policy moved
    # towards a response that was worse than its group. The dual clip does.
    bound = -dual_clip * advantages
    pessimistic = jnp.maximum(plain, clipped)
    negative = advantages < 0
    # Strictly, as in verl's pg_clipfrac: inside the clip range both terms are equal and nothing was clipped.
    decided = clipped > plain
    return PolicyLoss(
        loss=jnp.where(negative, jnp.minimum(pessimistic, bound), pessimistic),
        clipped_lower=decided & negative,
        clipped_upper=decided & ~negative,
        clipped_dual=negative & (pessimistic > bound),
    )


def low_var_kl(
    log_probs: Float[jax.Array, "*shape"], ref_log_probs: Float[jax.Array, "*shape"]
) -> Float[jax.Array, "*shape"]:
    """Computes the k3 estimate of KL(pi || ref) for sampled tokens (RMSWeb, equation 2, last term).

        x  = clip(ref_log_probs - log_probs, -20, 20)
        k3 = clip(exp(x) - x - 1, -10, 10)

    Source: verl's `low_var_kl` (RMSWeb, appendix "Salvage-DS RL configuration").
    """
    # Unlike the plain difference of log-probabilities, k3 is never negative, which lowers the variance of the
    # estimate (Schulman, "Approximating KL Divergence", 2020).
    x = jnp.clip(ref_log_probs - log_probs, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return jnp.clip(jnp.exp(x) - x - 1, -KL_BOUND, KL_BOUND)


def salvage_loss(log_probs: Float[jax.Array, "*shape"]) -> Float[jax.Array, "*shape"]:
    """Computes token losses of the salvage anchor (RMSWeb, section "The salvage anchor on rejected groups").

        l_t = -log pi(a_GT,t | context),  of which L_salv = E_rejected[(1 / |A|) sum_{t in A} l_t]

    The token weights hold the action span A and both means, see `token_weights`.
    """
    return -log_probs


def token_weights(mask: Bool[np.ndarray, " tokens"], num_sequences: float) -> Float32[np.ndarray, " tokens"]:
    """Computes the weights of a sequence's tokens in a mean of sequence means over `num_sequences`.

    Args:
      mask: the sequence's tokens that count.
      num_sequences: in a weighted mean, the weight of all sequences divided by that of this one.

    Returns:
      `mask / (sum(mask) + 1e-8) / num_sequences`.
    """
    # `num_sequences` is that of the optimizer step. verl's mean is over the rows of each micro-batch, so that
    # a row weighs by the accident of its micro-batch (docs/results/verl.md).
    return (mask / (mask.sum() + MASK_EPSILON) / num_sequences).astype(np.float32)


@struct.dataclass
class TokenBatch:
    """What the objective needs of each scored token of a micro-batch; padding has weight 0 in every term.

    Attributes:
      advantages: advantage of the token's response.
      pg_weight, kl_weight, salvage_weight: see `token_weights`; positive where the token takes part in that
        term.
      old_log_probs, ref_log_probs: under the policy before the update, and under the frozen SFT policy.
      behaviour_log_probs: under the policies that drew the token, as the sampler computed them.
    """

    advantages: Float32[Array, "rows scored"]
    pg_weight: Float32[Array, "rows scored"]
    kl_weight: Float32[Array, "rows scored"]
    salvage_weight: Float32[Array, "rows scored"]
    old_log_probs: Float32[Array, "rows scored"]
    ref_log_probs: Float32[Array, "rows scored"]
    behaviour_log_probs: Float32[Array, "rows scored"]


def importance_weights(
    old_log_probs: Float[jax.Array, "*shape"], behaviour_log_probs: Float[jax.Array, "*shape"], cap: float
) -> Float[jax.Array, "*shape"]:
    """Computes the weights of tokens that other policies drew, `min(exp(old - behaviour), cap)`.

    The clipped ratio is relative to the policy before the update; this one corrects from the policies that
    drew the tokens to that one. Source: decoupled PPO (Hilton et al. 2022, Fu et al. 2025), truncated as in
    IMPALA (Espeholt et al. 2018).
    """
    ratio = jnp.clip(old_log_probs - behaviour_log_probs, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(ratio), cap))


@struct.dataclass
class ObjectiveSums:
    """Scalars that add up over the micro-batches of an optimizer step.

    Attributes:
      loss, pg_loss, kl_loss, salvage_loss: the objective, and its terms before their coefficients.
      tokens: number of tokens of accepted responses; the sums below are over these tokens.
      clipped_lower, clipped_upper, clipped_dual: counts, see `PolicyLoss`.
      log_ratio: sum of old - new log-probabilities.
      importance, capped: sum of the importance weights, and number of those at the cap.
    """

    loss: Float32[jax.Array, ""]
    pg_loss: Float32[jax.Array, ""]
    kl_loss: Float32[jax.Array, ""]
    salvage_loss: Float32[jax.Array, ""]
    tokens: Float32[jax.Array, ""]
    clipped_lower: Float32[jax.Array, ""]
    clipped_upper: Float32[jax.Array, ""]
    clipped_dual: Float32[jax.Array, ""]
    log_ratio: Float32[jax.Array, ""]
    importance: Float32[jax.Array, ""]
    capped: Float32[jax.Array, ""]

    @classmethod
    def zero(cls) -> ObjectiveSums:
        return cls(*(jnp.zeros((), jnp.float32) for _ in range(11)))


def salvage_ds_objective(
    log_probs: Float32[jax.Array, "rows scored"],
    batch: TokenBatch,
    objective: Objective,
    *,
    off_policy: bool = False,
) -> ObjectiveSums:
    """Computes a micro-batch's part of the loss (RMSWeb, equation 2).

        L = sum_t pg_weight w pg + lambda sum_t salvage_weight l + beta sum_t kl_weight k3

    with lambda = `objective.salvage_weight` and beta = `objective.kl_coef`, over all tokens t of the
    optimizer step, and w = 1, or the importance weight of the token. The rows may be sharded.

    Args:
      log_probs: of the tokens, under the policy that is trained.
      off_policy: weigh tokens for the policies that drew them, see `importance_weights`.

    Returns:
      The sums; `loss` is the one to differentiate.
    """
    old, advantages = jnp.asarray(batch.old_log_probs), jnp.asarray(batch.advantages)
    policy = policy_loss(
        log_probs,
        old,
        advantages,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        dual_clip=DUAL_CLIP,
    )
    weights = jnp.ones_like(log_probs)
    if off_policy:
        weights = importance_weights(old, jnp.asarray(batch.behaviour_log_probs), IMPORTANCE_CAP)
    pg = jnp.sum(policy.loss * weights * batch.pg_weight)
    kl = jnp.sum(low_var_kl(log_probs, jnp.asarray(batch.ref_log_probs)) * batch.kl_weight)
    salvage = jnp.sum(salvage_loss(log_probs) * batch.salvage_weight)
    # Rejected responses have a KL weight too, but the metrics below are of the surrogate.
    accepted = jnp.asarray(batch.pg_weight) > 0

    def count(where: jax.Array) -> jax.Array:
        return jnp.sum(accepted & where).astype(jnp.float32)

    return ObjectiveSums(
        loss=pg + objective.salvage_weight * salvage + objective.kl_coef * kl,
        pg_loss=pg,
        kl_loss=kl,
        salvage_loss=salvage,
        tokens=count(accepted),
        clipped_lower=count(policy.clipped_lower),
        clipped_upper=count(policy.clipped_upper),
        clipped_dual=count(policy.clipped_dual),
        # Without the ratio's clip: `ppo_kl` should show a policy that has run away.
        log_ratio=jnp.sum(jnp.where(accepted, old - log_probs, 0.0)),
        importance=jnp.sum(jnp.where(accepted, weights, 0.0)),
        capped=count(weights >= IMPORTANCE_CAP),
    )


# epsilon_sigma and r_comp of the appendix. 0.55 is between core-correct (0.7) and the right type (0.3).
MIN_STD, COMPETENT_REWARD = 0.10, 0.55
# The paper's value, also verl's.
ADVANTAGE_EPSILON = 1e-6
# Relative tolerance of the std gate. Nine rewards split 8 to 1 between levels 0.3 apart have a standard
# deviation of exactly 0.1, which rounding must not reject.
ROUNDING = 1e-5


class GatedAdvantages(NamedTuple):
    """The gates' decisions on groups of samples.

    Every group is exactly one of accepted, rejected by the std gate (solved or unsolved), or rejected by
    the competence gate.

    Attributes:
      advantages: 0 in groups that are not accepted.
      accepted: k_g.
      solved, unsolved: the std gate failed, with and without a competent sample.
      incompetent: the std gate passed, the competence gate failed.
    """

    advantages: Float64[np.ndarray, "groups samples"]
    accepted: Bool[np.ndarray, " groups"]
    solved: Bool[np.ndarray, " groups"]
    unsolved: Bool[np.ndarray, " groups"]
    incompetent: Bool[np.ndarray, " groups"]


# Of `GatedAdvantages`; every group has exactly one of them.
FATES = ("accepted", "solved", "unsolved", "incompetent")


def gated_advantages(
    rewards: Float64[np.ndarray, "groups samples"], competence_gate: bool = True
) -> GatedAdvantages:
    """Computes advantages within each group, zero where a gate rejects it (RMSWeb, equation 1).

        k_g       = 1[sigma_g >= MIN_STD] 1[max_i r_{g,i} >= COMPETENT_REWARD]
        A_{g,i}   = k_g (r_{g,i} - mu_g) / (sigma_g + 1e-6)
        sigma_g^2 = sum_i (r_{g,i} - mu_g)^2 / (K - 1)

    Args:
      rewards: raw rewards, without any KL term; at least two samples.
      competence_gate: False accepts every group that passes the std gate (DAPO); `solved` and `unsolved`
        still use the competent reward.
    """
    assert np.isfinite(rewards).all()
    apart = rewards - rewards.mean(1, keepdims=True)
    std = rewards.std(1, ddof=1)
    contrast, competent = std >= MIN_STD * (1 - ROUNDING), rewards.max(1) >= COMPETENT_REWARD
    accepted = contrast & (competent | (not competence_gate))
    return GatedAdvantages(
        # Zero behind the gate, not only small: a rounding of the mean would be divided by 1e-6. In float32
        # verl's advantage of eight rewards of 0.7 is 0.056 for every sample.
        advantages=np.where(accepted[:, None], apart / (std[:, None] + ADVANTAGE_EPSILON), 0.0),
        accepted=accepted,
        solved=~contrast & competent,
        unsolved=~contrast & ~competent,
        incompetent=contrast & ~accepted,
    )
