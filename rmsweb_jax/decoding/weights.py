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
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.gated_delta import GatedDeltaNet
from rmsweb_jax.qwen.layers import Linear, RMSNorm
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.text import DecoderLayer
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
    """Adapters of the fused q, k and v, and of the output of attention or of the recurrence."""

    qkv: Adapter
    out: Adapter


class AttentionWeights(NamedTuple):
    """Attention of a layer.

    Attributes:
      qkv: for each kv head the projections to its queries, its key and its value, in this order; each query
        of a gated attention is followed by its gate.
    """

    qkv: Float[jax.Array, "hidden qkv_dim"]
    q_norm: Float[jax.Array, " head_dim"]
    k_norm: Float[jax.Array, " head_dim"]
    out: Float[jax.Array, "query_dim hidden"]


class DeltaWeights(NamedTuple):
    """The recurrence of a layer, see `gated_delta.GatedDeltaNet`.

    Attributes:
      qkv: for each key head the projections to its query, its key and its values, in this order; so are the
        channels of `taps`.
    """

    qkv: Float[jax.Array, "hidden channels"]
    taps: Float[jax.Array, "taps channels"]
    z: Float[jax.Array, "hidden value_dim"]
    a: Float[jax.Array, "hidden heads"]
    b: Float[jax.Array, "hidden heads"]
    a_log: Float[jax.Array, " heads"]
    dt_bias: Float[jax.Array, " heads"]
    norm: Float[jax.Array, " head_dim"]
    out: Float[jax.Array, "value_dim hidden"]


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding.

    All are matrices: of arrays with more axes XLA makes copies in another layout, in every call.

    Attributes:
      gate_up: both projections side by side for each of the parts that the mesh splits the MLP into, so that
        the elementwise product needs no communication.
    """

    input_norm: Float[jax.Array, " hidden"]
    mixer: AttentionWeights | DeltaWeights
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
    """Makes a `PartitionSpec` for each weight.

    A step gathers the hidden states of its few rows instead of weights. Matrices that read these states are
    split by their outputs alone: splitting their inputs too would leave partial sums of the outputs to be
    reduced, which are wider than the states.
    """
    whole, by_head = cast(Any, P()), cast(Any, P("tensor"))
    # The inputs of `out` and `down` are the outputs of matrices above, and are split like these.
    out = cast(Any, P("tensor", layout.fsdp))

    def layer_specs(layer: LayerWeights) -> LayerWeights:
        mlp = layout.outputs(layer.down.shape[0])
        qkv = cast(Any, P(None, layout.outputs(layer.mixer.qkv.shape[1])))
        mixer = AttentionWeights(qkv, whole, whole, out)
        if isinstance(layer.mixer, DeltaWeights):
            # By key head: what is read of a state is never summed over devices.
            heads = cast(Any, P(None, "tensor"))
            mixer = DeltaWeights(heads, heads, heads, heads, heads, by_head, by_head, whole, out)
        gate_up, down = cast(Any, P(None, mlp)), cast(Any, P(mlp))
        return LayerWeights(whole, mixer, whole, gate_up, down)

    return DecodeWeights(
        embedding=cast(Any, P("tensor", layout.fsdp)),
        layers=tuple(map(layer_specs, weights.layers)),
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


def _kernel(linear: Linear, merged: bool = False) -> jax.Array:
    """Returns a kernel, with its adapter if `merged`."""
    value = linear.weight()
    # Added in float32 and rounded once, to the dtype of the computation.
    if merged and linear.lora is not None:
        value = value.astype(jnp.float32) + linear.lora.delta()
    return value.astype(linear.dtype)


def _norm(norm: RMSNorm) -> jax.Array:
    """Returns what a norm multiplies by."""
    return norm.scale[...].astype(jnp.float32) + norm.offset if norm.offset else norm.scale[...]


def _layer_weights(layer: DecoderLayer, layout: Layout) -> LayerWeights:
    mlp = layer.mlp
    hidden, intermediate = mlp.up_proj.kernel.shape
    # [hidden, parts, 2, columns]: a device's part holds matching columns of gate and up.
    gate_up = jnp.stack(
        [
            _kernel(linear, True).reshape(hidden, layout.parts(intermediate), -1)
            for linear in (mlp.gate_proj, mlp.up_proj)
        ],
        2,
    )
    return LayerWeights(
        input_norm=_norm(layer.input_layernorm),
        mixer=_mixer_weights(layer),
        post_norm=_norm(layer.post_attention_layernorm),
        gate_up=gate_up.reshape(hidden, -1),
        down=_kernel(mlp.down_proj, True),
    )


def _mixer_weights(layer: DecoderLayer) -> AttentionWeights | DeltaWeights:
    if (attention := layer.self_attn) is not None:
        parts = [_kernel(linear) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
        q_norm, k_norm = _norm(attention.q_norm), _norm(attention.k_norm)
        return AttentionWeights(_by_head(parts, layer), q_norm, k_norm, _kernel(attention.o_proj))
    delta = layer.linear_attn
    assert delta is not None
    return DeltaWeights(
        qkv=_by_head(_delta_parts(_kernel(delta.in_proj_qkv), delta), layer),
        taps=_by_head(_delta_parts(delta.conv1d.kernel[...].astype(delta.in_proj_qkv.dtype), delta), layer),
        z=_kernel(delta.in_proj_z, True),
        a=_kernel(delta.in_proj_a, True),
        b=_kernel(delta.in_proj_b, True),
        a_log=delta.A_log[...],
        dt_bias=delta.dt_bias[...],
        norm=_norm(delta.norm),
        out=_kernel(delta.out_proj),
    )


def _delta_parts(x: jax.Array, delta: GatedDeltaNet) -> list[jax.Array]:
    """Takes the channels of queries, keys and values apart."""
    return jnp.split(x, [delta.config.key_dim, 2 * delta.config.key_dim], axis=-1)


def _by_head(parts: Sequence[jax.Array], layer: DecoderLayer) -> jax.Array:
    """Joins outputs of q, k and v, [..., heads * head_dim] each, by kv head, or key head of a recurrence."""
    # So `tensor` splits the fused matrix between heads.
    if layer.self_attn is not None:
        heads = layer.self_attn.k_proj.kernel.shape[-1] // layer.self_attn.head_dim
    else:
        assert layer.linear_attn is not None
        heads = layer.linear_attn.config.linear_num_key_heads
    joined = jnp.concatenate([part.reshape(*part.shape[:-1], heads, -1) for part in parts], axis=-1)
    return joined.reshape(*joined.shape[:-2], -1)


def decode_weights(model: Qwen3VL, layout: Layout) -> DecodeWeights:
    """Un-stacks and fuses the decoder's weights, without attention's adapters; the MLP's are merged."""
    language = model.language_model
    weights = DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, layout) for layer in language.list_layers()),
        norm=_norm(language.norm),
        head=model.head_kernel().astype(model.dtype),
    )
    mesh = layout.mesh
    return weights if mesh is None else constrain_tree(weights, weight_specs(weights, layout), mesh)


def adapter_weights(model: Qwen3VL) -> tuple[LayerAdapters, ...]:
    """Takes the adapters of attention and recurrences from a model, one slot each; () if it has none.

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


def _mixer_linears(layer: DecoderLayer) -> tuple[list[Linear], Linear]:
    """Returns the projections to q, k and v, which may be one, and that of the output."""
    if (attention := layer.self_attn) is not None:
        return [attention.q_proj, attention.k_proj, attention.v_proj], attention.o_proj
    assert layer.linear_attn is not None
    return [layer.linear_attn.in_proj_qkv], layer.linear_attn.out_proj


def _has_adapters(layer: DecoderLayer) -> bool:
    linears, out = _mixer_linears(layer)
    fused = layer.self_attn is not None and layer.self_attn.qkv_lora is not None
    return fused or any(linear.lora is not None for linear in (*linears, out))


def _layer_adapters(layer: DecoderLayer, dtype: Any) -> LayerAdapters:
    linears, projection = _mixer_linears(layer)
    widths = [linear.kernel.shape[-1] for linear in linears]
    hidden = linears[0].kernel.shape[0]
    # A, and the outputs of B to q, k and v, of each adapter.
    parts: list[tuple[jax.Array, list[jax.Array]]] = []
    fused = None if layer.self_attn is None else layer.self_attn.qkv_lora
    if fused is not None:
        parts.append((fused.a[...], jnp.split(fused.scale * fused.b[...], np.cumsum(widths)[:2], axis=-1)))
    for number, linear in enumerate(linears):
        if (lora := linear.lora) is not None:
            b = [jnp.zeros((lora.b.shape[0], width)) for width in widths]
            b[number] = lora.scale * lora.b[...]
            parts.append((lora.a[...], b))
    if not parts:
        parts.append((jnp.zeros((hidden, 1)), [jnp.zeros((1, width)) for width in widths]))

    def grouped(b: list[jax.Array]) -> jax.Array:
        return _by_head(b if layer.linear_attn is None else _delta_parts(b[0], layer.linear_attn), layer)

    qkv = Adapter(
        jnp.concatenate([a for a, _ in parts], 1).astype(dtype)[None],
        jnp.concatenate([grouped(b) for _, b in parts], 0).astype(dtype)[None],
    )
    lora = projection.lora
    if lora is None:
        inputs, outputs = projection.kernel.shape
        out = Adapter(jnp.zeros((1, inputs, 1), dtype), jnp.zeros((1, 1, outputs), dtype))
    else:
        out = Adapter(lora.a[...].astype(dtype)[None], (lora.scale * lora.b[...]).astype(dtype)[None])
    return LayerAdapters(qkv, out)
