"""Attention of the engine: over a prompt's cache and over a lane's own, in parts merged by log-sum-exp.

XLA computes every part and is the reference. On TPU the Pallas kernel of `kernel` computes the parts that a
step only reads: the prompts, and the completed blocks of the responses. Everything here is local to a shard.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Float32, Int32

from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes
from rmsweb_jax.qwen.attention import TPU_LANES, AttentionConfig

# Finite: a query without a visible key gets a mixture that `merge` weighs by exp(-1e30 - max) = 0, and no
# NaN.
_MASKED = -1e30
# Scores and mixtures are summed in float32, and rounded only after the parts are merged.
_IN_FLOAT32: dict[str, Any] = {"preferred_element_type": jnp.float32}
# Positions of a prompt that one turn of the loop over its cache reads: the first that divides its width.
_KEYS = (512, 256, 128)


class KeySpan(NamedTuple):
    """The positions of a ring buffer that each row attends to: `count` of them, beginning at `start`."""

    start: Int32[jax.Array, " rows"]
    count: Int32[jax.Array, " rows"]

    def mask(self, positions: int) -> Bool[jax.Array, "rows positions"]:
        return (jnp.arange(positions) - self.start[:, None]) % positions < self.count[:, None]


class PartialAttention(NamedTuple):
    """Softmax attention over some of the keys, before normalisation.

    Attributes:
      top: largest score.
      total: sum of exp(score - top).
      mixed: sum of exp(score - top) * value.
    """

    top: Float32[jax.Array, "*queries"]
    total: Float32[jax.Array, "*queries"]
    mixed: Float32[jax.Array, "*queries head_dim"]


def join(*parts: PartialAttention) -> PartialAttention:
    """Combines partial attentions into that over the keys of all of them.

    Source: the merge step of flash-decoding (Dao et al. 2023).
    """
    top = functools.reduce(jnp.maximum, (part.top for part in parts))
    scales = [jnp.exp(part.top - top) for part in parts]
    total = functools.reduce(jnp.add, map(jnp.multiply, (part.total for part in parts), scales))
    scaled = [part.mixed * scale[..., None] for part, scale in zip(parts, scales, strict=True)]
    return PartialAttention(top, total, functools.reduce(jnp.add, scaled))


def merge(*parts: PartialAttention) -> Float32[jax.Array, "*queries head_dim"]:
    """Combines partial attentions into attention over the keys of all of them."""
    # `total` is not 0: the token that a step feeds is visible, and in free lanes, whose result is not used,
    # masked keys count.
    joined = join(*parts)
    return joined.mixed / joined.total[..., None]


def keys_by_position(attention: AttentionConfig) -> bool:
    """True if caches hold keys as [..., positions, head_dim], the layout that the kernel reads.

    Otherwise they hold [..., head_dim, positions]: on CPUs the product with a few queries then takes two
    thirds of the time.
    """
    return attention.backend == "pallas"


def attend_part(
    q: Float[jax.Array, "*lead queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    mask: Bool[jax.Array, "*mask_lead #queries positions"],
) -> PartialAttention:
    """Computes attention over cached keys by XLA.

    Args:
      q: scaled queries.
      keys: [*lead, head_dim, positions]; leading axes may be 1 here, in `values` and in `mask`.
      values: [*lead, positions, head_dim].
      mask: visible positions; 1 in place of `queries` if they are the same for all.
    """
    # m: queries, d: head_dim, p: positions.
    scores = jnp.einsum("...md,...dp->...mp", q, keys.data.astype(q.dtype), **_IN_FLOAT32)
    # Scales multiply the small score and weight matrices, so that the cache itself is read in 8 bits.
    if keys.scale is not None:
        scores = scores * keys.scale[..., None, :]
    scores = jnp.where(mask, scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[..., None, :]
    mixed = jnp.einsum(
        "...mp,...pd->...md", scaled.astype(q.dtype), values.data.astype(q.dtype), **_IN_FLOAT32
    )
    return PartialAttention(top, weights.sum(-1), mixed)


def attend_prompt(
    q: Float[jax.Array, "prompts kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    visible: Int32[jax.Array, " prompts"],
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention over the beginning of each prompt's cache, reading no block behind it.

    Args:
      q: scaled queries.
      keys, values: caches of the prompts, see `cache.PromptSlots`.
      visible: number of positions, from 0, that the queries of a prompt see.
    """
    positions, size = values.data.shape[-2:]
    swapped = keys_by_position(attention)
    if swapped and positions % TPU_LANES == 0 and size % TPU_LANES == 0:
        # Imported here: the kernel's module takes a second to import, and most platforms never run it.
        from rmsweb_jax.decoding.kernel import flash_decode

        mixed, log_total = flash_decode(
            q, keys, values, jnp.zeros_like(visible), visible, interpret=attention.interpret
        )
        # The kernel normalises, so its part has a total of 1 under the log-sum-exp in place of the maximum.
        return PartialAttention(log_total, jnp.ones_like(log_total), mixed)
    keys_axis = 2 if swapped else 3
    # The scores of a chunk's many queries should stay in a core's cache.
    blocks = _KEYS[1:] if q.shape[2] > _KEYS[1] else _KEYS
    block = next((size for size in blocks if positions % size == 0), positions)
    empty = jnp.zeros(q.shape[:-1], jnp.float32)
    none = PartialAttention(empty + _MASKED, empty, jnp.zeros(q.shape, jnp.float32))
    # Prompts with something to see first; the loop ends with the last of them.
    order = jnp.argsort(visible == 0, stable=True)

    def prompt(number: Any, found: PartialAttention) -> PartialAttention:
        at = order[number]

        def part(index: Any) -> PartialAttention:
            def cut(x: jax.Array, axis: int) -> jax.Array:
                start, size = [at, *[0] * (x.ndim - 1)], [1, *x.shape[1:]]
                start[axis], size[axis] = index * block, block
                return jax.lax.dynamic_slice(x, start, size)[0]

            def cached(cache: CacheArray, axis: int) -> CacheArray:
                return CacheArray(cut(cache.data, axis), None if cache.scale is None else cut(cache.scale, 2))

            own = cached(keys, keys_axis)
            mask = (index * block + jnp.arange(block) < visible[at])[None, None]
            return attend_part(q[at], swap_last_axes(own) if swapped else own, cached(values, 2), mask)

        count = (visible[at] + block - 1) // block
        mine = (
            part(0)
            if block == positions
            else jax.lax.fori_loop(
                0, count, lambda index, seen: join(seen, part(index)), jax.tree.map(lambda x: x[0], none)
            )
        )
        return jax.tree.map(lambda all, one: all.at[at].set(one), found, mine)

    return jax.lax.fori_loop(0, jnp.sum(visible > 0), prompt, none)


def attend_ring(
    q: Float[jax.Array, "lanes kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    span: KeySpan,
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention over the completed blocks of each lane's ring buffer.

    Args:
      keys, values: see `cache.RingCache`.
    """
    positions, size = values.data.shape[-2:]
    if not keys_by_position(attention) or positions % TPU_LANES or size % TPU_LANES:
        if keys_by_position(attention):
            keys = swap_last_axes(keys)
        return attend_part(q, keys, values, span.mask(positions)[:, None, None])
    from rmsweb_jax.decoding.kernel import flash_decode

    mixed, log_total = flash_decode(q, keys, values, *span, interpret=attention.interpret)
    return PartialAttention(log_total, jnp.ones_like(log_total), mixed)


def attend_recent(
    q: Float[jax.Array, "lanes kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    mask: Bool[jax.Array, "lanes block"],
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention over the block of the responses that is being written.

    Args:
      keys: [lanes, kv_heads, head_dim, block].
      values: [lanes, kv_heads, block, head_dim].
    """
    if attention.backend == "pallas":
        # On TPU the elementwise products below would go through memory in float32.
        return attend_part(q, keys, values, mask[:, None, None])
    # Elementwise: for a matrix product CPUs would copy the caches, which the step has just written into.
    # [lanes, kv_heads, queries, head_dim, block], summed over head_dim.
    scores = (q[..., None] * keys.data.astype(q.dtype)[:, :, None]).astype(jnp.float32).sum(-2)
    if keys.scale is not None:
        scores = scores * keys.scale[:, :, None]
    scores = jnp.where(mask[:, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[:, :, None]
    # [lanes, kv_heads, queries, block, head_dim], summed over the block.
    mixed = (scaled[..., None] * values.data[:, :, None].astype(jnp.float32)).sum(-2)
    return PartialAttention(top, weights.sum(-1), mixed)
