"""Prefill and single decoding steps, with one prefix cache for all samples of a prompt.

A prompt's keys and values are kept once, [G, Hkv, P, D] a layer; the K samples of the prompt keep only
their own, and attention over the two parts is merged by log-sum-exp. The weights are un-stacked, their
projections fused and their adapters merged once a call, so that a step is few and plain operations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.layers import Linear, rms_norm, rotate
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import DecoderLayer, mrope_cos_sin

_MASKED = -1e30


class LayerWeights(NamedTuple):
    """One decoder layer ready for decoding: `qkv` [hidden, (Hq + 2 Hkv) D], `gate_up` [hidden, 2 F]."""

    input_norm: jax.Array
    qkv: jax.Array
    q_norm: jax.Array
    k_norm: jax.Array
    out: jax.Array
    post_norm: jax.Array
    gate_up: jax.Array
    down: jax.Array


class DecodeWeights(NamedTuple):
    embedding: jax.Array
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: jax.Array


class PrefixCache(NamedTuple):
    """The prompts of a batch.

    Attributes:
      keys, values: a layer each, [G, Hkv, P, D].
      mask: [G, P] bool, False at padding on either side.
      next_position: [G] int32, rotary position of the first response token.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    mask: jax.Array
    next_position: jax.Array


class SuffixCache(NamedTuple):
    """The responses so far: keys a layer each [G, K, Hkv, D, R], values [G, K, Hkv, R, D].

    Both have the axis that the step's elementwise products run over last, which CPU vector units need.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]


def _layer_weights(layer: DecoderLayer, adapters: bool) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp

    def kernel(linear: Linear) -> jax.Array:
        value = linear.kernel[...]
        if adapters and linear.lora is not None:
            value = value.astype(jnp.float32) + linear.lora.delta()
        return value.astype(linear.dtype)

    qkv = jnp.concatenate([kernel(attention.q_proj), kernel(attention.k_proj), kernel(attention.v_proj)], -1)
    if adapters and attention.qkv_lora is not None:
        qkv = (qkv.astype(jnp.float32) + attention.qkv_lora.delta()).astype(qkv.dtype)
    return LayerWeights(
        input_norm=layer.input_layernorm.scale[...],
        qkv=qkv,
        q_norm=attention.q_norm.scale[...],
        k_norm=attention.k_norm.scale[...],
        out=kernel(attention.o_proj),
        post_norm=layer.post_attention_layernorm.scale[...],
        gate_up=jnp.concatenate([kernel(mlp.gate_proj), kernel(mlp.up_proj)], -1),
        down=kernel(mlp.down_proj),
    )


def decode_weights(model: Qwen3VL, *, adapters: bool = True) -> DecodeWeights:
    """Un-stacks and fuses the decoder's weights and merges the adapters (in float32)."""
    language = model.language_model
    layers = list(language.first_layers)
    if language.layers is not None:
        graphdef, state = nnx.split(language.layers)
        count = language.layers.input_layernorm.scale.shape[0]
        layers += [nnx.merge(graphdef, jax.tree.map(lambda x, i=i: x[i], state)) for i in range(count)]
    return DecodeWeights(
        embedding=language.embed_tokens.embedding[...].astype(model.dtype),
        layers=tuple(_layer_weights(layer, adapters) for layer in layers),
        norm=language.norm.scale[...],
        head=model.head_kernel().astype(model.dtype),
    )


def prefill(model: Qwen3VL, prompts: ModelInputs, *, adapters: bool = True) -> tuple[jax.Array, PrefixCache]:
    """Runs prompts [G, P], one segment a row, padded on either side.

    Returns:
      Hidden states of the last prompt tokens, [G, hidden], and the cache.
    """
    hidden, kv = model.forward(prompts, adapters=adapters, return_kv=True)
    assert kv is not None
    mask = jnp.asarray(prompts.segment_ids) > 0
    length = mask.shape[1]
    last = jnp.max(jnp.where(mask, jnp.arange(length), 0), axis=1)
    last_hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    top = jnp.max(jnp.where(mask, jnp.asarray(prompts.positions), -1), axis=(0, 2))
    keys, values = (tuple(part.transpose(0, 2, 1, 3) for part in side) for side in kv)
    return last_hidden, PrefixCache(keys, values, mask, top + 1)


def empty_suffix(weights: DecodeWeights, prefix: PrefixCache, num_samples: int, length: int) -> SuffixCache:
    groups, heads, _, size = prefix.keys[0].shape
    lead, dtype = (groups, num_samples, heads), prefix.keys[0].dtype
    return SuffixCache(
        keys=tuple(jnp.zeros((*lead, size, length), dtype) for _ in weights.layers),
        values=tuple(jnp.zeros((*lead, length, size), dtype) for _ in weights.layers),
    )


class _Part(NamedTuple):
    """Softmax attention over some of the keys, before normalisation."""

    top: jax.Array  # [...] largest score
    total: jax.Array  # [...] sum of exp(score - top)
    mixed: jax.Array  # [..., D] sum of exp(score - top) * value


def _merge(a: _Part, b: _Part) -> jax.Array:
    top = jnp.maximum(a.top, b.top)
    scale_a, scale_b = jnp.exp(a.top - top), jnp.exp(b.top - top)
    total = a.total * scale_a + b.total * scale_b
    return (a.mixed * scale_a[..., None] + b.mixed * scale_b[..., None]) / total[..., None]


def _attend_prefix(q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys and values [G, Hkv, P, D], mask [G, P]."""
    groups, samples, heads, query, size = q.shape
    rows = q.transpose(0, 2, 1, 3, 4).reshape(groups, heads, samples * query, size)
    scores = jnp.einsum("ghqd,ghpd->ghqp", rows, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    mixed = jnp.einsum(
        "ghqp,ghpd->ghqd", weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )

    def back(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(groups, heads, samples, query, *x.shape[3:]), 2, 1)

    return _Part(back(top), back(weights.sum(-1)), back(mixed))


def _attend_suffix(q: jax.Array, keys: jax.Array, values: jax.Array, step: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys [G, K, Hkv, D, R], values [G, K, Hkv, R, D]; positions up to `step`."""
    scores = (q[..., None] * keys[:, :, :, None]).astype(jnp.float32).sum(-2)
    scores = jnp.where(jnp.arange(keys.shape[-1]) <= step, scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    mixed = (weights[..., None] * values[:, :, :, None].astype(jnp.float32)).sum(-2)
    return _Part(top, weights.sum(-1), mixed)


def decode_step(
    weights: DecodeWeights,
    config: TextConfig,
    tokens: jax.Array,
    step: jax.Array,
    prefix: PrefixCache,
    suffix: SuffixCache,
) -> tuple[jax.Array, SuffixCache]:
    """Feeds response token number `step` (from 0) of every sample: tokens [G, K].

    Returns:
      Hidden states after the final norm, [G, K, hidden], and the cache with the token's keys and values.
    """
    x = weights.embedding[tokens]
    groups, samples = tokens.shape
    positions = jnp.broadcast_to((prefix.next_position + step)[:, None], (3, groups, samples))
    cos, sin = mrope_cos_sin(positions, config)
    splits = [config.query_dim, config.query_dim + config.kv_dim]
    all_keys, all_values = [], []
    for index, layer in enumerate(weights.layers):
        flat = rms_norm(x, layer.input_norm, config.rms_norm_eps).reshape(groups * samples, -1)
        parts = jnp.split(flat @ layer.qkv, splits, axis=-1)
        q, k, v = (part.reshape(groups, samples, -1, config.head_dim) for part in parts)
        q = rotate(rms_norm(q, layer.q_norm, config.rms_norm_eps), cos, sin) * config.head_dim**-0.5
        k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), cos, sin)
        q = q.reshape(groups, samples, config.num_key_value_heads, -1, config.head_dim)
        keys = jax.lax.dynamic_update_slice_in_dim(suffix.keys[index], k[..., None], step, axis=4)
        values = jax.lax.dynamic_update_slice_in_dim(suffix.values[index], v[..., None, :], step, axis=3)
        mixed = _merge(
            _attend_prefix(q, prefix.keys[index], prefix.values[index], prefix.mask),
            _attend_suffix(q, keys, values, step),
        )
        mixed = mixed.astype(x.dtype).reshape(groups * samples, -1)
        x = x + (mixed @ layer.out).reshape(x.shape)
        flat = rms_norm(x, layer.post_norm, config.rms_norm_eps).reshape(groups * samples, -1)
        gate, up = jnp.split(flat @ layer.gate_up, 2, axis=-1)
        x = x + ((jax.nn.silu(gate) * up) @ layer.down).reshape(x.shape)
        all_keys.append(keys)
        all_values.append(values)
    return rms_norm(x, weights.norm, config.rms_norm_eps), SuffixCache(tuple(all_keys), tuple(all_values))
