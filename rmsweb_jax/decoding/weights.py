"""The decoder's weights in the form that decoding reads: un-stacked, with fused projections.

They are prepared once, so that a step has few operations. Adapters stay apart from them: what an early update
changes would be lost if it were rounded to the precision of the weights, and a new policy is a swap of
adapters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from rmsweb_jax.decoding.sizes import device_memory
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.layers import Linear
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer
from rmsweb_jax.training.mesh import ROWS, constrain_tree


@dataclasses.dataclass(frozen=True)
class Layout:
    """How weights and activations of decoding lie on the devices; hashable, to be static under `jax.jit`.

    Attributes:
      attention: the back end of attention, and the mesh.
      split: True splits matrices over `fsdp` as well, and activations travel; False gives each device of
        `fsdp` a copy, and rows stay on their devices.
    """

    attention: AttentionConfig
    split: bool = False

    @property
    def mesh(self) -> Mesh | None:
        return self.attention.mesh

    @property
    def rows(self) -> str | tuple[str, ...]:
        """Mesh axes that split the rows of activations outside of attention."""
        return "data" if self.split else ROWS

    @property
    def fsdp(self) -> str | None:
        """The axis that splits matrices in addition to `tensor`."""
        return "fsdp" if self.split else None

    def outputs(self, size: int) -> tuple[str, ...]:
        """Mesh axes that split a matrix's outputs: `tensor`, and `fsdp` if both divide `size`."""
        both = 1 if self.mesh is None else self.mesh.shape["tensor"] * self.mesh.shape["fsdp"]
        return ("tensor",) if size % both or not self.split else ("tensor", "fsdp")

    def parts(self, size: int) -> int:
        """Number of parts into which the mesh splits a matrix's outputs."""
        return 1 if self.mesh is None else math.prod(self.mesh.shape[axis] for axis in self.outputs(size))


def choose_layout(model: Qwen3VL) -> Layout:
    """Copies the weights to all devices of `fsdp` if they take at most a third of a device's memory."""
    mesh = model.attention.mesh
    if mesh is None or mesh.shape["fsdp"] == 1:
        return Layout(model.attention)
    free = device_memory(mesh.devices.flat[0])
    # A third: the training state and the caches need the rest.
    weights = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model.language_model)))
    size = weights * jnp.dtype(model.dtype).itemsize // mesh.shape["tensor"]
    return Layout(model.attention, split=free is not None and 3 * size > free)


class Adapter(NamedTuple):
    """Low-rank additions to a kernel, one for each slot; `b` is scaled."""

    a: Float[jax.Array, "slots inputs rank"]
    b: Float[jax.Array, "slots rank outputs"]


class LayerAdapters(NamedTuple):
    """Adapters of the fused q, k and v, and of attention's output."""

    qkv: Adapter
    out: Adapter


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding.

    All are matrices: of arrays with more axes XLA makes copies in another layout, in every call.

    Attributes:
      qkv: for each kv head the projections to its queries, its key and its value, in this order.
      gate_up: both projections side by side for each of the parts that the mesh splits the MLP into, so that
        the elementwise product needs no communication.
    """

    input_norm: Float[jax.Array, " hidden"]
    qkv: Float[jax.Array, "hidden qkv_dim"]
    q_norm: Float[jax.Array, " head_dim"]
    k_norm: Float[jax.Array, " head_dim"]
    out: Float[jax.Array, "query_dim hidden"]
    post_norm: Float[jax.Array, " hidden"]
    gate_up: Float[jax.Array, "hidden gate_up_dim"]
    down: Float[jax.Array, "intermediate hidden"]


class DecodeWeights(NamedTuple):
    """All weights that a decoding step reads."""

    embedding: Float[jax.Array, "vocab hidden"]
    layers: tuple[LayerWeights, ...]
    norm: Float[jax.Array, " hidden"]
    head: Float[jax.Array, "hidden vocab"]


def weight_specs(weights: DecodeWeights, layout: Layout) -> Any:
    """Makes a `PartitionSpec` for each weight; the specs of `layers` are the same for all layers.

    A step gathers the hidden states of its few rows instead of weights. Matrices that read these states are
    split by their outputs alone: splitting their inputs too would leave partial sums of the outputs to be
    reduced, which are wider than the states.
    """
    whole = cast(Any, P())
    first = weights.layers[0]
    mlp = layout.outputs(first.down.shape[0])
    layer = LayerWeights(
        input_norm=whole,
        qkv=cast(Any, P(None, layout.outputs(first.qkv.shape[1]))),
        q_norm=whole,
        k_norm=whole,
        # The inputs of `out` and `down` are the outputs of matrices above, and are split like these.
        out=cast(Any, P("tensor", layout.fsdp)),
        post_norm=whole,
        gate_up=cast(Any, P(None, mlp)),
        down=cast(Any, P(mlp)),
    )
    return DecodeWeights(
        embedding=cast(Any, P("tensor", layout.fsdp)),
        layers=(layer,) * len(weights.layers),
        norm=whole,
        head=cast(Any, P(None, layout.outputs(weights.head.shape[1]))),
    )


def adapter_specs(adapters: tuple[LayerAdapters, ...], layout: Layout) -> Any:
    """Makes a `PartitionSpec` for each adapter; their rank is not split."""
    if not adapters:
        return ()
    qkv = Adapter(cast(Any, P(None, layout.fsdp)), cast(Any, P(None, None, "tensor")))
    out = Adapter(cast(Any, P(None, "tensor")), cast(Any, P(None, None, layout.fsdp)))
    return (LayerAdapters(qkv, out),) * len(adapters)


def project(
    x: Float[jax.Array, "rows inputs"],
    kernel: Float[jax.Array, "inputs outputs"],
    adapter: Adapter | None = None,
    chosen: Float[jax.Array, "rows slots"] | None = None,
) -> Float[jax.Array, "rows outputs"]:
    """Multiplies rows by a kernel and adds each row's adapter, whose column of `chosen` is 1."""
    out = x @ kernel
    if adapter is None:
        return out
    # All adapters for all rows, then a mask: there are few, and a gather of adapters would read one a row.
    low = jnp.einsum("ri,sik->rsk", x, adapter.a)
    if chosen is not None:
        # Not a product: what an adapter of other rows overflows to would stay.
        low = jnp.where(chosen[:, :, None] > 0, low, 0)
    return out + jnp.tensordot(low, adapter.b, ((1, 2), (0, 1)))


def _layer_weights(layer: DecoderLayer, layout: Layout) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp

    def kernel(linear: Linear, merged: bool = False) -> jax.Array:
        value = linear.weight()
        # Added in float32 and rounded once, to the dtype of the computation.
        if merged and linear.lora is not None:
            value = value.astype(jnp.float32) + linear.lora.delta()
        return value.astype(linear.dtype)

    qkv = _by_head(
        [kernel(linear) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)], layer
    )
    hidden, intermediate = mlp.up_proj.kernel.shape
    # [hidden, parts, 2, columns]: a device's part holds matching columns of gate and up.
    gate_up = jnp.stack(
        [
            kernel(linear, True).reshape(hidden, layout.parts(intermediate), -1)
            for linear in (mlp.gate_proj, mlp.up_proj)
        ],
        2,
    )
    return LayerWeights(
        input_norm=layer.input_layernorm.scale[...],
        qkv=qkv,
        q_norm=attention.q_norm.scale[...],
        k_norm=attention.k_norm.scale[...],
        out=kernel(attention.o_proj),
        post_norm=layer.post_attention_layernorm.scale[...],
        gate_up=gate_up.reshape(hidden, -1),
        down=kernel(mlp.down_proj, True),
    )


def _by_head(parts: Sequence[jax.Array], layer: DecoderLayer) -> jax.Array:
    """Joins outputs of q, k and v, [..., heads * head_dim] each, kv head by kv head."""
    # By kv head, so that `tensor` splits the fused matrix between heads.
    kv_heads = layer.self_attn.k_proj.kernel.shape[-1] // layer.self_attn.head_dim
    joined = jnp.concatenate([part.reshape(*part.shape[:-1], kv_heads, -1) for part in parts], axis=-1)
    return joined.reshape(*joined.shape[:-2], -1)


def decode_weights(model: Qwen3VL, layout: Layout) -> DecodeWeights:
    """Un-stacks and fuses the decoder's weights, without attention's adapters; the MLP's are merged."""
    language = model.language_model
    weights = DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, layout) for layer in language.list_layers()),
        norm=language.norm.scale[...],
        head=model.head_kernel().astype(model.dtype),
    )
    mesh = layout.mesh
    return weights if mesh is None else constrain_tree(weights, weight_specs(weights, layout), mesh)


def adapter_weights(model: Qwen3VL) -> tuple[LayerAdapters, ...]:
    """Takes the adapters of attention from a model, one slot each; () if it has none.

    Adapters of q, k and v that are apart become one of three times the rank, whose parts of B are zero in the
    outputs of the others.
    """
    layers = model.language_model.list_layers()
    if not any(map(_has_adapters, layers)):
        return ()
    return tuple(_layer_adapters(layer, model.dtype) for layer in layers)


def adapter_rank(model: Qwen3VL) -> int:
    """Returns the largest rank of a model's adapters on attention; 0 if it has none."""
    graphdef, state = nnx.split(model)
    layers = jax.eval_shape(lambda state: adapter_weights(nnx.merge(graphdef, state)), state)
    return max((part.a.shape[2] for layer in layers for part in layer), default=0)


def _has_adapters(layer: DecoderLayer) -> bool:
    attention = layer.self_attn
    linears = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    return attention.qkv_lora is not None or any(linear.lora is not None for linear in linears)


def _layer_adapters(layer: DecoderLayer, dtype: Any) -> LayerAdapters:
    attention = layer.self_attn
    linears = (attention.q_proj, attention.k_proj, attention.v_proj)
    widths = [linear.kernel.shape[-1] for linear in linears]
    hidden = attention.q_proj.kernel.shape[0]
    # A, and the outputs of B to q, k and v, of each adapter.
    parts: list[tuple[jax.Array, list[jax.Array]]] = []
    if (lora := attention.qkv_lora) is not None:
        parts.append((lora.a[...], jnp.split(lora.scale * lora.b[...], np.cumsum(widths)[:2], axis=-1)))
    for number, linear in enumerate(linears):
        if (lora := linear.lora) is not None:
            b = [jnp.zeros((lora.b.shape[0], width)) for width in widths]
            b[number] = lora.scale * lora.b[...]
            parts.append((lora.a[...], b))
    if not parts:
        parts.append((jnp.zeros((hidden, 1)), [jnp.zeros((1, width)) for width in widths]))
    qkv = Adapter(
        jnp.concatenate([a for a, _ in parts], 1).astype(dtype)[None],
        jnp.concatenate([_by_head(b, layer) for _, b in parts], 0).astype(dtype)[None],
    )
    lora = attention.o_proj.lora
    if lora is None:
        inputs, outputs = attention.o_proj.kernel.shape
        out = Adapter(jnp.zeros((1, inputs, 1), dtype), jnp.zeros((1, 1, outputs), dtype))
    else:
        out = Adapter(lora.a[...].astype(dtype)[None], (lora.scale * lora.b[...]).astype(dtype)[None])
    return LayerAdapters(qkv, out)
