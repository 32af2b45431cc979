"""Compiled programs of training: one for log-probabilities and gradients alike, and one for the update.

And its optimizer: AdamW, and the learning-rate schedule of SFT.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float32, Key

from rmsweb_jax.training.mesh import BATCH

# Number of skipped optimizer steps in a row after which a run stops. A single one may be an accident of a
# batch; a policy that has diverged skips all.
MAX_SKIPPED = 3

LogProbs = Float32[jax.Array, "rows tokens"]
DropoutKey = Key[jax.Array, ""] | None
# Whether a program computes gradients: decided as it runs, or None for one that always does.
Train = Bool[jax.Array, ""] | None
# Of a micro-batch: loss, sums for metrics (a dataclass of scalars, one of them `loss`) and log-probabilities.
# Losses and sums add up over the micro-batches of an optimizer step.
LossAndSums = tuple[Float32[jax.Array, ""], tuple[Any, LogProbs]]


@struct.dataclass
class TrainState:
    """The state that updates change and checkpoints hold.

    Attributes:
      params: trained parameters (`nnx.State`): adapters, or every weight.
      opt_state: state of the optimizer, see `adamw`.
    """

    params: Any
    opt_state: Any


@struct.dataclass
class Accumulated:
    """Sums of gradients and of metrics over the micro-batches of an optimizer step so far."""

    gradients: Any
    sums: Any


class Steps(NamedTuple):
    """Compiled programs; `frozen` are the parameters that are not trained.

    Attributes:
      run: `run(accumulated, params, frozen, batch, train, key) -> (accumulated, log_probs)`, which `add` and
        `log_probs` call; the first argument is donated.
      zero: `zero(params) -> Accumulated`.
      add: `add(accumulated, params, frozen, batch, key=None) -> accumulated`; the first is donated.
      log_probs: `log_probs(params, frozen, batch) -> log-probabilities`. With `one_program` it is the
        compiled program of `add`: with unchanged parameters the ratio to old log-probabilities is exactly 1.
      update: `update(state, accumulated) -> (state, metrics)`; the state is donated. If the loss or its
        gradient is not finite, parameters and moments do not change. The metrics `skipped_in_a_row` and
        `skipped_steps` count such steps, up to this one and since the beginning of training.
    """

    run: Callable[[Accumulated, Any, Any, Any, Train, DropoutKey], tuple[Accumulated, LogProbs]]
    zero: Callable[[Any], Accumulated]
    add: Callable[..., Accumulated]
    log_probs: Callable[[Any, Any, Any], LogProbs]
    update: Callable[[TrainState, Accumulated], tuple[TrainState, dict[str, jax.Array]]]


def make_steps(
    loss: Callable[[Any, Any, Any, DropoutKey], LossAndSums],
    zero_sums: Any,
    sums_to_metrics: Callable[[Any], dict[str, jax.Array]],
    state: TrainState,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    options: Mapping[str, Any] | None = None,
    *,
    one_program: bool = False,
) -> Steps:
    """Makes the programs that train `state`; each compiles on first use.

    Args:
      loss: `loss(params, frozen, batch, key)`.
      zero_sums: the sums of no micro-batch.
      sums_to_metrics: metrics of an optimizer step, to which `update` adds norms and skipped steps.
      optimizer: of `adamw`.
      options: of the compiler.
      one_program: for gradients and log-probabilities; where these are not needed, the gradient is faster in
        a program of its own.
    """
    compiled = functools.partial(jax.jit, donate_argnums=0, compiler_options=dict(options or {}))
    # Metrics are replicated, so that every process reads and reports the same ones.
    everywhere, by_rows = NamedSharding(mesh, P()), NamedSharding(mesh, BATCH)
    # Output shardings are written out: gradients and state stay where the parameters are, so that donated
    # buffers fit and no later call sees another sharding.
    like_state = jax.tree.map(lambda x: x.sharding, state)
    accumulated = Accumulated(like_state.params, jax.tree.map(lambda _: everywhere, zero_sums))

    @functools.partial(jax.jit, out_shardings=accumulated)
    def zero(params: Any) -> Accumulated:
        return Accumulated(jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params), zero_sums)

    @functools.partial(compiled, out_shardings=(accumulated, by_rows))
    def run(
        total: Accumulated, params: Any, frozen: Any, batch: Any, train: Train, key: DropoutKey
    ) -> tuple[Accumulated, LogProbs]:
        # The forward pass is outside of the branch, so that both branches share it.
        value, backward, (sums, log_probs) = jax.vjp(
            lambda params: loss(params, frozen, batch, key), params, has_aux=True
        )

        def with_gradient() -> Accumulated:
            (gradients,) = backward(jnp.ones_like(value))
            # Summed in float32, so that the sum hardly depends on the number of micro-batches.
            return Accumulated(
                jax.tree.map(lambda a, b: a + b.astype(jnp.float32), total.gradients, gradients),
                jax.tree.map(jnp.add, total.sums, sums),
            )

        if train is None:
            return with_gradient(), log_probs
        # A branch at run time, not two programs: XLA could order the sums of a second program differently,
        # and the ratio to the old log-probabilities would not be exactly 1 before the first update.
        return jax.lax.cond(train, with_gradient, lambda: total), log_probs

    def add(total: Accumulated, params: Any, frozen: Any, batch: Any, key: DropoutKey = None) -> Accumulated:
        return run(total, params, frozen, batch, jnp.asarray(True) if one_program else None, key)[0]

    def log_probs(params: Any, frozen: Any, batch: Any) -> LogProbs:
        return run(zero(params), params, frozen, batch, jnp.asarray(False), None)[1]

    @functools.partial(compiled, out_shardings=(like_state, everywhere))
    def update(state: TrainState, total: Accumulated) -> tuple[TrainState, dict[str, jax.Array]]:
        norm = optax.global_norm(total.gradients)
        # The optimizer looks at the gradients alone, which may be finite where the loss or their norm is not.
        finite = jnp.isfinite(total.sums.loss) & jnp.isfinite(norm)
        # One array stands for all, since none is applied if one is not finite.
        leaves, structure = jax.tree.flatten(total.gradients)
        leaves[0] = jnp.where(finite, leaves[0], jnp.nan)
        gradients = jax.tree.unflatten(structure, leaves)
        updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = sums_to_metrics(total.sums) | {
            "norm/gradient": norm,
            "norm/params": optax.global_norm(params),
            "norm/update": optax.global_norm(updates),
            "skipped_in_a_row": optax.tree.get(opt_state, "notfinite_count"),
            "skipped_steps": optax.tree.get(opt_state, "total_notfinite"),
        }
        return TrainState(params, opt_state), metrics

    return Steps(run, zero, add, log_probs, update)


Schedule = Callable[[Any], Any]


def warmup_cosine(peak: float, total_steps: int, warmup_ratio: float) -> Schedule:
    """Makes a schedule with linear warm-up, then a cosine decay to 0.

    With s counted from 0 and w = ceil(warmup_ratio * total_steps), the rate is `peak * s / w` for s < w, so
    that the first update has rate 0, and then `peak * (1 + cos(pi * (s - w) / (total_steps - w))) / 2`.
    Source: LLaMA-Factory's `cosine`, which is transformers' `get_cosine_schedule_with_warmup`.
    """
    # Rounded up, as in LLaMA-Factory.
    warmup = math.ceil(warmup_ratio * total_steps)

    def schedule(step: Any) -> Any:
        step = jnp.asarray(step, jnp.float32)
        rise = step / max(1, warmup)
        share = jnp.clip((step - warmup) / max(1, total_steps - warmup), 0.0, 1.0)
        return peak * jnp.where(step < warmup, rise, 0.5 * (1.0 + jnp.cos(jnp.pi * share)))

    return schedule


def adamw(
    learning_rate: float | Schedule, *, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
    """Makes AdamW (0.9, 0.999, eps 1e-8) after clipping by the global norm; decays all trained arrays.

    Gradients that are not finite change nothing but the counts in its state (`optax.ApplyIfFiniteState`).
    """
    # Decay applies to adapters too, A and B alike, as in the trainers of the paper's runs.
    optimizer = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(learning_rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay),
    )
    # Never applied, however many there are: an iteration dispatches all its steps before the run reads the
    # counts and stops.
    return optax.apply_if_finite(optimizer, max_consecutive_errors=jnp.iinfo(jnp.int32).max)
