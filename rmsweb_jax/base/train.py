"""Training of the tiny base: Muon for the decoder's matrices, Adam for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from rmsweb_jax.base.rows import Batch
from rmsweb_jax.qwen3_vl.model import Qwen3VL

Params = dict[str, jax.Array]
NUM_KINDS = 8


class TrainState(NamedTuple):
    """What a checkpoint holds."""

    params: Params
    opt_state: optax.OptState


class StepMetrics(NamedTuple):
    """Sums over a batch, so that steps can be added up.

    Attributes:
      loss: weighted mean of the tokens' cross-entropies.
      correct, asked: [NUM_KINDS] index tokens that were predicted, by kind of question; 0 is unused.
      chance: what guessing among the possible elements would have got right.
      copied, copies: other learned tokens, predicted and in all.
    """

    loss: jax.Array
    correct: jax.Array
    asked: jax.Array
    chance: jax.Array
    copied: jax.Array
    copies: jax.Array


class Skeleton(NamedTuple):
    """A model without its parameters."""

    graphdef: Any
    rest: Any
    paths: dict[str, tuple[Any, ...]]


def split_params(model: Qwen3VL) -> tuple[Skeleton, Params]:
    """The model's skeleton, and its parameters by dotted path."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    flat = {".".join(map(str, path)): (path, value[...]) for path, value in nnx.to_flat_state(params)}
    paths = {name: path for name, (path, _) in flat.items()}
    return Skeleton(graphdef, rest, paths), {name: value for name, (_, value) in flat.items()}


def join_params(skeleton: Skeleton, params: Params) -> Qwen3VL:
    """The inverse of `split_params`."""
    state = nnx.from_flat_state([(skeleton.paths[name], nnx.Param(value)) for name, value in params.items()])
    return nnx.merge(skeleton.graphdef, state, skeleton.rest)


def make_optimizer(muon_rate: float, adam_rate: float) -> optax.GradientTransformation:
    """Muon where a matrix maps activations to activations in the decoder, Adam elsewhere."""

    def dimensions(params: optax.Params) -> dict[str, Any]:
        return {name: _muon_axes(name, value) for name, value in cast(Params, params).items()}

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            muon_rate,
            adam_learning_rate=adam_rate,
            adam_b2=0.98,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def _muon_axes(name: str, value: jax.Array) -> optax.contrib.MuonDimensionNumbers | None:
    if not (name.startswith("language_model.") and name.endswith(".kernel")):
        return None
    return optax.contrib.MuonDimensionNumbers(value.ndim - 2, value.ndim - 1)


def make_loss(skeleton: Skeleton) -> Callable[[Params, Batch], tuple[jax.Array, StepMetrics]]:
    """Weighted cross-entropy at the learned positions only; the vocabulary is not computed elsewhere."""

    def loss_fn(params: Params, batch: Batch) -> tuple[jax.Array, StepMetrics]:
        model = join_params(skeleton, params)
        hidden = model(batch.inputs)
        picked = jnp.take_along_axis(hidden, jnp.asarray(batch.source)[..., None], axis=1)
        logits = model.logits(picked)
        target = jnp.maximum(batch.target, 0)
        weight = jnp.where(jnp.asarray(batch.target) >= 0, batch.weight, 0.0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
        loss = jnp.sum(losses * weight) / jnp.maximum(jnp.sum(weight), 1.0)
        hit = (jnp.argmax(logits, -1) == target) & (weight > 0)
        kind = jax.nn.one_hot(batch.index, NUM_KINDS) * (jnp.asarray(batch.index) > 0)[..., None]
        plain = (weight > 0) & (jnp.asarray(batch.index) == 0)
        choices = jnp.asarray(batch.choices)
        metrics = StepMetrics(
            loss=loss,
            correct=jnp.sum(kind * hit[..., None], (0, 1)),
            asked=jnp.sum(kind, (0, 1)),
            chance=jnp.sum(jnp.where(choices > 0, 1.0 / jnp.maximum(choices, 1.0), 0.0)),
            copied=jnp.sum(hit & plain),
            copies=jnp.sum(plain),
        )
        return loss, metrics

    return loss_fn


def _share(name: str) -> float:
    # The vision tower's matrices are ten times smaller than the embeddings that Adam's rate is made for.
    return 0.1 if name.startswith("visual.") else 1.0


TrainStep = Callable[[TrainState, Batch, float], tuple[TrainState, StepMetrics]]


def make_steps(skeleton: Skeleton, optimizer: optax.GradientTransformation) -> TrainStep:
    """The jitted training step: (state, batch, share of the learning rates); the state is donated."""
    loss_fn = make_loss(skeleton)

    def train_step(state: TrainState, batch: Batch, scale: float) -> tuple[TrainState, StepMetrics]:
        grads, metrics = jax.grad(loss_fn, has_aux=True)(state.params, batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        steps = cast(Params, updates)
        steps = {name: step * scale * _share(name) for name, step in steps.items()}
        return TrainState(cast(Params, optax.apply_updates(state.params, steps)), opt_state), metrics

    return jax.jit(train_step, donate_argnums=0)
