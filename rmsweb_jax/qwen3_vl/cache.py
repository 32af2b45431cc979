"""Prefill and single decoding steps, with one prefix cache for all samples of a prompt.

A prompt's keys and values are kept once, [G, Hkv, P, D] a layer; the K samples of the prompt keep only
their own, and attention over the parts is merged by log-sum-exp. All of it may be stored in 8 bits.

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
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.decode_attention import (
    Span,
    attend_prefix,
    attend_recent,
    attend_span,
    keys_by_place,
    merge,
)
from rmsweb_jax.qwen3_vl.fused import DecodeWeights, head_axis, output_axes, project
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.layers import rms_norm, rotate
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.stored import Stored, store, turned
from rmsweb_jax.qwen3_vl.text import mrope_cos_sin

# Places of the ring that are written before they are settled.
BLOCK = 128


class PrefixCache(NamedTuple):
    """The prompts of a batch.

    Attributes:
      keys: a layer each, [G, Hkv, D, P], or [G, Hkv, P, D] by place (see `keys_by_place`).
      values: a layer each, [G, Hkv, P, D].
      mask: [G, P] bool, False at padding on either side.
      next_position: [G] int32, rotary position of the first response token.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]
    mask: jax.Array
    next_position: jax.Array


class Recent(NamedTuple):
    """The block of the ring that is being written, a layer each.

    Attributes:
      keys: [G, K, Hkv, D, B] (scales [G, K, Hkv, B]).
      values: [G, K, Hkv, B, D]. Both have the axis that the step's elementwise products run over last, which
        CPU vector units need.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]


class Settled(NamedTuple):
    """The whole ring as of the last whole block, a layer each; empty if it is one block.

    Values are [G, K, Hkv, R, D], keys the same by place and else [G, K, Hkv, D, R]. Steps only read them: a
    step that wrote into them would have XLA turn all of it about, twice, for TPUs.
    """

    keys: tuple[Stored, ...]
    values: tuple[Stored, ...]


class SuffixCache(NamedTuple):
    """The latest R places of the responses, a ring that all write at the same place.

    One place for all makes a step's write one slice instead of a scatter, which accelerators do row by row.
    """

    recent: Recent
    settled: Settled


_BY_HEAD, _BY_ROW = cast(Any, P(ROWS, "tensor")), cast(Any, BATCH)
PREFIX_SPECS = PrefixCache(_BY_HEAD, _BY_HEAD, _BY_ROW, _BY_ROW)
# Of what `prefill` returns.
PREFILLED_SPECS = (_BY_ROW, PREFIX_SPECS)
_BY_SAMPLE = cast(Any, P(ROWS, None, "tensor"))
SUFFIX_SPECS = SuffixCache(_BY_SAMPLE, _BY_SAMPLE)


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
    if not keys_by_place(model.attention):
        keys = tuple(map(turned, keys))
    prefix = PrefixCache(keys, values, mask, top + 1)
    return constrain_tree((last_hidden, prefix), PREFILLED_SPECS, mesh)


def empty_suffix(
    config: TextConfig,
    groups: int,
    num_samples: int,
    length: int,
    dtype: Any,
    cache_dtype: str,
    attention: AttentionConfig,
) -> SuffixCache:
    """Places for `length` tokens of every sample, rounded up to whole blocks."""
    lead, size = (groups, num_samples, config.num_key_value_heads), config.head_dim
    stored = dtype if cache_dtype == "model" else jnp.dtype(cache_dtype)

    def empty(places: int, *shape: int) -> tuple[Stored, ...]:
        scale = None if cache_dtype == "model" else jnp.zeros((*lead, places), jnp.float32)
        return (Stored(jnp.zeros((*lead, *shape), stored), scale),) * config.num_hidden_layers

    block = min(length, BLOCK)
    ring = -(-length // block) * block
    recent = Recent(empty(block, size, block), empty(block, block, size))
    if ring == block:
        return SuffixCache(recent, Settled((), ()))
    keys = (ring, size) if keys_by_place(attention) else (size, ring)
    return SuffixCache(recent, Settled(empty(ring, *keys), empty(ring, ring, size)))


def ring_size(suffix: SuffixCache) -> int:
    """R, the places of the ring."""
    values = suffix.settled.values or suffix.recent.values
    return values[0].data.shape[3]


def settle(suffix: SuffixCache, clock: jax.Array, attention: AttentionConfig) -> SuffixCache:
    """Takes the recent block over into the ring when the step before `clock` was its last."""
    if not suffix.settled.values:
        return suffix
    block = suffix.recent.values[0].data.shape[3]
    at = (clock - 1) % ring_size(suffix) // block * block
    whole = clock % block == 0

    def put(axis: int, ring: jax.Array, new: jax.Array) -> jax.Array:
        old = jax.lax.dynamic_slice_in_dim(ring, at, block, axis=axis)
        return jax.lax.dynamic_update_slice_in_dim(ring, jnp.where(whole, new, old), at, axis=axis)

    def take(ring: Stored, new: Stored, axis: int = 3) -> Stored:
        scale = None if ring.scale is None else put(3, ring.scale, cast(jax.Array, new.scale))
        return Stored(put(axis, ring.data, new.data), scale)

    keys, keys_axis = suffix.recent.keys, 4
    if keys_by_place(attention):
        keys, keys_axis = tuple(map(turned, keys)), 3
    settled = Settled(
        tuple(take(*pair, axis=keys_axis) for pair in zip(suffix.settled.keys, keys, strict=True)),
        tuple(map(take, suffix.settled.values, suffix.recent.values)),
    )
    return suffix._replace(settled=settled)


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
    clock: jax.Array,
    prefix: PrefixCache,
    suffix: SuffixCache,
    *,
    cache_dtype: str,
    attention: AttentionConfig,
) -> tuple[jax.Array, Recent]:
    """Feeds one response token of every sample: tokens [G, K].

    Args:
      fed: [G] int32, how many tokens of the responses are fed with this one.
      clock: [] int32; this one's keys and values go to place clock % R of the ring, those before it lie
        before it.

    Returns:
      Hidden states after the final norm, [G, K, hidden], and the recent block with the token's keys and
      values.
    """
    groups, samples = tokens.shape
    mesh = attention.mesh
    rows, heads, size = groups * samples, config.num_key_value_heads, config.head_dim
    positions = jnp.broadcast_to((prefix.next_position + fed - 1)[:, None], (3, groups, samples))
    cos, sin = mrope_cos_sin(positions, config)
    ring, block = ring_size(suffix), suffix.recent.values[0].data.shape[3]
    place = clock % block
    prompt = Span(jnp.argmax(prefix.mask, axis=1).astype(jnp.int32), prefix.mask.sum(1, dtype=jnp.int32))
    # Of the block being written, what is older than its first place is still in the ring.
    held = jnp.minimum(fed, ring)
    older = Span((clock + 1 - held) % ring, jnp.maximum(held - 1 - place, 0))
    recent_age = place - jnp.arange(block)
    if ring == block:
        recent_age = recent_age % block
    recent_mask = (recent_age >= 0) & (recent_age < fed[:, None])
    all_keys, all_values = [], []
    qkv_axis = head_axis(weights.layers[0].qkv.shape[2], mesh)

    def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
        return rms_norm(x.reshape(rows, -1), scale, config.rms_norm_eps)

    def added(x: jax.Array, change: jax.Array) -> jax.Array:
        return x + constrain(change.reshape(x.shape), mesh, "data", None, None)

    x = constrain(weights.embedding[tokens], mesh, "data", None, None)
    for index, layer in enumerate(weights.layers):
        qkv = project(normed(x, layer.input_norm), layer.qkv, layer.qkv_lora)
        # Said in two steps, or the weights would be gathered for the rows.
        qkv = constrain(qkv, mesh, "data", "tensor", qkv_axis)
        qkv = constrain(qkv.reshape(groups, samples, heads, -1), mesh, ROWS, None, "tensor", None)
        q, k, v = jnp.split(qkv, [qkv.shape[-1] - 2 * size, qkv.shape[-1] - size], axis=-1)
        q = rms_norm(q.reshape(groups, samples, heads, -1, size), layer.q_norm, config.rms_norm_eps)
        # The queries of a group are one more axis of heads.
        q = rotate(q, cos[:, :, None], sin[:, :, None]) * size**-0.5
        k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), cos, sin)
        key, value = store(k, cache_dtype), store(v, cache_dtype)
        recent, settled = suffix
        keys = _write(recent.keys[index], key._replace(data=key.data[..., None]), place, axis=4)
        values = _write(recent.values[index], value._replace(data=value.data[..., None, :]), place, axis=3)
        parts = [
            attend_prefix(q, prefix.keys[index], prefix.values[index], prompt, attention),
            attend_recent(q, keys, values, recent_mask, attention),
        ]
        if settled.keys:
            parts.append(attend_span(q, settled.keys[index], settled.values[index], older, attention))
        mixed = merge(*parts)
        mixed = constrain(mixed.astype(x.dtype).reshape(rows, -1), mesh, "data", "tensor")
        x = added(x, project(mixed, layer.out, layer.out_lora))
        gate_up = project(normed(x, layer.post_norm), layer.gate_up)
        gate_up = constrain(gate_up, mesh, "data", output_axes(layer.down.shape[0], mesh), None, None)
        gated = (jax.nn.silu(gate_up[:, :, 0]) * gate_up[:, :, 1]).reshape(rows, -1)
        x = added(x, gated @ layer.down)
        all_keys.append(keys)
        all_values.append(values)
    return rms_norm(x, weights.norm, config.rms_norm_eps), Recent(tuple(all_keys), tuple(all_values))
