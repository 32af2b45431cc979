"""The supervised loss: a mean of sequence means, whatever the micro-batching."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from rmsweb_jax.data.batching import Batch, Targets
from rmsweb_jax.qwen3_vl.logprobs import TokenScores, score_tokens
from rmsweb_jax.qwen3_vl.model import Qwen3VL


@struct.dataclass
class LossSums:
    """Sums over the sequences of a micro-batch; they add up over micro-batches.

    Attributes:
      loss: sum over sequences of their mean negative log-likelihood (nats a token).
      tokens, correct: target tokens, and those predicted right under teacher forcing.
      actions, exact_actions: sequences with an action span, and those with every token of it right.
    """

    loss: jax.Array
    tokens: jax.Array
    correct: jax.Array
    actions: jax.Array
    exact_actions: jax.Array

    @classmethod
    def zero(cls) -> LossSums:
        return cls(*(jnp.zeros((), jnp.float32) for _ in range(5)))

    def means(self) -> dict[str, jax.Array]:
        """Loss and accuracies as metrics."""
        return {
            "loss/token_accuracy": self.correct / jnp.maximum(self.tokens, 1),
            "loss/action_accuracy": self.exact_actions / jnp.maximum(self.actions, 1),
        }


def target_scores(model: Qwen3VL, batch: Batch, dropout_key: jax.Array | None = None) -> TokenScores:
    """Scores of the targets, [B, R] each.

    The vocabulary projection is made at their places alone, since prompts are most of every row.
    """
    hidden = model(batch.inputs, dropout_key=dropout_key)
    at_targets = jnp.take_along_axis(hidden, jnp.asarray(batch.targets.index)[..., None], axis=1)
    return score_tokens(model, at_targets, batch.targets.tokens)


def sequence_means(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of each row over its mask: [B, R] -> [B]; 0 for an empty row."""
    return (values * mask).sum(-1) / jnp.maximum(mask.sum(-1), 1)


def loss_sums(scores: TokenScores, targets: Targets) -> LossSums:
    """What a micro-batch adds to loss and accuracies."""
    mask, action_mask = jnp.asarray(targets.mask), jnp.asarray(targets.action_mask)
    loss = sequence_means(-scores.log_probs, mask).sum()
    right = scores.matches.astype(jnp.float32)
    has_action = action_mask.sum(-1) > 0
    exact = has_action & (((1 - right) * action_mask).sum(-1) == 0)
    return LossSums(loss, mask.sum(), (right * mask).sum(), has_action.sum() * 1.0, exact.sum() * 1.0)


def sft_loss(
    model: Qwen3VL, batch: Batch, batch_size: int, dropout_key: jax.Array | None = None
) -> tuple[jax.Array, LossSums]:
    """This micro-batch's part of `(1 / batch_size) * sum_i mean_t nll_{i,t}`.

    The parts of all micro-batches of a batch add up to the loss, and their gradients to its gradient.

    Returns:
      The part, and sums for metrics.
    """
    sums = loss_sums(target_scores(model, batch, dropout_key), batch.targets)
    return sums.loss / batch_size, sums
