"""The decoder's weights in the form that decoding reads: un-stacked, with fused projections.

They are prepared once for a policy, so that a step has few operations. Adapters are merged or kept apart.
Merged ones cost a step nothing, but what they add is rounded to the precision of the weights; separate ones
compute what training computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from rmsweb_jax.qwen3_vl.layers import Linear, LoRA
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer
from rmsweb_jax.training.mesh import constrain_tree


class Adapter(NamedTuple):
    """A low-rank addition to a kernel; `b` is scaled, and has the kernel's output axes."""

    a: Float[jax.Array, "inputs rank"]
    b: Float[jax.Array, " rank *outputs"]


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding.

    Attributes:
      qkv: for each kv head the projections to its queries, its key and its value, in this order; `group_dim`
        is (query heads / kv heads + 2) * head_dim.
      qkv_lora, out_lora: adapters of `qkv` and `out` that are not merged.
      gate_up: both projections side by side for each of the `parts` that the mesh splits the MLP into, so
        that the elementwise product needs no communication; `part_dim` is intermediate / parts.
    """

    input_norm: Float[jax.Array, " hidden"]
    qkv: Float[jax.Array, "hidden kv_heads group_dim"]
    q_norm: Float[jax.Array, " head_dim"]
    k_norm: Float[jax.Array, " head_dim"]
    out: Float[jax.Array, "query_dim hidden"]
    post_norm: Float[jax.Array, " hidden"]
    gate_up: Float[jax.Array, "hidden parts 2 part_dim"]
    down: Float[jax.Array, "intermediate hidden"]
    qkv_lora: Adapter | None = None
    out_lora: Adapter | None = None


class DecodeWeights(NamedTuple):
    """All weights that a decoding step reads."""

    embedding: Float[jax.Array, "vocab hidden"]
    layers: tuple[LayerWeights, ...]
    norm: Float[jax.Array, " hidden"]
    head: Float[jax.Array, "hidden vocab"]


def output_axes(size: int, mesh: Mesh | None) -> tuple[str, ...]:
    """Returns the mesh axes that split a matrix's outputs: `tensor`, and `fsdp` if both divide `size`."""
    both = 1 if mesh is None else mesh.shape["tensor"] * mesh.shape["fsdp"]
    return ("tensor",) if size % both else ("tensor", "fsdp")


def head_axis(size: int, mesh: Mesh | None) -> str | None:
    """Returns the mesh axis that splits the outputs of each kv head: `fsdp` if it divides `size`."""
    return None if mesh is None or size % mesh.shape["fsdp"] else "fsdp"


def weight_specs(weights: DecodeWeights, mesh: Mesh) -> Any:
    """Makes a `PartitionSpec` for each weight; the specs of `layers` are the same for all layers.

    A step gathers the hidden states of its few rows instead of weights. Matrices that read these states are
    split by their outputs alone: splitting their inputs too would leave partial sums of the outputs to be
    reduced, which are wider than the states.
    """
    whole = cast(Any, P())
    first = weights.layers[0]
    mlp = output_axes(first.down.shape[0], mesh)
    qkv = cast(Any, P(None, "tensor", head_axis(first.qkv.shape[2], mesh)))
    # Unlike in training, an adapter's rank is not split.
    adapter = cast(Any, Adapter)
    layer = LayerWeights(
        input_norm=whole,
        qkv=qkv,
        q_norm=whole,
        k_norm=whole,
        # The inputs of `out` and `down` are the outputs of matrices above, and are split like these.
        out=cast(Any, P("tensor", "fsdp")),
        post_norm=whole,
        gate_up=cast(Any, P(None, mlp)),
        down=cast(Any, P(mlp)),
        qkv_lora=None if first.qkv_lora is None else adapter(P("fsdp"), qkv),
        out_lora=None if first.out_lora is None else adapter(P("tensor"), P(None, "fsdp")),
    )
    return DecodeWeights(
        embedding=cast(Any, P("tensor", "fsdp")),
        layers=(layer,) * len(weights.layers),
        norm=whole,
        head=cast(Any, P(None, output_axes(weights.head.shape[1], mesh))),
    )


def project(
    x: Float[jax.Array, "rows inputs"],
    kernel: Float[jax.Array, " inputs *outputs"],
    adapter: Adapter | None = None,
) -> Float[jax.Array, " rows *outputs"]:
    """Multiplies rows by a kernel and adds its adapter's product."""
    out = jnp.tensordot(x, kernel, 1)
    if adapter is None:
        return out
    return out + jnp.tensordot(x @ adapter.a, adapter.b, 1)


def _layer_weights(layer: DecoderLayer, adapters: bool, merge: bool, mesh: Mesh | None) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    size, kv_heads = attention.head_dim, attention.k_proj.kernel.shape[-1] // attention.head_dim

    def kernel(linear: Linear, merged: bool = True) -> jax.Array:
        value = linear.weight()
        # Added in float32 and rounded once, to the dtype of the computation.
        if adapters and merged and linear.lora is not None:
            value = value.astype(jnp.float32) + linear.lora.delta()
        return value.astype(linear.dtype)

    def by_head(parts: Sequence[jax.Array]) -> jax.Array:
        """Joins outputs of q, k and v, [..., heads * head_dim] each, to [..., kv_heads, group_dim]."""
        # By kv head, so that `tensor` splits the fused matrix between heads.
        return jnp.concatenate([part.reshape(*part.shape[:-1], kv_heads, -1) for part in parts], axis=-1)

    def separate(lora: LoRA, outputs: Callable[[jax.Array], jax.Array]) -> Adapter:
        dtype = attention.o_proj.dtype
        return Adapter(lora.a[...].astype(dtype), outputs((lora.scale * lora.b[...]).astype(dtype)))

    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    # Where q and k end among the outputs of RL's fused adapter, [q; k; v].
    ends = [attention.q_proj.kernel.shape[-1], attention.q_proj.kernel.shape[-1] + kv_heads * size]
    qkv = by_head([kernel(linear) for linear in projections])
    qkv_lora = out_lora = None
    if adapters and attention.qkv_lora is not None:
        if merge:
            # Summed in float32, so that kernel and delta are rounded once.
            delta = by_head(jnp.split(attention.qkv_lora.delta(), ends, axis=-1))
            qkv = (qkv.astype(jnp.float32) + delta).astype(qkv.dtype)
        else:
            qkv_lora = separate(attention.qkv_lora, lambda b: by_head(jnp.split(b, ends, axis=-1)))
    if adapters and not merge and attention.o_proj.lora is not None:
        out_lora = separate(attention.o_proj.lora, lambda b: b)
    axes = output_axes(mlp.up_proj.kernel.shape[1], mesh)
    parts = 1 if mesh is None else math.prod(mesh.shape[axis] for axis in axes)
    # [hidden, parts, 2, part_dim]: a device's part holds matching columns of gate and up.
    gate_up = jnp.stack(
        [kernel(part).reshape(part.kernel.shape[0], parts, -1) for part in (mlp.gate_proj, mlp.up_proj)], 2
    )
    return LayerWeights(
        input_norm=layer.input_layernorm.scale[...],
        qkv=qkv,
        q_norm=attention.q_norm.scale[...],
        k_norm=attention.k_norm.scale[...],
        out=kernel(attention.o_proj, merge),
        post_norm=layer.post_attention_layernorm.scale[...],
        gate_up=gate_up,
        down=kernel(mlp.down_proj),
        qkv_lora=qkv_lora,
        out_lora=out_lora,
    )


def decode_weights(
    model: Qwen3VL, *, adapters: bool = True, merge: bool = True, mesh: Mesh | None = None
) -> DecodeWeights:
    """Un-stacks and fuses the decoder's weights.

    Args:
      adapters: False leaves them out, which gives the reference policy.
      merge: True merges all adapters into the kernels, in float32. False keeps those that RL trains (on the
        fused q, k and v, and on attention's output) separate and merges any others.
    """
    language = model.language_model
    weights = DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, adapters, merge, mesh) for layer in language.list_layers()),
        norm=language.norm.scale[...],
        head=model.head_kernel().astype(model.dtype),
    )
    return weights if mesh is None else constrain_tree(weights, weight_specs(weights, mesh), mesh)
