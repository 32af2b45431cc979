"""The decoder: grouped-query attention with interleaved MRoPE, SwiGLU, DeepStack additions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.mesh import constrain_rows, gather_weights
from rmsweb_jax.qwen3_vl.attention import Attend
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig
from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.qwen3_vl.layers import Embedding, Linear, LoRA, RMSNorm, rotate

# Up to here a scan is unrolled: XLA's CPU loop costs more than the compilation it saves.
MAX_UNROLL = 8


class KeyValues(NamedTuple):
    """Rotated keys and values of every layer: [L, B, T, Hkv, D]."""

    keys: jax.Array
    values: jax.Array


class LayerContext(NamedTuple):
    """What all layers of one forward share.

    Attributes:
      cos, sin: [B, T, D / 2] float32.
      attend: the attention rule of the batch's rows.
      adapters: whether LoRA is applied (static).
      mesh: that the model lies on, if any.
    """

    cos: jax.Array
    sin: jax.Array
    attend: Attend
    adapters: bool
    mesh: Mesh | None = None


def mrope_cos_sin(positions: Array, config: TextConfig) -> tuple[jax.Array, jax.Array]:
    """Interleaved MRoPE: positions [3, ...] -> cos and sin [..., D / 2] float32.

    Frequencies 1, 4, 7, ... below 3 * section[1] read the height, 2, 5, 8, ... below 3 * section[2] the
    width, all others the time.
    """
    axis = np.zeros(config.head_dim // 2, np.int32)
    for which in (1, 2):
        axis[which : 3 * config.mrope_section[which] : 3] = which
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = (1.0 / np.float32(config.rope_theta) ** exponent).astype(np.float32)
    # Not by a gather: XLA would fuse that, and sines with it, into every layer's products.
    angles = jnp.zeros((), jnp.float32)
    for which, position in enumerate(jnp.asarray(positions).astype(jnp.float32)):
        angles += position[..., None] * np.where(axis == which, frequencies, np.float32(0))
    return jnp.cos(angles), jnp.sin(angles)


REMAT_POLICIES = ("none", "dots", "full")


def remat(function: Any, policy: str) -> Any:
    """A layer's function under a policy by name: what its backward pass finds saved.

    "none" keeps everything, "dots" the results of matrix products with weights, "full" the inputs only.
    """
    if policy == "none":
        return function
    saved = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if policy == "dots" else None
    return jax.checkpoint(function, policy=saved)


def module_keys(key: jax.Array | None, count: int) -> list[jax.Array | None]:
    """One dropout key a linear layer, or none at all."""
    return [None] * count if key is None else list(jax.random.split(key, count))


class Attention(nnx.Module):
    def __init__(self, config: TextConfig, *, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.q_proj = Linear(config.hidden_size, config.query_dim, **kw)
        self.k_proj = Linear(config.hidden_size, config.kv_dim, **kw)
        self.v_proj = Linear(config.hidden_size, config.kv_dim, **kw)
        self.o_proj = Linear(config.query_dim, config.hidden_size, **kw)
        self.q_norm = RMSNorm(config.head_dim, eps=config.rms_norm_eps, param_dtype=param_dtype)
        self.k_norm = RMSNorm(config.head_dim, eps=config.rms_norm_eps, param_dtype=param_dtype)
        # The fused adapter of the paper's RL targets: one A for q, k and v.
        self.qkv_lora: LoRA | None = nnx.data(None)
        self.head_dim = config.head_dim

    def __call__(
        self, x: jax.Array, context: LayerContext, keys: list[jax.Array | None]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """[B, T, hidden] -> output [B, T, hidden], rotated keys and values [B, T, Hkv, D]."""
        lora = context.adapters
        q = self.q_proj(x, adapters=lora, key=keys[0])
        k = self.k_proj(x, adapters=lora, key=keys[1])
        v = self.v_proj(x, adapters=lora, key=keys[2])
        if lora and self.qkv_lora is not None:
            splits = [q.shape[-1], q.shape[-1] + k.shape[-1]]
            dq, dk, dv = jnp.split(self.qkv_lora(x, keys[0]), splits, axis=-1)
            q, k, v = q + dq, k + dk, v + dv
        q, k, v = (part.reshape(*part.shape[:-1], -1, self.head_dim) for part in (q, k, v))
        q = rotate(self.q_norm(q), context.cos, context.sin)
        k = rotate(self.k_norm(k), context.cos, context.sin)
        mixed = context.attend(q, k, v)
        return self.o_proj(mixed.reshape(*x.shape[:-1], -1), adapters=lora, key=keys[3]), k, v


class MLP(nnx.Module):
    def __init__(self, config: TextConfig, *, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, **kw)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, **kw)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, **kw)

    def __call__(self, x: jax.Array, adapters: bool, keys: list[jax.Array | None]) -> jax.Array:
        gate = self.gate_proj(x, adapters=adapters, key=keys[0])
        up = self.up_proj(x, adapters=adapters, key=keys[1])
        return self.down_proj(jax.nn.silu(gate) * up, adapters=adapters, key=keys[2])


class DecoderLayer(nnx.Module):
    def __init__(self, config: TextConfig, *, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps, param_dtype=param_dtype)
        self.self_attn = Attention(config, **kw)
        self.post_attention_layernorm = RMSNorm(
            config.hidden_size, eps=config.rms_norm_eps, param_dtype=param_dtype
        )
        self.mlp = MLP(config, **kw)

    def __call__(
        self, x: jax.Array, context: LayerContext, key: jax.Array | None
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        keys = module_keys(key, 7)
        mixed, k, v = self.self_attn(self.input_layernorm(x), context, keys[:4])
        x = x + mixed
        x = x + self.mlp(self.post_attention_layernorm(x), context.adapters, keys[4:])
        return x, (k, v)


def stack_modules(make: Any, count: int, rngs: nnx.Rngs) -> Any:
    """`count` modules made by `make(rngs)` as one, every parameter with a leading axis; None for none."""
    if count == 0:
        return nnx.data(None)
    return nnx.vmap(make, in_axes=0, out_axes=0)(rngs.fork(split=count))


class LanguageModel(nnx.Module):
    """Embedding, layers and final norm.

    The layers that receive DeepStack features are separate (`first_layers`), the rest is one stacked
    layer (`layers`) that is scanned.
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
        self.embed_tokens = Embedding(text.vocab_size, text.hidden_size, std=embedding_std, rngs=rngs, **kw)
        self.first_layers = nnx.List(
            [DecoderLayer(text, rngs=rngs, **kw) for _ in range(config.num_deepstack)]
        )
        self.layers: DecoderLayer | None = stack_modules(
            lambda rngs: DecoderLayer(text, rngs=rngs, **kw),
            text.num_hidden_layers - config.num_deepstack,
            rngs,
        )
        self.norm = RMSNorm(text.hidden_size, eps=text.rms_norm_eps, param_dtype=param_dtype)
        self.config = text
        self.remat = remat

    def __call__(
        self,
        x: jax.Array,
        positions: Array,
        attend: Attend,
        deepstack: list[jax.Array],
        *,
        adapters: bool,
        dropout_key: jax.Array | None,
        mesh: Mesh | None = None,
        return_kv: bool = False,
    ) -> tuple[jax.Array, KeyValues | None]:
        """Runs all layers.

        Args:
          x: [B, T, hidden] embeddings with vision features in place.
          positions: [3, B, T].
          attend: the attention rule of the batch's rows.
          deepstack: [B, T, hidden] additions after the first layers, zero at text; empty without images.

        Returns:
          Hidden states after the final norm, and the keys and values when asked for.
        """
        context = LayerContext(*mrope_cos_sin(positions, self.config), attend, adapters, mesh)
        num_first = len(self.first_layers)
        keys = module_keys(dropout_key, self.config.num_hidden_layers)
        cached: list[tuple[jax.Array, jax.Array]] = []
        x = constrain_rows(x, mesh)
        for index, layer in enumerate(self.first_layers):
            x, kv = self._run(layer, x, context, keys[index])
            cached.append(kv)
            if index < len(deepstack):
                x = x + constrain_rows(deepstack[index], mesh)
        stacked = None
        if self.layers is not None:
            x, stacked = self._scan(self.layers, x, context, keys[num_first:], return_kv)
        kv = _join_kv(cached, stacked) if return_kv else None
        return self.norm(x), kv

    def list_layers(self) -> list[DecoderLayer]:
        """All layers, first to last, with what is stacked taken apart."""
        layers = list(self.first_layers)
        if self.layers is not None:
            graphdef, state = nnx.split(self.layers)
            count = self.layers.input_layernorm.scale.shape[0]
            layers += [nnx.merge(graphdef, jax.tree.map(lambda x, i=i: x[i], state)) for i in range(count)]
        return layers

    def _run(self, layer: DecoderLayer, x: jax.Array, context: LayerContext, key: jax.Array | None) -> Any:
        graphdef, state = nnx.split(layer)

        def apply(state: Any, x: jax.Array, key: Any) -> Any:
            state = gather_weights(state, ("language_model", "layers"), context.mesh)
            x, kv = nnx.merge(graphdef, state)(x, context, key)
            return constrain_rows(x, context.mesh), kv

        return remat(apply, self.remat)(state, x, key)

    def _scan(
        self,
        layers: DecoderLayer,
        x: jax.Array,
        context: LayerContext,
        keys: list[jax.Array | None],
        return_kv: bool,
    ) -> Any:
        graphdef, state = nnx.split(layers)
        layer_keys = None if keys[0] is None else jnp.stack([key for key in keys if key is not None])

        def step(x: jax.Array, inputs: Any) -> Any:
            state, key = inputs
            x, kv = self._run(nnx.merge(graphdef, state), x, context, key)
            return x, kv if return_kv else None

        count = len(keys)
        return jax.lax.scan(step, x, (state, layer_keys), unroll=count if count <= MAX_UNROLL else 1)


def _join_kv(
    first: list[tuple[jax.Array, jax.Array]], stacked: tuple[jax.Array, jax.Array] | None
) -> KeyValues:
    parts = [tuple(part[None] for part in kv) for kv in first] + ([stacked] if stacked is not None else [])
    return KeyValues(*(jnp.concatenate(side) for side in zip(*parts, strict=True)))
