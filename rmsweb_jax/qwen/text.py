"""The decoder: grouped-query attention with interleaved MRoPE, SwiGLU and DeepStack additions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Float, Float32, Int32, Key

from rmsweb_jax.qwen.attention import Attend
from rmsweb_jax.qwen.config import ATTENTION, Qwen3VLConfig, TextConfig
from rmsweb_jax.qwen.gated_delta import GatedDeltaNet, Recur
from rmsweb_jax.qwen.inputs import Array
from rmsweb_jax.qwen.layers import Embedding, Linear, LoRA, RMSNorm, rotate
from rmsweb_jax.qwen.sharding import gather_weights
from rmsweb_jax.training.mesh import constrain_rows

# Scans over up to this many layers are unrolled: XLA's loop on CPUs costs more than the compilation it saves.
MAX_UNROLL = 8

# Embeddings and hidden states.
Hidden = Float[jax.Array, "rows tokens hidden"]
# Dropout key of each layer or linear layer; None without dropout.
Keys = list[Key[jax.Array, ""] | None]


class KeyValues(NamedTuple):
    """Rotated keys, and values, of every layer."""

    keys: Float[jax.Array, "layers rows tokens kv_heads head_dim"]
    values: Float[jax.Array, "layers rows tokens kv_heads head_dim"]


class LayerContext(NamedTuple):
    """Inputs that all decoder layers of one forward pass share.

    Attributes:
      cos, sin: rotary table.
      attend: the attention rule of the batch's rows.
      adapters: True applies LoRA.
      recur, parent: the recurrence over the batch's rows, and each token's parent, see `TreeTables`; None in
        models without one.
      mesh: the mesh of the model, if any.
    """

    cos: Float32[jax.Array, "rows tokens half_dim"]
    sin: Float32[jax.Array, "rows tokens half_dim"]
    attend: Attend
    adapters: bool
    recur: Recur | None = None
    parent: Int32[Array, "rows tokens"] | None = None
    mesh: Mesh | None = None


def mrope_cos_sin(
    positions: Int32[Array, " 3 *lead"], config: TextConfig
) -> tuple[Float32[jax.Array, "*lead half_dim"], Float32[jax.Array, "*lead half_dim"]]:
    """Computes the rotary table of interleaved MRoPE from positions on the time, height and width axes.

    Frequencies 1, 4, 7, ... below 3 * section[1] use the height, 2, 5, 8, ... below 3 * section[2] the
    width, and all others the time.

    Returns:
      Cosines and sines; `half_dim` is half of what is rotated of a head.
    """
    # Interleaved, and not one block of frequencies per axis as in Qwen2-VL: each axis gets high and low ones.
    axis = np.zeros(config.rotary_dim // 2, np.int32)
    for which in (1, 2):
        axis[which : 3 * config.mrope_section[which] : 3] = which
    # In float32, as the reference computes them.
    size = config.rotary_dim
    exponent = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    frequencies = (1.0 / np.float32(config.rope_theta) ** exponent).astype(np.float32)
    # A sum over the axes and not a gather: XLA would fuse a gather, and the sines after it, into every layer.
    angles = jnp.zeros((), jnp.float32)
    for which, position in enumerate(jnp.asarray(positions).astype(jnp.float32)):
        angles += position[..., None] * np.where(axis == which, frequencies, np.float32(0))
    return jnp.cos(angles), jnp.sin(angles)


REMAT_POLICIES = ("none", "dots", "named", "offload", "full")
# Outputs of frozen matrices, and of attention with its softmax's sums: computing them again takes all the
# time of a forward pass.
SAVED_NAMES = ("linear", "attention")


def remat(function: Any, policy: str) -> Any:
    """Applies a rematerialization policy to a layer's function.

    Args:
      policy: saved for the backward pass are all intermediate results ("none"), those of all matrix products
        with weights ("dots"), those of frozen matrices and attention in device memory ("named") or host
        memory ("offload"), or the layer's inputs only ("full").
    """
    policies = jax.checkpoint_policies
    saved = {
        "none": None,
        "dots": policies.dots_with_no_batch_dims_saveable,
        "named": policies.save_only_these_names(*SAVED_NAMES),
        "offload": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(SAVED_NAMES),
            offload_src="device",
            offload_dst="pinned_host",
        ),
        "full": policies.nothing_saveable,
    }[policy]
    return function if saved is None else jax.checkpoint(function, policy=saved)


def module_keys(key: Key[jax.Array, ""] | None, count: int) -> Keys:
    """Splits a dropout key into one for each layer; without a key all are None."""
    return [None] * count if key is None else list(jax.random.split(key, count))


class Attention(nnx.Module):
    """Grouped-query attention with normalized queries and keys; in Qwen3.5 its output is gated.

    Attributes:
      q_proj: of a gated one each head's query and then its gate.
      qkv_lora: the adapter that RL trains, with one A for q, k and v (the paper's targets).
    """

    def __init__(self, config: TextConfig, *, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.gated = config.delta is not None
        queries, axis = (1 + self.gated) * config.query_dim, "gated_heads" if self.gated else "heads"
        self.q_proj = Linear(config.hidden_size, queries, ("embed", axis), **kw)
        self.k_proj = Linear(config.hidden_size, config.kv_dim, ("embed", "kv_heads"), **kw)
        self.v_proj = Linear(config.hidden_size, config.kv_dim, ("embed", "kv_heads"), **kw)
        self.o_proj = Linear(config.query_dim, config.hidden_size, ("heads", "embed"), **kw)
        # Over each head's own entries; Qwen3 has these instead of biases on q, k and v.
        norm: dict[str, Any] = {"eps": config.rms_norm_eps, "offset": config.norm_offset}
        self.q_norm = RMSNorm(config.head_dim, param_dtype=param_dtype, **norm)
        self.k_norm = RMSNorm(config.head_dim, param_dtype=param_dtype, **norm)
        self.qkv_lora: LoRA | None = nnx.data(None)
        self.head_dim = config.head_dim

    def __call__(
        self, x: Hidden, context: LayerContext, keys: Keys
    ) -> tuple[
        Hidden,
        Float[jax.Array, "rows tokens kv_heads head_dim"],
        Float[jax.Array, "rows tokens kv_heads head_dim"],
    ]:
        """Returns the output, the rotated keys, and the values."""
        lora = context.adapters
        q = self.q_proj(x, adapters=lora, key=keys[0])
        k = self.k_proj(x, adapters=lora, key=keys[1])
        v = self.v_proj(x, adapters=lora, key=keys[2])
        if lora and self.qkv_lora is not None:
            splits = [q.shape[-1], q.shape[-1] + k.shape[-1]]
            # One A, and so one dropout mask for q, k and v.
            dq, dk, dv = jnp.split(self.qkv_lora(x, keys[0]), splits, axis=-1)
            q, k, v = q + dq, k + dk, v + dv
        q, k, v = (part.reshape(*part.shape[:-1], -1, self.head_dim) for part in (q, k, v))
        q, gate = (q[..., ::2, :], q[..., 1::2, :]) if self.gated else (q, None)
        # Qwen3 normalizes queries and keys per head, before the rotation.
        q = rotate(self.q_norm(q), context.cos, context.sin)
        k = rotate(self.k_norm(k), context.cos, context.sin)
        mixed = context.attend(q, k, v)
        if gate is not None:
            mixed = mixed * jax.nn.sigmoid(gate)
        return self.o_proj(mixed.reshape(*x.shape[:-1], -1), adapters=lora, key=keys[3]), k, v


class MLP(nnx.Module):
    """SwiGLU."""

    def __init__(self, config: TextConfig, *, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, ("embed", "mlp"), **kw)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, ("embed", "mlp"), **kw)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, ("mlp", "embed"), **kw)

    def __call__(self, x: Hidden, adapters: bool, keys: Keys) -> Hidden:
        gate = self.gate_proj(x, adapters=adapters, key=keys[0])
        up = self.up_proj(x, adapters=adapters, key=keys[1])
        return self.down_proj(jax.nn.silu(gate) * up, adapters=adapters, key=keys[2])


class DecoderLayer(nnx.Module):
    """Attention or a recurrence, and an MLP, with residual connections, normalized before each.

    Attributes:
      self_attn, linear_attn: one of them is None.
    """

    def __init__(
        self,
        config: TextConfig,
        *,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
        kind: str = ATTENTION,
    ):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        norm: dict[str, Any] = {"eps": config.rms_norm_eps, "offset": config.norm_offset}
        self.input_layernorm = RMSNorm(config.hidden_size, param_dtype=param_dtype, **norm)
        self.self_attn: Attention | None = nnx.data(None)
        self.linear_attn: GatedDeltaNet | None = nnx.data(None)
        if kind == ATTENTION:
            self.self_attn = Attention(config, **kw)
        elif config.delta is not None:
            eps = config.rms_norm_eps
            self.linear_attn = GatedDeltaNet(config.hidden_size, config.delta, eps=eps, **kw)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, param_dtype=param_dtype, **norm)
        self.mlp = MLP(config, **kw)

    def __call__(
        self, x: Hidden, context: LayerContext, key: Key[jax.Array, ""] | None
    ) -> tuple[Hidden, tuple[jax.Array, ...]]:
        """Returns the output, and of attention the rotated keys and the values."""
        normed = self.input_layernorm(x)
        kv: tuple[jax.Array, ...] = ()
        if self.self_attn is not None:
            # For q, k, v, o; and gate, up and down.
            keys = module_keys(key, 4 + 3)
            mixed, k, v = self.self_attn(normed, context, keys[:-3])
            kv = k, v
        else:
            assert self.linear_attn is not None and context.recur is not None and context.parent is not None
            keys = module_keys(key, 5 + 3)
            mixed = self.linear_attn(normed, context.recur, context.parent, context.adapters, keys[:-3])
        x = x + mixed
        x = x + self.mlp(self.post_attention_layernorm(x), context.adapters, keys[-3:])
        return x, kv


def stack_modules(make: Any, count: int, rngs: nnx.Rngs) -> Any:
    """Makes `count` modules by `make(rngs)` as one with a leading axis on all parameters; None for 0."""
    if count == 0:
        return nnx.data(None)
    return nnx.vmap(make, in_axes=0, out_axes=0)(rngs.split(count))


class LanguageModel(nnx.Module):
    """Embedding, decoder layers and final norm.

    Attributes:
      first_layers: the layers after which DeepStack features are added, one module each.
      layers: all others, stacked by their place in the kinds of layers that repeat: a scan compiles these
        once.
    """

    def __init__(
        self,
        config: Qwen3VLConfig,
        *,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
        remat: str,
        embedding_std: float,
    ):
        text = config.text
        kw: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype}
        self.embed_tokens = Embedding(
            text.vocab_size, text.hidden_size, ("vocab", "embed"), std=embedding_std, rngs=rngs, **kw
        )
        self.first_layers = nnx.List(
            [DecoderLayer(text, rngs=rngs, **kw) for _ in range(config.num_deepstack)]
        )
        repeats = (text.num_hidden_layers - config.num_deepstack) // len(text.layer_types)

        def stacked(kind: str) -> Any:
            return stack_modules(lambda rngs: DecoderLayer(text, rngs=rngs, kind=kind, **kw), repeats, rngs)

        self.layers = nnx.List([stacked(kind) for kind in text.layer_types * (repeats > 0)])
        self.norm = RMSNorm(
            text.hidden_size, eps=text.rms_norm_eps, param_dtype=param_dtype, offset=text.norm_offset
        )
        self.config = text
        self.remat = remat

    def __call__(
        self,
        x: Hidden,
        positions: Int32[Array, "3 rows tokens"],
        attend: Attend,
        deepstack: list[Hidden],
        *,
        adapters: bool,
        dropout_key: Key[jax.Array, ""] | None,
        recur: Recur | None = None,
        parent: Int32[Array, "rows tokens"] | None = None,
        mesh: Mesh | None = None,
        return_kv: bool = False,
    ) -> tuple[Hidden, KeyValues | None]:
        """Runs all layers.

        Args:
          x: embeddings, with vision features at image tokens.
          positions: rotary positions on the time, height and width axes.
          attend: the attention rule of the batch's rows.
          deepstack: additions after each of the first layers, zero at text; empty without images.
          recur, parent: see `LayerContext`.

        Returns:
          Hidden states after the final norm, and keys and values of all layers with attention if `return_kv`.
        """
        cos, sin = mrope_cos_sin(positions, self.config)
        context = LayerContext(cos, sin, attend, adapters, recur, parent, mesh)
        num_first = len(self.first_layers)
        keys = module_keys(dropout_key, self.config.num_hidden_layers)
        cached: list[tuple[jax.Array, jax.Array]] = []
        x = constrain_rows(x, mesh)
        for index, layer in enumerate(self.first_layers):
            x, kv = self._run(layer, x, context, keys[index])
            cached.append(kv)
            # DeepStack: the vision features of the n-th tapped block are added after the n-th layer.
            if index < len(deepstack):
                x = x + constrain_rows(deepstack[index], mesh)
        stacked = None
        if self.layers:
            x, stacked = self._scan(x, context, keys[num_first:], return_kv)
        kv = _join_kv(cached, stacked) if return_kv else None
        return self.norm(x), kv

    def list_layers(self) -> list[DecoderLayer]:
        """Returns all layers in order, the stacked ones taken apart."""
        layers = list(self.first_layers)
        if self.layers:
            kinds = [nnx.split(layer) for layer in self.layers]
            # The leading axis of every stacked parameter is the layer.
            for number in range(self.layers[0].input_layernorm.scale.shape[0]):
                layers += [
                    nnx.merge(graph, jax.tree.map(lambda x, i=number: x[i], state)) for graph, state in kinds
                ]
        return layers

    def _run(self, layer: DecoderLayer, x: Hidden, context: LayerContext, key: jax.Array | None) -> Any:
        graphdef, state = nnx.split(layer)

        def apply(state: Any, x: jax.Array, key: Any) -> Any:
            # Within the rematerialized function: gathered weights are not saved for the backward pass.
            state = gather_weights(state, context.mesh)
            x, kv = nnx.merge(graphdef, state)(x, context, key)
            return constrain_rows(x, context.mesh), kv

        return remat(apply, self.remat)(state, x, key)

    def _scan(self, x: Hidden, context: LayerContext, keys: Keys, return_kv: bool) -> Any:
        graphs, states = zip(*(nnx.split(layer) for layer in self.layers), strict=True)
        # By repetition of the kinds.
        repeats = len(keys) // len(graphs)
        layer_keys = None if keys[0] is None else jnp.stack([key for key in keys if key is not None])
        if layer_keys is not None:
            layer_keys = layer_keys.reshape(repeats, len(graphs), *layer_keys.shape[1:])

        def step(x: jax.Array, inputs: Any) -> Any:
            states, keys = inputs
            kept: tuple[jax.Array, ...] = ()
            for number, (graph, state) in enumerate(zip(graphs, states, strict=True)):
                key = None if keys is None else keys[number]
                x, kv = self._run(nnx.merge(graph, state), x, context, key)
                kept += kv
            # Training needs no keys and values; stacked outputs of a scan would keep those of all layers.
            return x, kept if return_kv else None

        # Repetitions are equal, so that a scan compiles one of them for any depth of the model.
        unroll = repeats if len(keys) <= MAX_UNROLL else 1
        return jax.lax.scan(step, x, (states, layer_keys), unroll=unroll)


def _join_kv(
    first: list[tuple[jax.Array, jax.Array]], stacked: tuple[jax.Array, jax.Array] | None
) -> KeyValues:
    parts = [tuple(part[None] for part in kv) for kv in first] + ([stacked] if stacked is not None else [])
    return KeyValues(*(jnp.concatenate(side) for side in zip(*parts, strict=True)))
