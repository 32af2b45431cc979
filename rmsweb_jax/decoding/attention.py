"""Attention of single decoding steps, computed in parts that are merged by log-sum-exp.

XLA computes every part and is the reference. On TPU the Pallas kernel of `kernel` computes the parts that a
step only reads: the prompt, and the completed blocks of the responses.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float, Float32, Int32

from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes
from rmsweb_jax.qwen3_vl.attention import TPU_LANES, AttentionConfig
from rmsweb_jax.training.mesh import ROWS

# Finite: a query without a visible key gets a mixture that `merge` weighs by exp(-1e30 - max) = 0, and no
# NaN.
_MASKED = -1e30
# Scores and mixtures are summed in float32, and rounded only after the parts are merged.
_IN_FLOAT32: dict[str, Any] = {"preferred_element_type": jnp.float32}


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


def merge(*parts: PartialAttention) -> Float32[jax.Array, "*queries head_dim"]:
    """Combines partial attentions into attention over the keys of all of them.

    Source: the merge step of flash-decoding (Dao et al. 2023).
    """
    # At least one key is visible in some part (the token that the step feeds), so `total` is not 0.
    top = functools.reduce(jnp.maximum, (part.top for part in parts))
    scales = [jnp.exp(part.top - top) for part in parts]
    total = functools.reduce(jnp.add, map(jnp.multiply, (part.total for part in parts), scales))
    scaled = [part.mixed * scale[..., None] for part, scale in zip(parts, scales, strict=True)]
    return functools.reduce(jnp.add, scaled) / total[..., None]


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
    mask: Bool[jax.Array, "*mask_lead positions"],
) -> PartialAttention:
    """Computes attention over cached keys by XLA.

    Args:
      q: scaled queries.
      keys: [*lead, head_dim, positions]; leading axes may be 1 here, in `values` and in `mask`.
      values: [*lead, positions, head_dim].
      mask: visible positions, the same for all queries.
    """
    # m: queries, d: head_dim, p: positions.
    scores = jnp.einsum("...md,...dp->...mp", q, keys.data.astype(q.dtype), **_IN_FLOAT32)
    # Scales multiply the small score and weight matrices, so that the cache itself is read in 8 bits.
    if keys.scale is not None:
        scores = scores * keys.scale[..., None, :]
    scores = jnp.where(mask[..., None, :], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[..., None, :]
    mixed = jnp.einsum(
        "...mp,...pd->...md", scaled.astype(q.dtype), values.data.astype(q.dtype), **_IN_FLOAT32
    )
    return PartialAttention(top, weights.sum(-1), mixed)


def attend_span(
    q: Float[jax.Array, "rows *lead kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    span: KeySpan,
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention over a span of each row's positions, by the kernel where its shapes allow that.

    Args:
      q: scaled queries; rows are split over `data` and `fsdp`, heads over `tensor`.
      keys: [rows, *lead, kv_heads, head_dim, positions], or the last two swapped (see `keys_by_position`).
      values: [rows, *lead, kv_heads, positions, head_dim].
    """
    positions, size = values.data.shape[-2:]
    if not keys_by_position(attention) or positions % TPU_LANES or size % TPU_LANES:
        if keys_by_position(attention):
            keys = swap_last_axes(keys)
        mask = span.mask(positions)
        return attend_part(q, keys, values, mask.reshape(-1, *[1] * (q.ndim - 3), positions))
    # Imported here: the kernel's module takes a second to import, and most platforms never run it.
    from rmsweb_jax.decoding.kernel import flash_decode

    def local(q: jax.Array, keys: CacheArray, values: CacheArray, span: KeySpan) -> PartialAttention:
        lead = q.shape[:-3]

        def flat(x: jax.Array) -> jax.Array:
            return x.reshape(-1, *x.shape[len(lead) :])

        # The samples of a prompt have one span: their lengths differ, but they were all begun at one step.
        repeats = flat(q).shape[0] // len(span.start)
        starts, counts = (jnp.repeat(x, repeats) for x in span)
        keys, values = jax.tree.map(flat, (keys, values))
        out = flash_decode(flat(q), keys, values, starts, counts, interpret=attention.interpret)
        mixed, log_total = (x.reshape(*lead, *x.shape[1:]) for x in out)
        # The kernel normalises, so its part has a total of 1 under the log-sum-exp in place of the maximum.
        return PartialAttention(log_total, jnp.ones_like(log_total), mixed)

    if attention.mesh is None:
        return local(q, keys, values, span)
    by_head = P(ROWS, *[None] * (q.ndim - 4), "tensor")
    sharded = jax.shard_map(
        local,
        mesh=attention.mesh,
        in_specs=(by_head, by_head, by_head, P(ROWS)),
        out_specs=by_head,
        # The kernel's outputs carry no replication types.
        check_vma=False,
    )
    return sharded(q, keys, values, span)


def attend_prefix(
    q: Float[jax.Array, "groups samples kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    span: KeySpan,
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention of all samples of a prompt over its one prefix cache.

    Args:
      keys, values: caches of the prompts, one row each, as in `attend_span`.
    """
    groups, samples, heads, query, size = q.shape
    # The samples' queries become one matrix, so that a prompt's keys are read once for all of them.
    rows = q.transpose(0, 2, 1, 3, 4).reshape(groups, heads, samples * query, size)
    part = attend_span(rows, keys, values, span, attention)
    # Back to [groups, samples, kv_heads, queries, ...].
    return PartialAttention(
        *(jnp.moveaxis(x.reshape(groups, heads, samples, query, *x.shape[3:]), 2, 1) for x in part)
    )


def attend_recent(
    q: Float[jax.Array, "groups samples kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    mask: Bool[jax.Array, "groups block"],
    attention: AttentionConfig,
) -> PartialAttention:
    """Computes attention over the block of the responses that is being written.

    Args:
      keys: [groups, samples, kv_heads, head_dim, block].
      values: [groups, samples, kv_heads, block, head_dim].
    """
    if attention.backend == "pallas":
        # On TPU the elementwise products below would go through memory in float32.
        return attend_part(q, keys, values, mask[:, None, None])
    # Elementwise: for a matrix product CPUs would copy the caches, which the step has just written into.
    # [groups, samples, kv_heads, queries, head_dim, block], summed over head_dim.
    scores = (q[..., None] * keys.data.astype(q.dtype)[:, :, :, None]).astype(jnp.float32).sum(-2)
    if keys.scale is not None:
        scores = scores * keys.scale[:, :, :, None]
    scores = jnp.where(mask[:, None, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[:, :, :, None]
    # [groups, samples, kv_heads, queries, block, head_dim], summed over the block.
    mixed = (scaled[..., None] * values.data[:, :, :, None].astype(jnp.float32)).sum(-2)
    return PartialAttention(top, weights.sum(-1), mixed)
