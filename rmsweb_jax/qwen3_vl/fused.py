"""The decoder's weights as decoding wants them: un-stacked, projections fused, adapters merged or beside.

That is done once a policy, so that a step is few and plain operations. Merging costs a step nothing, and
rounds what an adapter adds to the precision of the weights; adapters beside them compute what training does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import constrain_tree
from rmsweb_jax.qwen3_vl.layers import Linear, LoRA
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer


class Adapter(NamedTuple):
    """A low-rank addition: a [in, rank], and b [rank, ...] shaped like the kernel's outputs, scaled."""

    a: jax.Array
    b: jax.Array


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding.

    Attributes:
      qkv: [hidden, Hkv, (Hq / Hkv + 2) D], the queries of a key-value head, its key, its value.
      out: [Hq D, hidden].
      qkv_lora, out_lora: adapters that are not merged into them.
      gate_up: [hidden, S, 2, F / S] for the S parts of F on the mesh.
      down: [F, hidden].
    """

    input_norm: jax.Array
    qkv: jax.Array
    q_norm: jax.Array
    k_norm: jax.Array
    out: jax.Array
    post_norm: jax.Array
    gate_up: jax.Array
    down: jax.Array
    qkv_lora: Adapter | None = None
    out_lora: Adapter | None = None


class DecodeWeights(NamedTuple):
    """All that a decoding step reads of a model."""

    embedding: jax.Array
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: jax.Array


def output_axes(size: int, mesh: Mesh | None) -> tuple[str, ...]:
    """The mesh axes that split `size` outputs of a matrix: `fsdp` too where it divides them."""
    both = 1 if mesh is None else mesh.shape["tensor"] * mesh.shape["fsdp"]
    return ("tensor",) if size % both else ("tensor", "fsdp")


def head_axis(size: int, mesh: Mesh | None) -> str | None:
    """The mesh axis that splits the `size` outputs of each key-value head, if it divides them."""
    return None if mesh is None or size % mesh.shape["fsdp"] else "fsdp"


def weight_specs(weights: DecodeWeights, mesh: Mesh) -> Any:
    """A `PartitionSpec` for each of them.

    A step has so few rows that their states are gathered instead of weights. What reads the states is then
    split by its outputs alone: to split its sums as well would leave partial outputs, which are wider.
    """
    whole = cast(Any, P())
    first = weights.layers[0]
    mlp = output_axes(first.down.shape[0], mesh)
    qkv = cast(Any, P(None, "tensor", head_axis(first.qkv.shape[2], mesh)))
    # An adapter's rank is not split, as in training.
    adapter = cast(Any, Adapter)
    layer = LayerWeights(
        input_norm=whole,
        qkv=qkv,
        q_norm=whole,
        k_norm=whole,
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


def project(x: jax.Array, kernel: jax.Array, adapter: Adapter | None = None) -> jax.Array:
    """x [M, in] times a kernel [in, ...], and what its adapter adds: [M, ...]."""
    out = jnp.tensordot(x, kernel, 1)
    if adapter is None:
        return out
    return out + jnp.tensordot(x @ adapter.a, adapter.b, 1)


def _layer_weights(layer: DecoderLayer, adapters: bool, merge: bool, mesh: Mesh | None) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    size, kv_heads = attention.head_dim, attention.k_proj.kernel.shape[-1] // attention.head_dim

    def kernel(linear: Linear, merged: bool = True) -> jax.Array:
        value = linear.kernel[...]
        if adapters and merged and linear.lora is not None:
            value = value.astype(jnp.float32) + linear.lora.delta()
        return value.astype(linear.dtype)

    def by_head(parts: Sequence[jax.Array]) -> jax.Array:
        """Outputs of q, k and v, [..., heads * D] each, by key-value head."""
        return jnp.concatenate([part.reshape(*part.shape[:-1], kv_heads, -1) for part in parts], axis=-1)

    def beside(lora: LoRA, outputs: Callable[[jax.Array], jax.Array]) -> Adapter:
        dtype = attention.o_proj.dtype
        return Adapter(lora.a[...].astype(dtype), outputs((lora.scale * lora.b[...]).astype(dtype)))

    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    ends = [attention.q_proj.kernel.shape[-1], attention.q_proj.kernel.shape[-1] + kv_heads * size]
    qkv = by_head([kernel(linear) for linear in projections])
    qkv_lora = out_lora = None
    if adapters and attention.qkv_lora is not None:
        if merge:
            delta = by_head(jnp.split(attention.qkv_lora.delta(), ends, axis=-1))
            qkv = (qkv.astype(jnp.float32) + delta).astype(qkv.dtype)
        else:
            qkv_lora = beside(attention.qkv_lora, lambda b: by_head(jnp.split(b, ends, axis=-1)))
    if adapters and not merge and attention.o_proj.lora is not None:
        out_lora = beside(attention.o_proj.lora, lambda b: b)
    axes = output_axes(mlp.up_proj.kernel.shape[1], mesh)
    parts = 1 if mesh is None else math.prod(mesh.shape[axis] for axis in axes)
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
      adapters: False leaves them out: the reference policy.
      merge: adds the adapters to the kernels, in float32; otherwise those of RL (on attention's fused q, k
        and v, and its output) stay beside them. Any others are merged.
    """
    language = model.language_model
    weights = DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, adapters, merge, mesh) for layer in language.list_layers()),
        norm=language.norm.scale[...],
        head=model.head_kernel().astype(model.dtype),
    )
    return weights if mesh is None else constrain_tree(weights, weight_specs(weights, mesh), mesh)
