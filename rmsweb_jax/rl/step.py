"""The compiled programs of Salvage-DS: one for log-probabilities and gradients alike, one for the update."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx, struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import BATCH, param_shardings
from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.logprobs import MAX_LOGITS, score_tokens
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.rl.losses import Objective, ObjectiveSums, TokenBatch, salvage_ds_objective
from rmsweb_jax.sft.step import TrainState


@struct.dataclass
class Accumulated:
    """Gradient and sums of the micro-batches of an optimizer step so far."""

    gradients: Any
    sums: ObjectiveSums


class Steps(NamedTuple):
    """Compiled programs, for `frozen` parameters that never change.

    Attributes:
      run: `run(accumulated, params, frozen, inputs, targets, train) -> (accumulated, log_probs)`, what
        `add` and `log_probs` call; the first argument is donated.
      zero: `zero(params) -> Accumulated`. Its `gradients` also serve as adapters that add exactly nothing:
        with them the policy is its reference, the frozen SFT policy.
      add: `add(accumulated, params, frozen, inputs, targets) -> accumulated`; the first is donated.
      log_probs: `log_probs(params, frozen, inputs, targets) -> [B, N]`, of the same compiled program, so
        that the ratio to old log-probabilities under unchanged parameters is 1 to the last bit.
      choose: `choose(stale, sampled, recomputed) -> [B, N]` old log-probabilities: the sampler's of stale
        tokens, those recomputed by `log_probs` of all others.
      update: `update(state, accumulated) -> (state, metrics)`; the state is donated, and stays what it was
        where loss or gradient is not finite (metric `skipped` is then 1).
    """

    run: Callable[[Accumulated, Any, Any, ModelInputs, TokenBatch, jax.Array], tuple[Accumulated, jax.Array]]
    zero: Callable[[Any], Accumulated]
    add: Callable[[Accumulated, Any, Any, ModelInputs, TokenBatch], Accumulated]
    log_probs: Callable[[Any, Any, ModelInputs, TokenBatch], jax.Array]
    choose: Callable[[Array, Array, Array], jax.Array]
    update: Callable[[TrainState, Accumulated], tuple[TrainState, dict[str, jax.Array]]]


def scored_log_probs(
    model: Qwen3VL, inputs: ModelInputs, targets: TokenBatch, max_logits: int = MAX_LOGITS
) -> jax.Array:
    """log p of the scored tokens: [B, N] float32."""
    hidden = jnp.take_along_axis(model(inputs), jnp.asarray(targets.index)[..., None], axis=1)
    return score_tokens(model, hidden, targets.tokens, max_logits=max_logits).log_probs


def make_steps(
    graphdef: Any,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    objective: Objective,
    mesh: Mesh,
) -> Steps:
    """Compiles (on first use, once a shape) the programs that train `state`."""
    everywhere, by_rows = NamedSharding(mesh, P()), NamedSharding(mesh, BATCH)
    like_params = param_shardings(state.params, mesh)
    like_state = jax.tree.map(lambda x: x.sharding, state)
    accumulated = Accumulated(like_params, jax.tree.map(lambda _: everywhere, ObjectiveSums.zero()))

    @functools.partial(jax.jit, out_shardings=accumulated)
    def zero(params: Any) -> Accumulated:
        return Accumulated(
            jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params), ObjectiveSums.zero()
        )

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(accumulated, by_rows))
    def run(
        total: Accumulated,
        params: Any,
        frozen: Any,
        inputs: ModelInputs,
        targets: TokenBatch,
        train: jax.Array,
    ) -> tuple[Accumulated, jax.Array]:
        def loss(params: Any) -> tuple[jax.Array, tuple[ObjectiveSums, jax.Array]]:
            log_probs = scored_log_probs(nnx.merge(graphdef, params, frozen), inputs, targets)
            sums = salvage_ds_objective(log_probs, targets, objective)
            return sums.loss, (sums, log_probs)

        value, backward, (sums, log_probs) = jax.vjp(loss, params, has_aux=True)

        def with_gradient() -> Accumulated:
            (gradients,) = backward(jnp.ones_like(value))
            return Accumulated(
                jax.tree.map(lambda a, b: a + b.astype(jnp.float32), total.gradients, gradients),
                jax.tree.map(jnp.add, total.sums, sums),
            )

        # A branch at run time, not two programs: the forward is then the very same machine code.
        return jax.lax.cond(train, with_gradient, lambda: total), log_probs

    def add(
        total: Accumulated, params: Any, frozen: Any, inputs: ModelInputs, targets: TokenBatch
    ) -> Accumulated:
        return run(total, params, frozen, inputs, targets, jnp.asarray(True))[0]

    def log_probs(params: Any, frozen: Any, inputs: ModelInputs, targets: TokenBatch) -> jax.Array:
        return run(zero(params), params, frozen, inputs, targets, jnp.asarray(False))[1]

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(like_state, everywhere))
    def update(state: TrainState, total: Accumulated) -> tuple[TrainState, dict[str, jax.Array]]:
        updates, opt_state = optimizer.update(total.gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        norm = optax.global_norm(total.gradients)
        finite = jnp.isfinite(total.sums.loss) & jnp.isfinite(norm)
        tokens = jnp.maximum(total.sums.tokens, 1)
        metrics = {
            "loss": total.sums.loss,
            "pg_loss": total.sums.pg_loss,
            "kl_ref": total.sums.kl_loss,
            "salvage_loss": total.sums.salvage_loss,
            "ppo_kl": total.sums.log_ratio / tokens,
            "pg_clipfrac": (total.sums.clipped_lower + total.sums.clipped_upper) / tokens,
            "pg_clipfrac_lower": total.sums.clipped_lower / tokens,
            "pg_clipfrac_upper": total.sums.clipped_upper / tokens,
            "pg_clipfrac_dual": total.sums.clipped_dual / tokens,
            "norm/gradient": norm,
            "norm/params": optax.global_norm(params),
            "norm/update": optax.global_norm(updates),
            "skipped": 1.0 - finite,
        }
        # The choice is made where the state is: nothing has to wait for the host to look at the loss.
        after = TrainState(params, opt_state)
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state), metrics

    choose = jax.jit(jnp.where, out_shardings=by_rows)
    return Steps(run, zero, add, log_probs, choose, update)
