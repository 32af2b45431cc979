"""Prefill and single decoding steps, with one prefix cache for all samples of a prompt.

A prompt's keys and values are kept once, [G, Hkv, P, D] a layer; the K samples of the prompt keep only
their own, and attention over the two parts is merged by log-sum-exp. Both may be stored in 8 bits.

On a mesh the weights stay where they lie, split over `fsdp` and `tensor`, and activations travel: a step
has so few rows that gathering the weights, as training does, would move a hundred times more. Caches
are split by prompt over `data` and `fsdp`, and by head over `tensor`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import BATCH, ROWS, constrain, constrain_tree
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.fused import DecodeWeights, project
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.layers import rms_norm, rotate
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import mrope_cos_sin

# How a cache is stored: as the model computes, or in 8 bits with a scale a head and place.
CACHE_DTYPES = ("model", "int8", "float8_e4m3fn")

_MASKED = -1e30
_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}


class Stored(NamedTuple):
    """Keys or values of a layer, [..., D]; `data * scale` with a float32 scale [...] when in 8 bits."""

    data: jax.Array
    scale: jax.Array | None = None


class PrefixCache(NamedTuple):
    """The prompts of a batch.

    Attributes:
      keys, values: a layer each, [G, Hkv, P, D].
      mask: [G, P] bool, False at padding on either side.
      next_position: [G] int32, rotary position of the first response token.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]
    mask: jax.Array
    next_position: jax.Array


class SuffixCache(NamedTuple):
    """The latest R places of the responses, a ring that all write at the same place.

    One place for all makes a step's write one slice instead of a scatter, which accelerators do row by row.

    Attributes:
      keys: a layer each, [G, K, Hkv, D, R] (scales [G, K, Hkv, R]).
      values: a layer each, [G, K, Hkv, R, D]. Both have the axis that the step's elementwise products run
        over last, which CPU vector units need.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]


_BY_HEAD, _BY_ROW = cast(Any, P(ROWS, "tensor")), cast(Any, BATCH)
PREFIX_SPECS = PrefixCache(_BY_HEAD, _BY_HEAD, _BY_ROW, _BY_ROW)
# Of what `prefill` returns.
PREFILLED_SPECS = (_BY_ROW, PREFIX_SPECS)
_BY_SAMPLE = cast(Any, P(ROWS, None, "tensor"))
SUFFIX_SPECS = SuffixCache(_BY_SAMPLE, _BY_SAMPLE)


def store(x: jax.Array, dtype: str) -> Stored:
    """Keys or values [..., D] as a cache of `dtype` (one of `CACHE_DTYPES`) holds them."""
    if dtype == "model":
        return Stored(x)
    largest = _LARGEST[dtype]
    x32 = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(x32).max(-1) / largest, 1e-12)
    data = x32 / scale[..., None]
    return Stored((jnp.round(data) if dtype == "int8" else data).astype(dtype), scale)


def prefill(
    model: Qwen3VL, prompts: ModelInputs, *, adapters: bool, cache_dtype: str, mesh: Mesh | None
) -> tuple[jax.Array, PrefixCache]:
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
    keys, values = (
        tuple(store(part.transpose(0, 2, 1, 3), cache_dtype) for part in side)
        for side in (kv.keys, kv.values)
    )
    prefix = PrefixCache(keys, values, mask, top + 1)
    return constrain_tree((last_hidden, prefix), PREFILLED_SPECS, mesh)


def empty_suffix(
    config: TextConfig, groups: int, num_samples: int, length: int, dtype: Any, cache_dtype: str
) -> SuffixCache:
    """Places for `length` tokens of every sample."""
    lead, size = (groups, num_samples, config.num_key_value_heads), config.head_dim
    stored = dtype if cache_dtype == "model" else jnp.dtype(cache_dtype)

    def empty(*shape: int) -> tuple[Stored, ...]:
        scale = None if cache_dtype == "model" else jnp.zeros((*lead, length), jnp.float32)
        return (Stored(jnp.zeros((*lead, *shape), stored), scale),) * config.num_hidden_layers

    return SuffixCache(keys=empty(size, length), values=empty(length, size))


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


def _attend_prefix(q: jax.Array, keys: Stored, values: Stored, mask: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys and values [G, Hkv, P, D], mask [G, P]."""
    groups, samples, heads, query, size = q.shape
    rows = q.transpose(0, 2, 1, 3, 4).reshape(groups, heads, samples * query, size)
    scores = jnp.einsum(
        "ghqd,ghpd->ghqp", rows, keys.data.astype(q.dtype), preferred_element_type=jnp.float32
    )
    if keys.scale is not None:
        scores = scores * keys.scale[:, :, None]
    scores = jnp.where(mask[:, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[:, :, None]
    mixed = jnp.einsum(
        "ghqp,ghpd->ghqd",
        scaled.astype(q.dtype),
        values.data.astype(q.dtype),
        preferred_element_type=jnp.float32,
    )

    def back(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(groups, heads, samples, query, *x.shape[3:]), 2, 1)

    return _Part(back(top), back(weights.sum(-1)), back(mixed))


def _attend_suffix(q: jax.Array, keys: Stored, values: Stored, mask: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys [G, K, Hkv, D, R], values [G, K, Hkv, R, D], mask [G, R]."""
    scores = (q[..., None] * keys.data.astype(q.dtype)[:, :, :, None]).astype(jnp.float32).sum(-2)
    if keys.scale is not None:
        scores = scores * keys.scale[:, :, :, None]
    scores = jnp.where(mask[:, None, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[:, :, :, None]
    mixed = (scaled[..., None] * values.data[:, :, :, None].astype(jnp.float32)).sum(-2)
    return _Part(top, weights.sum(-1), mixed)


def _write(cache: Stored, new: Stored, place: jax.Array, axis: int) -> Stored:
    """Puts a token's keys or values, with a place axis of 1, at `place` of the ring."""
    write = jax.lax.dynamic_update_slice_in_dim
    data = write(cache.data, new.data, place, axis=axis)
    if cache.scale is None or new.scale is None:
        return Stored(data)
    return Stored(data, write(cache.scale, new.scale[..., None], place, axis=3))


def decode_step(
    weights: DecodeWeights,
    config: TextConfig,
    tokens: jax.Array,
    fed: jax.Array,
    place: jax.Array,
    prefix: PrefixCache,
    suffix: SuffixCache,
    *,
    cache_dtype: str,
    mesh: Mesh | None,
) -> tuple[jax.Array, SuffixCache]:
    """Feeds one response token of every sample: tokens [G, K].

    Args:
      fed: [G] int32, how many tokens of the responses are fed with this one.
      place: [] int32, of the ring, where this one's keys and values go; those before it lie before it.

    Returns:
      Hidden states after the final norm, [G, K, hidden], and the cache with the token's keys and values.
    """
    groups, samples = tokens.shape
    rows, heads, size = groups * samples, config.num_key_value_heads, config.head_dim
    positions = jnp.broadcast_to((prefix.next_position + fed - 1)[:, None], (3, groups, samples))
    cos, sin = mrope_cos_sin(positions, config)
    room = suffix.values[0].data.shape[3]
    own = (place - jnp.arange(room)) % room < fed[:, None]
    all_keys, all_values = [], []

    def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
        return constrain(rms_norm(x, scale, config.rms_norm_eps).reshape(rows, -1), mesh, "data", "fsdp")

    def added(x: jax.Array, change: jax.Array) -> jax.Array:
        return constrain(x + change.reshape(x.shape), mesh, "data", None, "fsdp")

    x = constrain(weights.embedding[tokens], mesh, "data", None, "fsdp")
    for index, layer in enumerate(weights.layers):
        qkv = project(normed(x, layer.input_norm), layer.qkv, layer.qkv_lora)
        qkv = constrain(qkv.reshape(groups, samples, heads, -1), mesh, ROWS, None, "tensor", None)
        q, k, v = jnp.split(qkv, [qkv.shape[-1] - 2 * size, qkv.shape[-1] - size], axis=-1)
        q = rms_norm(q.reshape(groups, samples, heads, -1, size), layer.q_norm, config.rms_norm_eps)
        # The queries of a group are one more axis of heads.
        q = rotate(q, cos[:, :, None], sin[:, :, None]) * size**-0.5
        k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), cos, sin)
        key, value = store(k, cache_dtype), store(v, cache_dtype)
        keys = _write(suffix.keys[index], key._replace(data=key.data[..., None]), place, axis=4)
        values = _write(suffix.values[index], value._replace(data=value.data[..., None, :]), place, axis=3)
        mixed = _merge(
            _attend_prefix(q, prefix.keys[index], prefix.values[index], prefix.mask),
            _attend_suffix(q, keys, values, own),
        )
        mixed = constrain(mixed.astype(x.dtype).reshape(rows, -1), mesh, "data", "tensor")
        x = added(x, project(mixed, layer.out, layer.out_lora))
        gate_up = project(normed(x, layer.post_norm), layer.gate_up)
        gate_up = constrain(
            gate_up.reshape(rows, *layer.gate_up.shape[1:]), mesh, "data", "tensor", None, None
        )
        gated = (jax.nn.silu(gate_up[:, :, 0]) * gate_up[:, :, 1]).reshape(rows, -1)
        x = added(x, gated @ layer.down)
        all_keys.append(keys)
        all_values.append(values)
    return rms_norm(x, weights.norm, config.rms_norm_eps), SuffixCache(tuple(all_keys), tuple(all_values))
