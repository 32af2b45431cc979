"""The decoder's weights as decoding wants them: un-stacked, projections fused, adapters merged.

That is done once a policy, so that a step is few and plain operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import constrain_tree
from rmsweb_jax.qwen3_vl.layers import Linear
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding; what `tensor` splits is the second axis of both fused ones.

    Attributes:
      qkv: [hidden, Hkv, (Hq / Hkv + 2) D], the queries of a key-value head, its key, its value.
      out: [Hq D, hidden].
      gate_up: [hidden, S, 2, F / S] for the S parts of `tensor`.
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


class DecodeWeights(NamedTuple):
    """All that a decoding step reads of a model."""

    embedding: jax.Array
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: jax.Array


def weight_specs(num_layers: int) -> Any:
    """A `PartitionSpec` for each of the `DecodeWeights`."""
    whole, into, out = (cast(Any, spec) for spec in (P(), P("fsdp", "tensor"), P("tensor", "fsdp")))
    layer = LayerWeights(
        input_norm=whole,
        qkv=into,
        q_norm=whole,
        k_norm=whole,
        out=out,
        post_norm=whole,
        gate_up=into,
        down=out,
    )
    return DecodeWeights(embedding=out, layers=(layer,) * num_layers, norm=whole, head=into)


def _layer_weights(layer: DecoderLayer, adapters: bool, parts: int) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    size = attention.head_dim

    def kernel(linear: Linear) -> jax.Array:
        value = linear.kernel[...]
        if adapters and linear.lora is not None:
            value = value.astype(jnp.float32) + linear.lora.delta()
        return value.astype(linear.dtype)

    projections = [kernel(linear) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    if adapters and attention.qkv_lora is not None:
        ends = [projections[0].shape[1], projections[0].shape[1] + projections[1].shape[1]]
        deltas = jnp.split(attention.qkv_lora.delta(), ends, axis=-1)
        projections = [
            (part.astype(jnp.float32) + delta).astype(part.dtype)
            for part, delta in zip(projections, deltas, strict=True)
        ]
    hidden, kv_heads = projections[1].shape[0], projections[1].shape[1] // size
    qkv = jnp.concatenate([part.reshape(hidden, kv_heads, -1) for part in projections], axis=-1)
    gate_up = jnp.stack([kernel(part).reshape(hidden, parts, -1) for part in (mlp.gate_proj, mlp.up_proj)], 2)
    return LayerWeights(
        input_norm=layer.input_layernorm.scale[...],
        qkv=qkv,
        q_norm=attention.q_norm.scale[...],
        k_norm=attention.k_norm.scale[...],
        out=kernel(attention.o_proj),
        post_norm=layer.post_attention_layernorm.scale[...],
        gate_up=gate_up,
        down=kernel(mlp.down_proj),
    )


def decode_weights(model: Qwen3VL, *, adapters: bool = True, mesh: Mesh | None = None) -> DecodeWeights:
    """Un-stacks and fuses the decoder's weights and merges the adapters (in float32)."""
    language = model.language_model
    layers = list(language.first_layers)
    if language.layers is not None:
        graphdef, state = nnx.split(language.layers)
        count = language.layers.input_layernorm.scale.shape[0]
        layers += [nnx.merge(graphdef, jax.tree.map(lambda x, i=i: x[i], state)) for i in range(count)]
    parts = 1 if mesh is None else mesh.shape["tensor"]
    weights = DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, adapters, parts) for layer in layers),
        norm=language.norm.scale[...],
        head=model.head_kernel().astype(model.dtype),
    )
    return constrain_tree(weights, weight_specs(len(layers)), mesh)
