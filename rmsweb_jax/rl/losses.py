"""The Salvage-DS objective as functions of log-probabilities (RMSWeb, section 3; verl's PPO losses).

Means over sequences of means over tokens are linear in the token losses, so each token gets its weight
on the host, `1 / ((tokens of its sequence) * (sequences of the optimizer step))`, and a loss is a plain
weighted sum, so any split into micro-batches, rows and padding gives the same result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Bool, Float, Float32, Int32

from rmsweb_jax.qwen.inputs import Array
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
class TokenBatch:
    """What a loss knows of each scored token of a micro-batch, except its log-probability; 0 at padding.

    A sequence (a response, or a salvage target) is whole and in one row. A group may be cut over rows and
    micro-batches: what needs a whole group is the gate's. Weights are those of the whole optimizer step, and
    positive where the token takes part.

    Attributes:
      sequence: number of the token's sequence in its row, from 1; 0 is padding.
      advantages: advantage of the token's response; 0 in groups that are not accepted.
      pg_weight: weight in the mean over accepted responses of their token means, see `token_weights`.
      kl_weight: the same over all responses, those of rejected groups included.
      salvage_weight: the same over salvage targets, of the tokens in their action span.
      token_mean_weight: weight in the mean over all tokens of accepted responses.
      replay_weight: weight in the mean over replayed replies of their token means.
      old_log_probs, ref_log_probs: under the policy before the update, and under the frozen SFT policy.
      behaviour_log_probs: under the policies that drew the token, as the sampler computed them.
      importance: weight for the policies that drew the token, see `importance_weights`; 1 on policy.
    """

    sequence: Int32[Array, "rows scored"]
    advantages: Float[Array, "rows scored"]
    pg_weight: Float[Array, "rows scored"]
    kl_weight: Float[Array, "rows scored"]
    salvage_weight: Float[Array, "rows scored"]
    token_mean_weight: Float[Array, "rows scored"]
    replay_weight: Float[Array, "rows scored"]
    old_log_probs: Float[Array, "rows scored"]
    ref_log_probs: Float[Array, "rows scored"]
    behaviour_log_probs: Float[Array, "rows scored"]
    importance: Float[Array, "rows scored"]

    @classmethod
    def of(
        cls, sequence: Int32[Array, "rows scored"], values: Mapping[str, Array], *, off_policy: bool = False
    ) -> TokenBatch:
        """Makes it of the numbers of the sequences and `VALUES`.

        Args:
          off_policy: other policies drew some tokens; otherwise the importance is 1.
        """
        old = jnp.asarray(values["old_log_probs"])
        importance = jnp.ones_like(old)
        if off_policy:
            importance = importance_weights(old, jnp.asarray(values["behaviour_log_probs"]), IMPORTANCE_CAP)
        return cls(sequence=sequence, importance=importance, **values)

    def sequence_sum(self, values: Float[Array, "rows scored"]) -> Float[jax.Array, "rows scored"]:
        """Sums values over each sequence; every token of it gets the sum."""

        def row(values: jax.Array, sequence: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(values, sequence, num_segments=len(values) + 1)[sequence]

        return jax.vmap(row)(jnp.asarray(values), jnp.asarray(self.sequence))

    @property
    def length(self) -> Float[jax.Array, "rows scored"]:
        """Number of tokens of the token's sequence."""
        return self.sequence_sum(jnp.ones_like(jnp.asarray(self.importance)))


# The arrays of a `TokenBatch` that packing lays out.
VALUES = tuple(
    field.name for field in dataclasses.fields(TokenBatch) if field.name not in ("sequence", "importance")
)
# Loss of a micro-batch, and metrics: a sum over the optimizer step, or a sum and a count, whose mean it is.
Metric = jax.Array | tuple[jax.Array, jax.Array]
LossAndMetrics = tuple[jax.Array, dict[str, Metric]]
Loss = Callable[[jax.Array, TokenBatch, Objective], LossAndMetrics]


def salvage_ds(
    log_probs: Float32[jax.Array, "rows scored"], batch: TokenBatch, objective: Objective
) -> LossAndMetrics:
    """Computes a micro-batch's part of the loss (RMSWeb, equation 2).

        L = sum_t pg_weight w pg + lambda sum_t salvage_weight l + beta sum_t kl_weight k3

    with lambda = `objective.salvage_weight` and beta = `objective.kl_coef`, over all tokens t of the
    optimizer step, and w = 1, or the importance weight of the token. The rows may be sharded.

    Args:
      log_probs: of the tokens, under the policy that is trained.

    Returns:
      The loss, and its terms before their coefficients; ratios are means over tokens of accepted responses.
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
    weights = jnp.asarray(batch.importance)
    pg = jnp.sum(policy.loss * weights * batch.pg_weight)
    kl = jnp.sum(low_var_kl(log_probs, jnp.asarray(batch.ref_log_probs)) * batch.kl_weight)
    salvage = jnp.sum(salvage_loss(log_probs) * batch.salvage_weight)
    # Rejected responses have a KL weight too, but the metrics below are of the surrogate.
    accepted = jnp.asarray(batch.pg_weight) > 0

    def count(where: jax.Array) -> jax.Array:
        return jnp.sum(accepted & where).astype(jnp.float32)

    tokens, lower, upper = count(accepted), count(policy.clipped_lower), count(policy.clipped_upper)
    return pg + objective.salvage_weight * salvage + objective.kl_coef * kl, {
        "pg_loss": pg,
        "kl_ref": kl,
        "salvage_loss": salvage,
        # Without the ratio's clip: it should show a policy that has run away.
        "ppo_kl": (jnp.sum(jnp.where(accepted, old - log_probs, 0.0)), tokens),
        "pg_clipfrac": (lower + upper, tokens),
        "pg_clipfrac_lower": (lower, tokens),
        "pg_clipfrac_upper": (upper, tokens),
        "pg_clipfrac_dual": (count(policy.clipped_dual), tokens),
        "importance/mean": (jnp.sum(jnp.where(accepted, weights, 0.0)), tokens),
        "importance/capped": (count(weights >= IMPORTANCE_CAP), tokens),
    }


def with_replay(loss: Loss) -> Loss:
    """Adds what holds the policy on replayed replies, under any loss.

    L + replay_weight sum_t replay_weight_t (-log pi) + replay_kl sum_t replay_weight_t k3(ref || pi)
    """

    def whole(log_probs: jax.Array, batch: TokenBatch, objective: Objective) -> LossAndMetrics:
        value, metrics = loss(log_probs, batch, objective)
        replay = jnp.sum(-log_probs * batch.replay_weight)
        # These tokens were not drawn from the policy: this direction has a gradient where it has lost one.
        x = jnp.minimum(log_probs - jnp.asarray(batch.ref_log_probs), LOG_RATIO_BOUND)
        apart = jnp.exp(x) - x - 1
        kl = jnp.sum(jnp.where(x > 0, jnp.minimum(apart, KL_BOUND), apart) * batch.replay_weight)
        value += objective.replay_weight * replay + objective.replay_kl * kl
        return value, metrics | {"replay/loss": replay, "replay/kl": kl}

    return whole


def abstract_sums(loss: Loss, objective: Objective) -> LossAndMetrics:
    """Returns what a loss returns as shapes, which do not depend on those of the batch."""
    log_probs = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    values: dict[str, Any] = {field.name: log_probs for field in dataclasses.fields(TokenBatch)}
    values["sequence"] = jax.ShapeDtypeStruct((2, 3), jnp.int32)
    batch = TokenBatch(**values)
    return jax.eval_shape(lambda log_probs, batch: loss(log_probs, batch, objective), log_probs, batch)
