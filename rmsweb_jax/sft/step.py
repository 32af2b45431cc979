"""The parts of a training step that know the model; the loss and the compiled programs of SFT.

The loss is a mean of sequence means, which does not depend on micro-batches or packing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx, struct
from jax.sharding import Mesh
from jaxtyping import Bool, Float32, Int32, Key

from rmsweb_jax.data.batching import Batch, ScoredTokens
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.model import Qwen3VL, TokenScores, score_tokens
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.training.mesh import choose_remat, fits_device
from rmsweb_jax.training.step import DropoutKey, LossAndSums, Steps, TrainState, make_steps

Programs = TypeVar("Programs")

# Parameters that each value of `SftConfig.trainable` trains. All others are an argument of the programs and
# not part of the state, so that neither gradients nor checkpoints hold them.
TRAINABLE = {"lora": LoRAParam, "all": nnx.Param}


def split_model(model: Any, trainable: str) -> tuple[Any, Any, Any]:
    """Splits a model into its graph, the trained parameters and all other state.

    Args:
      trainable: a key of `TRAINABLE`.
    """
    graphdef, params, *rest = nnx.split(model, TRAINABLE[trainable], ...)
    return graphdef, params, rest[0]


def init_state(params: Any, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """Initializes the optimizer for `params` and shards both over the mesh."""
    params = jax.device_put(params, param_shardings(params, mesh))
    shardings = param_shardings(jax.eval_shape(optimizer.init, params), mesh)
    return TrainState(params, jax.jit(optimizer.init, out_shardings=shardings)(params))


def with_remat(
    policy: str,
    model: Qwen3VL,
    trainable: str,
    make: Callable[[Any], Programs],
    gradient: Callable[[Programs], jax.stages.Lowered],
    resident: Any,
) -> tuple[Any, Programs]:
    """Makes the programs of training with a policy of rematerialization; "auto" takes the cheapest that fits.

    Args:
      make: graph of the model -> programs.
      gradient: lowers the program that needs most memory.
      resident: other arrays that stay on the devices.

    Returns:
      The graph of the model, and the programs.
    """

    # Kept, since a program that was compiled to see if it fits is not compiled again by its first call.
    @functools.cache
    def made(policy: str) -> tuple[Any, Programs]:
        model.set_remat(policy)
        graphdef = split_model(model, trainable)[0]
        return graphdef, make(graphdef)

    def fits(policy: str) -> bool:
        return fits_device(lambda: gradient(made(policy)[1]), resident)

    return made(choose_remat(fits) if policy == "auto" else policy)


def sft_steps(
    graphdef: Any,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    mesh: Mesh,
    options: Mapping[str, Any] | None = None,
) -> Steps:
    """Makes the programs of supervised fine-tuning, see `training.step.make_steps`.

    Args:
      batch_size: sequences of all micro-batches together, B in the loss `(1 / B) * sum_i mean_t nll`.
    """

    def loss(params: Any, frozen: Any, batch: Batch, key: DropoutKey) -> LossAndSums:
        return sft_loss(nnx.merge(graphdef, params, frozen), batch, batch_size, key)

    def metrics(sums: LossSums) -> dict[str, jax.Array]:
        return {"loss/train": sums.loss / batch_size, **sums.means()}

    return make_steps(loss, LossSums.zero(), metrics, state, optimizer, mesh, options)


@struct.dataclass
class LossSums:
    """Sums over the sequences of a micro-batch; they add up over micro-batches.

    Attributes:
      loss: sum over sequences of their mean negative log-likelihood, in nats per token.
      tokens, correct: number of target tokens, and of those predicted correctly under teacher forcing.
      actions, exact_actions: number of sequences with an action span, and of those whose span is all correct.
    """

    loss: Float32[jax.Array, ""]
    tokens: Float32[jax.Array, ""]
    correct: Float32[jax.Array, ""]
    actions: Float32[jax.Array, ""]
    exact_actions: Float32[jax.Array, ""]

    @classmethod
    def zero(cls) -> LossSums:
        return cls(*(jnp.zeros((), jnp.float32) for _ in range(5)))

    def means(self) -> dict[str, jax.Array]:
        """Returns the accuracies as metrics."""
        return {
            "loss/token_accuracy": self.correct / jnp.maximum(self.tokens, 1),
            "loss/action_accuracy": self.exact_actions / jnp.maximum(self.actions, 1),
        }


def target_scores(model: Qwen3VL, batch: Batch, dropout_key: Key[jax.Array, ""] | None = None) -> TokenScores:
    """Scores the branches of a batch.

    Only the states that predict them are projected to the vocabulary, since prompts are most of every row.
    """
    scored = batch.scored
    hidden = model(batch.inputs, dropout_key=dropout_key)
    before = jnp.take_along_axis(hidden, jnp.asarray(scored.index)[..., None], axis=1)
    return score_tokens(model, before, scored.tokens, scored.count)


def loss_sums(scores: TokenScores, scored: ScoredTokens) -> LossSums:
    """Computes the sums of a micro-batch; every branch of a row counts as a sequence."""
    branch = jnp.asarray(scored.branch)
    mask, action = branch > 0, jnp.asarray(scored.values["action"]) > 0
    right = scores.matches & mask
    # Per sample: an action is exact only if every token of its span is right.
    has_action = _per_branch(action, branch) > 0
    exact = has_action & (_per_branch(action & ~right, branch) == 0)
    counts = (mask, right, has_action, exact)
    # A token's weight is 1 / (tokens of its sample), so that every sample weighs the same.
    loss = -jnp.sum(scores.log_probs * scored.values["weight"])
    return LossSums(loss, *(count.sum().astype(jnp.float32) for count in counts))


def _per_branch(
    values: Bool[jax.Array, "rows tokens"], branch: Int32[jax.Array, "rows tokens"]
) -> Int32[jax.Array, "rows branches"]:
    """Counts the true values of each branch of a row; there are at most as many as tokens."""
    count = branch.shape[1] + 1
    return jax.vmap(lambda value, number: jax.ops.segment_sum(value, number, count))(
        values.astype(jnp.int32), branch
    )


def sft_loss(
    model: Qwen3VL, batch: Batch, batch_size: int, dropout_key: Key[jax.Array, ""] | None = None
) -> LossAndSums:
    """Computes a micro-batch's share of the loss `(1 / batch_size) * sum_i mean_t nll_{i,t}`.

    The shares of all micro-batches of a batch add up to the loss, and their gradients to its gradient.

    Returns:
      The share; the sums for metrics, and the log-probability of each target.
    """
    scores = target_scores(model, batch, dropout_key)
    sums = loss_sums(scores, batch.scored)
    return sums.loss / batch_size, (sums, scores.log_probs)
