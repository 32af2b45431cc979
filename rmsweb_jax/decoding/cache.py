"""KV caches, prefill, and a single decoding step for all samples of all prompts.

A prompt's keys and values are cached once for its K samples; a sample has a cache of its own tokens only.
Attention over the two is merged by log-sum-exp. Every cache may be stored in 8 bits.

A step has so few rows that gathering weights, as training does, would move a hundred times more bytes than
gathering activations. So on a mesh the weights stay split over `fsdp` and `tensor`, and activations travel.
Caches are split by prompt over `data` and `fsdp`, and by head over `tensor`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float, Int32

from rmsweb_jax.decoding.attention import (
    KeySpan,
    attend_prefix,
    attend_recent,
    attend_span,
    keys_by_position,
    merge,
)
from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes, to_cache
from rmsweb_jax.decoding.weights import DecodeWeights, head_axis, output_axes, project
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.layers import rms_norm, rotate
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import mrope_cos_sin
from rmsweb_jax.training.mesh import BATCH, ROWS, constrain, constrain_tree

# Steps between two writes to the ring buffer; 128 is also what the kernel tiles positions by.
BLOCK = 128


class PrefixCache(NamedTuple):
    """KV cache of the prompts of a batch.

    Attributes:
      keys: for each layer [groups, kv_heads, head_dim, positions], or the last two swapped (see
        `keys_by_position`).
      values: for each layer [groups, kv_heads, positions, head_dim].
      mask: False at padding, which may be on either side.
      next_position: rotary position of the first response token.
    """

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]
    mask: Bool[jax.Array, "groups positions"]
    next_position: Int32[jax.Array, " groups"]


class RecentBlock(NamedTuple):
    """The block of the responses' ring buffer that steps write to.

    Both arrays end with the axis that the step's elementwise products run over, as CPU vector units need.

    Attributes:
      keys: for each layer [groups, samples, kv_heads, head_dim, block].
      values: for each layer [groups, samples, kv_heads, block, head_dim].
    """

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]


class RingCache(NamedTuple):
    """The responses' ring buffer up to the last complete block; empty if it has one block only.

    Steps only read it: a step that wrote to it would make XLA transpose all of it, twice, on TPUs.

    Attributes:
      keys: for each layer [groups, samples, kv_heads, head_dim, ring], or the last two swapped (see
        `keys_by_position`).
      values: for each layer [groups, samples, kv_heads, ring, head_dim].
    """

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]


class SuffixCache(NamedTuple):
    """KV cache of the latest response tokens: a ring buffer, to which all samples write at one position.

    One position for all makes the write of a step one slice. Positions of their own would need a scatter,
    which accelerators do row by row.
    """

    recent: RecentBlock
    ring: RingCache


# Each spec holds for all arrays below it.
_BY_HEAD, _BY_ROW = cast(Any, P(ROWS, "tensor")), cast(Any, BATCH)
PREFIX_SPECS = PrefixCache(_BY_HEAD, _BY_HEAD, _BY_ROW, _BY_ROW)
# Shardings of what `prefill` returns.
PREFILLED_SPECS = (_BY_ROW, PREFIX_SPECS)
_BY_SAMPLE = cast(Any, P(ROWS, None, "tensor"))
SUFFIX_SPECS = SuffixCache(_BY_SAMPLE, _BY_SAMPLE)


def prefill(
    model: Qwen3VL, prompts: ModelInputs, *, adapters: bool, cache_dtype: str, mesh: Mesh | None
) -> tuple[Float[jax.Array, "groups hidden"], PrefixCache]:
    """Runs the prompts through the model, each from the beginning of its own row.

    Returns:
      Hidden states of the last prompt tokens, and the cache.
    """
    hidden, kv = model.forward(prompts, adapters=adapters, return_kv=True)
    assert kv is not None
    lengths = jnp.asarray(prompts.until)[:, :1]
    mask, last = jnp.arange(prompts.until.shape[1]) < lengths, lengths[:, 0] - 1
    last_hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    # Responses continue after the largest position on any axis, as in `inputs.response_positions`.
    top = jnp.max(jnp.where(mask, jnp.asarray(prompts.positions), -1), axis=(0, 2))
    # Heads come before positions, as the products of a step batch over heads. One array per layer instead of
    # a stack, since a step would have to slice each layer's cache out of it.
    keys, values = (
        tuple(to_cache(part.transpose(0, 2, 1, 3), cache_dtype) for part in side)
        for side in (kv.keys, kv.values)
    )
    if not keys_by_position(model.attention):
        keys = tuple(map(swap_last_axes, keys))
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
    """Allocates a cache for `length` tokens of every sample, rounded up to whole blocks."""
    # [groups, samples, kv_heads, ...] for keys, values and their scales.
    lead, size = (groups, num_samples, config.num_key_value_heads), config.head_dim
    stored = dtype if cache_dtype == "model" else jnp.dtype(cache_dtype)

    def empty(positions: int, *shape: int) -> tuple[CacheArray, ...]:
        scale = None if cache_dtype == "model" else jnp.zeros((*lead, positions), jnp.float32)
        return (CacheArray(jnp.zeros((*lead, *shape), stored), scale),) * config.num_hidden_layers

    block = min(length, BLOCK)
    ring = -(-length // block) * block
    recent = RecentBlock(empty(block, size, block), empty(block, block, size))
    if ring == block:
        # Short responses never complete a block: the recent block is all there is.
        return SuffixCache(recent, RingCache((), ()))
    keys = (ring, size) if keys_by_position(attention) else (size, ring)
    return SuffixCache(recent, RingCache(empty(ring, *keys), empty(ring, ring, size)))


def ring_size(suffix: SuffixCache) -> int:
    """Number of positions in the ring buffer."""
    values = suffix.ring.values or suffix.recent.values
    return values[0].data.shape[3]


def flush_block(suffix: SuffixCache, step: Int32[jax.Array, ""], attention: AttentionConfig) -> SuffixCache:
    """Copies the recent block to the ring buffer if the step before `step` completed it."""
    if not suffix.ring.values:
        return suffix
    block = suffix.recent.values[0].data.shape[3]
    # First position of the block that step - 1 wrote to.
    start = (step - 1) % ring_size(suffix) // block * block
    complete = step % block == 0

    # An incomplete block is written back unchanged: one program for all steps, and no branch around the
    # buffer.
    def put(axis: int, ring: jax.Array, new: jax.Array) -> jax.Array:
        old = jax.lax.dynamic_slice_in_dim(ring, start, block, axis=axis)
        return jax.lax.dynamic_update_slice_in_dim(ring, jnp.where(complete, new, old), start, axis=axis)

    def take(ring: CacheArray, new: CacheArray, axis: int = 3) -> CacheArray:
        scale = None if ring.scale is None else put(3, ring.scale, cast(jax.Array, new.scale))
        return CacheArray(put(axis, ring.data, new.data), scale)

    keys, keys_axis = suffix.recent.keys, 4
    if keys_by_position(attention):
        keys, keys_axis = tuple(map(swap_last_axes, keys)), 3
    ring = RingCache(
        tuple(take(*pair, axis=keys_axis) for pair in zip(suffix.ring.keys, keys, strict=True)),
        tuple(map(take, suffix.ring.values, suffix.recent.values)),
    )
    return suffix._replace(ring=ring)


def _write(cache: CacheArray, new: CacheArray, position: jax.Array, axis: int) -> CacheArray:
    """Writes a token's keys or values, whose `axis` has size 1, to a position of the recent block."""
    write = jax.lax.dynamic_update_slice_in_dim
    data = write(cache.data, new.data, position, axis=axis)
    if cache.scale is None or new.scale is None:
        return CacheArray(data)
    return CacheArray(data, write(cache.scale, new.scale[..., None], position, axis=3))


def decode_step(
    weights: DecodeWeights,
    config: TextConfig,
    tokens: Int32[jax.Array, "groups samples"],
    num_fed: Int32[jax.Array, " groups"],
    step: Int32[jax.Array, ""],
    prefix: PrefixCache,
    suffix: SuffixCache,
    *,
    cache_dtype: str,
    attention: AttentionConfig,
) -> tuple[Float[jax.Array, "groups samples hidden"], RecentBlock]:
    """Feeds one response token of every sample to the decoder.

    Args:
      tokens: one of every sample.
      num_fed: response tokens that are fed so far, with this one.
      step: number of this step; its keys and values go to position `step % ring` of the ring buffer, those of
        the tokens before to the positions before.

    Returns:
      Hidden states after the final norm, and the recent block with the token's keys and values.
    """
    groups, samples = tokens.shape
    mesh = attention.mesh
    rows, heads, size = groups * samples, config.num_key_value_heads, config.head_dim
    # Text has one position on all three axes; the samples of a group advance together.
    positions = jnp.broadcast_to((prefix.next_position + num_fed - 1)[:, None], (3, groups, samples))
    cos, sin = mrope_cos_sin(positions, config)
    ring, block = ring_size(suffix), suffix.recent.values[0].data.shape[3]
    write_at = step % block
    # Padding is on either side of a prompt and never within it, so a span describes its mask.
    prompt = KeySpan(jnp.argmax(prefix.mask, axis=1).astype(jnp.int32), prefix.mask.sum(1, dtype=jnp.int32))
    # The ring buffer still holds, at the positions of the current block, the tokens of the turn before. So of
    # the `kept` latest tokens it gives all that are older than the current block.
    kept = jnp.minimum(num_fed, ring)
    older = KeySpan((step + 1 - kept) % ring, jnp.maximum(kept - 1 - write_at, 0))
    recent_age = write_at - jnp.arange(block)
    if ring == block:
        # The recent block is the whole ring buffer: positions after this one hold the tokens of the turn
        # before.
        recent_age = recent_age % block
    # Steps since each position was written; older than the response means an earlier request of the slot.
    recent_mask = (recent_age >= 0) & (recent_age < num_fed[:, None])
    all_keys, all_values = [], []
    qkv_axis = head_axis(weights.layers[0].qkv.shape[2], mesh)

    def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
        return rms_norm(x.reshape(rows, -1), scale, config.rms_norm_eps)

    def added(x: jax.Array, change: jax.Array) -> jax.Array:
        # The residual stream is split by row over `data` alone: every device of `fsdp` and `tensor` needs
        # whole states of the same rows, since it holds a part of the weights.
        return x + constrain(change.reshape(x.shape), mesh, "data", None, None)

    x = constrain(weights.embedding[tokens], mesh, "data", None, None)
    # Unrolled: a scan over layers would take stacked caches apart and put them together in every step.
    for index, layer in enumerate(weights.layers):
        # [rows, kv_heads, group_dim]
        qkv = project(normed(x, layer.input_norm), layer.qkv, layer.qkv_lora)
        # Two constraints, first on the product, then on the rows: with the second alone XLA gathers the
        # weights.
        qkv = constrain(qkv, mesh, "data", "tensor", qkv_axis)
        qkv = constrain(qkv.reshape(groups, samples, heads, -1), mesh, ROWS, None, "tensor", None)
        q, k, v = jnp.split(qkv, [qkv.shape[-1] - 2 * size, qkv.shape[-1] - size], axis=-1)
        # q is [groups, samples, kv_heads, queries of a kv head, head_dim]. It is scaled instead of the
        # scores, which are far larger.
        q = rms_norm(q.reshape(groups, samples, heads, -1, size), layer.q_norm, config.rms_norm_eps)
        q = rotate(q, cos[:, :, None], sin[:, :, None]) * size**-0.5
        k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), cos, sin)
        key, value = to_cache(k, cache_dtype), to_cache(v, cache_dtype)
        recent, completed = suffix
        keys = _write(recent.keys[index], key._replace(data=key.data[..., None]), write_at, axis=4)
        values = _write(recent.values[index], value._replace(data=value.data[..., None, :]), write_at, axis=3)
        parts = [
            attend_prefix(q, prefix.keys[index], prefix.values[index], prompt, attention),
            attend_recent(q, keys, values, recent_mask, attention),
        ]
        if completed.keys:
            parts.append(attend_span(q, completed.keys[index], completed.values[index], older, attention))
        mixed = merge(*parts)
        # Attention has the rows split over `fsdp` as well. The matrix after it is split over `fsdp` by its
        # outputs, and needs all rows of a `data` part on every device.
        mixed = constrain(mixed.astype(x.dtype).reshape(rows, -1), mesh, "data", "tensor")
        x = added(x, project(mixed, layer.out, layer.out_lora))
        # [rows, parts, 2, part_dim]
        gate_up = project(normed(x, layer.post_norm), layer.gate_up)
        # Split like the inputs of `down`, so that silu(gate) * up stays on its device.
        gate_up = constrain(gate_up, mesh, "data", output_axes(layer.down.shape[0], mesh), None, None)
        gated = (jax.nn.silu(gate_up[:, :, 0]) * gate_up[:, :, 1]).reshape(rows, -1)
        x = added(x, gated @ layer.down)
        all_keys.append(keys)
        all_values.append(values)
    return rms_norm(x, weights.norm, config.rms_norm_eps), RecentBlock(tuple(all_keys), tuple(all_values))
