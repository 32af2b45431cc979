"""Memory of decoding: what the weights of a policy take of a device, and how many lanes fit what is left."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from rmsweb_jax.decoding.programs import prepare_weights
from rmsweb_jax.decoding.sizes import EngineSizes, fit_sizes, state_bytes, token_bytes
from rmsweb_jax.decoding.weights import DecodeWeights, Layout, weight_specs
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.mesh import device_bytes, row_shards, tree_shardings


def abstract_weights(policy: Qwen3VL, layout: Layout) -> DecodeWeights:
    """Makes the weights for decoding as shapes on the layout's devices; the policy may be abstract, too."""
    graphdef, state = nnx.split(policy)
    weights = jax.eval_shape(functools.partial(prepare_weights, graphdef, layout=layout), state)
    if layout.mesh is None:
        return weights
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        weights,
        tree_shardings(weights, weight_specs(weights, layout), layout.mesh),
    )


def fit_memory(
    policy: Qwen3VL,
    sizes: EngineSizes,
    layout: Layout,
    memory: float | None,
    held: int,
    cache_dtype: str = "model",
) -> EngineSizes:
    """Chooses lanes and prompts for the memory of a device.

    Args:
      sizes: see `fit_sizes`.
      memory: bytes of a device; None if unknown.
      held: bytes of it that other arrays and programs take while the engine is there.

    Raises:
      UserError: see `fit_sizes`.
    """
    free = None
    if memory is not None:
        # A tenth is for the programs of decoding.
        free = int(0.9 * memory) - held - device_bytes(abstract_weights(policy, layout))
    text, dtype = policy.config.text, str(jnp.dtype(policy.dtype))
    return fit_sizes(
        sizes,
        token_bytes(text, dtype, cache_dtype),
        free,
        row_shards(layout.mesh),
        1 if layout.mesh is None else layout.mesh.shape["tensor"],
        state_bytes(text, dtype),
    )
