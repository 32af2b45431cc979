"""The frozen decoder with 8 bits a weight, half of bfloat16, for adapters to train on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.qwen.lora import layer_stacks
from rmsweb_jax.qwen.model import Qwen3VL


def quantize_base(model: Qwen3VL) -> None:
    """Replaces each matrix of the decoder's layers by int8 values and a float32 scale for each output.

    The largest value of an output becomes 127 (qwix, "absmax"). Embeddings, head and vision tower stay.
    """
    for stack in layer_stacks(model):
        for name in stack.names() if stack.is_decoder() else ():
            linear = stack.linear(name)
            values, scale = _quantize(linear.kernel[...])
            linear.kernel.set_value(values)
            linear.kernel_scale = nnx.data(nnx.Param(scale))


def is_quantized(model: Qwen3VL) -> bool:
    return any(
        stack.linear(name).kernel_scale is not None for stack in layer_stacks(model) for name in stack.names()
    )


def move_adapters(model: Qwen3VL, other: Qwen3VL) -> None:
    """Moves all adapters from a model to another one of its size that has none."""
    for stack, target in zip(layer_stacks(model), layer_stacks(other), strict=True):
        for name, lora in list(stack.adapters()):
            target.put(name, lora)
            stack.put(name, None)


def _quantize(kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns int8 values like a kernel [*layers, inputs, outputs], and scales [*layers, outputs]."""
    sharding = getattr(kernel, "sharding", None)
    shardings: Any = None
    if isinstance(sharding, NamedSharding):
        shardings = (sharding, NamedSharding(sharding.mesh, P()))
    return jax.jit(_absmax, out_shardings=shardings)(kernel)


def _absmax(kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    import qwix  # Only runs that ask for it pay for its import.

    # All axes but the inputs, over which a product sums.
    axes = [axis for axis in range(kernel.ndim) if axis != kernel.ndim - 2]
    quantized = qwix.quantize(kernel, jnp.int8, channelwise_axes=axes, scale_dtype=jnp.float32)
    return quantized.qvalue, quantized.scale.squeeze(-2)
