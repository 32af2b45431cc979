"""The two compiled programs of a training step: add a micro-batch's gradient, apply the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx, struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.data.batching import Batch
from rmsweb_jax.mesh import param_shardings
from rmsweb_jax.qwen3_vl.layers import LoRAParam
from rmsweb_jax.sft.loss import LossSums, sft_loss

TRAINABLE = {"lora": LoRAParam, "all": nnx.Param}


@struct.dataclass
class TrainState:
    """What an update changes, and all that a checkpoint holds of the model.

    Attributes:
      params: trained parameters (`nnx.State`): adapters, or every weight.
      opt_state: of the optax optimizer.
    """

    params: Any
    opt_state: Any


@struct.dataclass
class Accumulated:
    """Gradient and metric sums of the micro-batches so far."""

    gradients: Any
    sums: LossSums


class Steps(NamedTuple):
    """Compiled programs, for `frozen` parameters that never change.

    Attributes:
      zero: `zero(params) -> Accumulated`.
      add: `add(accumulated, params, frozen, batch, key) -> accumulated`; the first argument is donated.
      update: `update(state, accumulated) -> (state, metrics)`; the state is donated.
    """

    zero: Callable[[Any], Accumulated]
    add: Callable[[Accumulated, Any, Any, Batch, jax.Array], Accumulated]
    update: Callable[[TrainState, Accumulated], tuple[TrainState, dict[str, jax.Array]]]


def split_model(model: Any, trainable: str) -> tuple[Any, Any, Any]:
    """Graph, trained parameters and the rest, for `trainable` "lora" or "all"."""
    graphdef, params, *rest = nnx.split(model, TRAINABLE[trainable], ...)
    return graphdef, params, rest[0]


def init_state(params: Any, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """A fresh optimizer around `params`, both laid out on the mesh."""
    params = jax.device_put(params, param_shardings(params, mesh))
    shardings = param_shardings(jax.eval_shape(optimizer.init, params), mesh)
    return TrainState(params, jax.jit(optimizer.init, out_shardings=shardings)(params))


def make_steps(
    graphdef: Any, state: TrainState, optimizer: optax.GradientTransformation, batch_size: int, mesh: Mesh
) -> Steps:
    """Compiles (on first use, once a batch shape) the programs that train `state`.

    Args:
      batch_size: B of the loss `(1 / B) * sum_i mean_t nll`; sequences of all micro-batches together.
    """
    everywhere = NamedSharding(mesh, P())
    like_params = param_shardings(state.params, mesh)
    like_state = jax.tree.map(lambda x: x.sharding, state)
    accumulated = Accumulated(like_params, jax.tree.map(lambda _: everywhere, LossSums.zero()))

    def zero(params: Any) -> Accumulated:
        return Accumulated(jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params), LossSums.zero())

    def add(total: Accumulated, params: Any, frozen: Any, batch: Batch, key: jax.Array) -> Accumulated:
        def loss(params: Any) -> tuple[jax.Array, LossSums]:
            return sft_loss(nnx.merge(graphdef, params, frozen), batch, batch_size, key)

        gradients, sums = jax.grad(loss, has_aux=True)(params)
        gradients = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), total.gradients, gradients)
        return Accumulated(gradients, jax.tree.map(jnp.add, total.sums, sums))

    def update(state: TrainState, total: Accumulated) -> tuple[TrainState, dict[str, jax.Array]]:
        updates, opt_state = optimizer.update(total.gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = {
            "loss/train": total.sums.loss / batch_size,
            **total.sums.means(),
            "norm/gradient": optax.global_norm(total.gradients),
            "norm/params": optax.global_norm(params),
            "norm/update": optax.global_norm(updates),
        }
        return TrainState(params, opt_state), metrics

    return Steps(
        jax.jit(zero, out_shardings=accumulated),
        jax.jit(add, donate_argnums=0, out_shardings=accumulated),
        jax.jit(update, donate_argnums=0, out_shardings=(like_state, everywhere)),
    )
