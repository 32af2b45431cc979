"""The parts of a training step that know the model, and the compiled programs of supervised fine-tuning."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch
from rmsweb_jax.qwen3_vl.layers import LoRAParam
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.sharding import param_shardings
from rmsweb_jax.sft.loss import LossSums, sft_loss
from rmsweb_jax.training.memory import choose_remat, fits_device
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
