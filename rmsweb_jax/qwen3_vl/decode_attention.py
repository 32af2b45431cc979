"""Attention of single decoding steps, in parts that are merged by log-sum-exp.

XLA computes every part, and is the reference; on TPU the parts that a step only reads are left to a kernel
(see `decode_kernel`).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import ROWS
from rmsweb_jax.qwen3_vl.attention import LANES, AttentionConfig
from rmsweb_jax.qwen3_vl.stored import Stored, turned

_MASKED = -1e30
_IN_FLOAT32: dict[str, Any] = {"preferred_element_type": jnp.float32}


class Span(NamedTuple):
    """Places of a ring that are attended to: `count` [N] of them from `start` [N] on, both int32."""

    start: jax.Array
    count: jax.Array

    def mask(self, places: int) -> jax.Array:
        """[N, places] bool."""
        return (jnp.arange(places) - self.start[:, None]) % places < self.count[:, None]


class Part(NamedTuple):
    """Softmax attention over some of the keys, before normalisation."""

    top: jax.Array  # [...] largest score
    total: jax.Array  # [...] sum of exp(score - top)
    mixed: jax.Array  # [..., D] sum of exp(score - top) * value


def merge(*parts: Part) -> jax.Array:
    """Attention over the keys of all parts, [..., D] float32."""
    top = functools.reduce(jnp.maximum, (part.top for part in parts))
    scales = [jnp.exp(part.top - top) for part in parts]
    total = functools.reduce(jnp.add, map(jnp.multiply, (part.total for part in parts), scales))
    scaled = [part.mixed * scale[..., None] for part, scale in zip(parts, scales, strict=True)]
    return functools.reduce(jnp.add, scaled) / total[..., None]


def keys_by_place(attention: AttentionConfig) -> bool:
    """Whether caches keep keys [..., P, D], as the kernel reads them.

    Others keep them [..., D, P]: on CPUs the product with a few queries then takes two thirds of the time.
    """
    return attention.backend == "splash"


def attend_part(q: jax.Array, keys: Stored, values: Stored, mask: jax.Array) -> Part:
    """q [..., M, D], keys [..., D, P], values [..., P, D], mask [..., P] (leading axes may be 1)."""
    scores = jnp.einsum("...md,...dp->...mp", q, keys.data.astype(q.dtype), **_IN_FLOAT32)
    if keys.scale is not None:
        scores = scores * keys.scale[..., None, :]
    scores = jnp.where(mask[..., None, :], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[..., None, :]
    mixed = jnp.einsum(
        "...mp,...pd->...md", scaled.astype(q.dtype), values.data.astype(q.dtype), **_IN_FLOAT32
    )
    return Part(top, weights.sum(-1), mixed)


def attend_span(q: jax.Array, keys: Stored, values: Stored, span: Span, attention: AttentionConfig) -> Part:
    """Over a span of each row's places, by the kernel where there is one.

    Args:
      q: [N, ..., H, M, D], N split over `data` and `fsdp` and H over `tensor`.
      keys: [N, ..., H, D, P], or [N, ..., H, P, D] by place (see `keys_by_place`).
      values: [N, ..., H, P, D].
    """
    places, size = values.data.shape[-2:]
    if not keys_by_place(attention) or places % LANES or size % LANES:
        if keys_by_place(attention):
            keys = turned(keys)
        mask = span.mask(places)
        return attend_part(q, keys, values, mask.reshape(-1, *[1] * (q.ndim - 3), places))
    # Imported where it is used: the kernel's module costs a second, and most platforms never run it.
    from rmsweb_jax.qwen3_vl.decode_kernel import flash_decode

    def local(q: jax.Array, keys: Stored, values: Stored, span: Span) -> Part:
        lead = q.shape[:-3]

        def flat(x: jax.Array) -> jax.Array:
            return x.reshape(-1, *x.shape[len(lead) :])

        each = flat(q).shape[0] // len(span.start)
        starts, counts = (jnp.repeat(x, each) for x in span)
        keys, values = jax.tree.map(flat, (keys, values))
        found = flash_decode(flat(q), keys, values, starts, counts, interpret=attention.interpret)
        mixed, log_total = (x.reshape(*lead, *x.shape[1:]) for x in found)
        return Part(log_total, jnp.ones_like(log_total), mixed)

    if attention.mesh is None:
        return local(q, keys, values, span)
    by_head = P(ROWS, *[None] * (q.ndim - 4), "tensor")
    # The kernel's outputs carry no replication types.
    split = jax.shard_map(
        local,
        mesh=attention.mesh,
        in_specs=(by_head, by_head, by_head, P(ROWS)),
        out_specs=by_head,
        check_vma=False,
    )
    return split(q, keys, values, span)


def attend_prefix(q: jax.Array, keys: Stored, values: Stored, span: Span, attention: AttentionConfig) -> Part:
    """q [G, K, Hkv, Q, D], keys and values of G prompts as in `attend_span`."""
    groups, samples, heads, query, size = q.shape
    rows = q.transpose(0, 2, 1, 3, 4).reshape(groups, heads, samples * query, size)
    part = attend_span(rows, keys, values, span, attention)
    return Part(*(jnp.moveaxis(x.reshape(groups, heads, samples, query, *x.shape[3:]), 2, 1) for x in part))


def attend_recent(
    q: jax.Array, keys: Stored, values: Stored, mask: jax.Array, attention: AttentionConfig
) -> Part:
    """q [G, K, Hkv, Q, D], keys [G, K, Hkv, D, B], values [G, K, Hkv, B, D], mask [G, B]."""
    if attention.backend == "splash":
        # Elementwise products would go through memory in float32.
        return attend_part(q, keys, values, mask[:, None, None])
    # For a matrix product CPUs would copy the caches, which the step has just written into.
    scores = (q[..., None] * keys.data.astype(q.dtype)[:, :, :, None]).astype(jnp.float32).sum(-2)
    if keys.scale is not None:
        scores = scores * keys.scale[:, :, :, None]
    scores = jnp.where(mask[:, None, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    scaled = weights if values.scale is None else weights * values.scale[:, :, :, None]
    mixed = (scaled[..., None] * values.data[:, :, :, None].astype(jnp.float32)).sum(-2)
    return Part(top, weights.sum(-1), mixed)
