"""The compiled programs of a training step: one adds a micro-batch's gradient, one applies the sum."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx, struct
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.data.batching import Batch
from rmsweb_jax.qwen3_vl.layers import LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.sharding import param_shardings
from rmsweb_jax.sft.loss import LossSums, sft_loss
from rmsweb_jax.training.memory import choose_remat, fits_device

Programs = TypeVar("Programs")

# Parameters that each value of `SftConfig.trainable` trains. All others are an argument of the programs and
# not part of the state, so that neither gradients nor checkpoints hold them.
TRAINABLE = {"lora": LoRAParam, "all": nnx.Param}


@struct.dataclass
class TrainState:
    """The state that updates change and checkpoints hold, of SFT and RL alike.

    Attributes:
      params: trained parameters (`nnx.State`): adapters, or every weight.
      opt_state: state of the optax optimizer.
    """

    params: Any
    opt_state: Any


@struct.dataclass
class SftAccumulator:
    """Sums of gradients and of metrics over the micro-batches so far."""

    gradients: Any
    sums: LossSums


class SftSteps(NamedTuple):
    """Compiled programs; `frozen` are the parameters that are not trained.

    Attributes:
      zero: `zero(params) -> SftAccumulator`.
      add: `add(accumulated, params, frozen, batch, key) -> accumulated`; the first argument is donated.
      update: `update(state, accumulated) -> (state, metrics)`; the state is donated.
    """

    zero: Callable[[Any], SftAccumulator]
    add: Callable[[SftAccumulator, Any, Any, Batch, jax.Array], SftAccumulator]
    update: Callable[[TrainState, SftAccumulator], tuple[TrainState, dict[str, jax.Array]]]


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


def make_steps(
    graphdef: Any,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    mesh: Mesh,
    options: Mapping[str, Any] | None = None,
) -> SftSteps:
    """Makes the programs that train `state`; each compiles on first use.

    Args:
      batch_size: sequences of all micro-batches together, B in the loss `(1 / B) * sum_i mean_t nll`.
      options: of the compiler.
    """
    # Metrics are replicated, so that every process reads and reports the same ones.
    everywhere = NamedSharding(mesh, P())
    like_params = param_shardings(state.params, mesh)
    like_state = jax.tree.map(lambda x: x.sharding, state)
    accumulated = SftAccumulator(like_params, jax.tree.map(lambda _: everywhere, LossSums.zero()))

    def zero(params: Any) -> SftAccumulator:
        return SftAccumulator(
            jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params), LossSums.zero()
        )

    def add(total: SftAccumulator, params: Any, frozen: Any, batch: Batch, key: jax.Array) -> SftAccumulator:
        def loss(params: Any) -> tuple[jax.Array, LossSums]:
            return sft_loss(nnx.merge(graphdef, params, frozen), batch, batch_size, key)

        gradients, sums = jax.grad(loss, has_aux=True)(params)
        # In float32, so that the sum does not depend on the number of micro-batches by more than rounding.
        gradients = jax.tree.map(lambda a, b: a + b.astype(jnp.float32), total.gradients, gradients)
        return SftAccumulator(gradients, jax.tree.map(jnp.add, total.sums, sums))

    def update(state: TrainState, total: SftAccumulator) -> tuple[TrainState, dict[str, jax.Array]]:
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

    compiler = dict(options or {})
    # Output shardings are written out: sums and state stay where the parameters are, and donated buffers fit.
    return SftSteps(
        jax.jit(zero, out_shardings=accumulated),
        jax.jit(add, donate_argnums=0, out_shardings=accumulated, compiler_options=compiler),
        jax.jit(update, donate_argnums=0, out_shardings=(like_state, everywhere), compiler_options=compiler),
    )
