"""Tree attention as a loop over the blocks that run, for any platform."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rmsweb_jax.qwen.attention import Keys, Queries
from rmsweb_jax.qwen.tree_attention.rule import MASKED, Entry, TreeKernel, block_table, visible_in_block


def _heads_first(x: jax.Array, kv_heads: int) -> jax.Array:
    """[rows, tokens, heads, head_dim] as [rows, kv_heads, group, tokens, head_dim]."""
    grouped = x.reshape(*x.shape[:2], kv_heads, -1, x.shape[-1])
    return grouped.transpose(0, 2, 3, 1, 4)


def _tokens_first(x: jax.Array) -> jax.Array:
    """The inverse of `_heads_first`."""
    x = x.transpose(0, 3, 1, 2, 4)
    return x.reshape(*x.shape[:2], -1, x.shape[-1])


def _take(x: jax.Array, row: Any, place: Any, block: int) -> jax.Array:
    """One block of tokens of one row: axis 3 of [rows, kv_heads, group, tokens, ...]."""
    start = (row, 0, 0, place * block, *(0,) * (x.ndim - 4))
    return jax.lax.dynamic_slice(x, start, (1, *x.shape[1:3], block, *x.shape[4:]))[0]


def _put(x: jax.Array, part: jax.Array, row: Any, place: Any, block: int) -> jax.Array:
    start = (row, 0, 0, place * block, *(0,) * (x.ndim - 4))
    return jax.lax.dynamic_update_slice(x, part[None].astype(x.dtype), start)


def _loop_mask(entry: Entry, until: jax.Array, block: int) -> jax.Array:
    ends = jax.lax.dynamic_slice(until, (entry.row, entry.key * block), (1, block))
    return visible_in_block(entry, ends, block).T


def forward(q: Queries, k: Keys, v: Keys, until: Any, kernel: TreeKernel) -> tuple[Any, Any]:
    kv_heads, block = k.shape[2], kernel.block
    table = block_table(until, block)
    qs, ks, vs = (_heads_first(x, kv_heads) for x in (q, k, v))
    mixed = jnp.zeros(qs.shape, jnp.float32)
    top = jnp.full(qs.shape[:-1], MASKED, jnp.float32)

    def step(number: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        entry = Entry.unpack(table.entries[number])
        query, key = (entry.row, entry.query, block), (entry.row, entry.key, block)
        mixed, top, total = (_take(x, *query) for x in state)
        scores = jnp.einsum(
            "kgqd,kxsd->kgqs", _take(qs, *query), _take(ks, *key), preferred_element_type=jnp.float32
        )
        scores = jnp.where(_loop_mask(entry, until, block), scores * q.shape[-1] ** -0.5, MASKED)
        highest = jnp.maximum(top, scores.max(-1))
        weights, factor = jnp.exp(scores - highest[..., None]), jnp.exp(top - highest)
        added = jnp.einsum(
            "kgqs,kxsd->kgqd", weights.astype(v.dtype), _take(vs, *key), preferred_element_type=jnp.float32
        )
        parts = (mixed * factor[..., None] + added, highest, total * factor + weights.sum(-1))
        mixed, top, total = (_put(x, part, *query) for x, part in zip(state, parts, strict=True))
        return mixed, top, total

    state = (mixed, top, jnp.zeros_like(top))
    mixed, top, total = jax.lax.fori_loop(0, table.count, step, state)
    return _tokens_first(mixed / total[..., None]).astype(q.dtype), top + jnp.log(total)


def backward(
    q: Queries, k: Keys, v: Keys, until: Any, grad: Any, log_total: Any, delta: Any, kernel: TreeKernel
) -> tuple[Any, Any, Any]:
    kv_heads, block, scale = k.shape[2], kernel.block, q.shape[-1] ** -0.5
    table = block_table(until, block)
    qs, ks, vs, grads = (_heads_first(x, kv_heads) for x in (q, k, v, grad))

    def step(number: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        entry = Entry.unpack(table.entries[number])
        query, key = (entry.row, entry.query, block), (entry.row, entry.key, block)
        q, grad, log, own = (_take(x, *query) for x in (qs, grads, log_total, delta))
        k, v = (_take(x, *key)[:, 0] for x in (ks, vs))
        product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
        mask = _loop_mask(entry, until, block)
        scores = jnp.where(mask, product("kgqd,ksd->kgqs", q, k) * scale, MASKED)
        weights = jnp.exp(scores - log[..., None])
        scores_grad = weights * (product("kgqd,ksd->kgqs", grad, v) - own[..., None]) * scale
        scores_grad = scores_grad.astype(q.dtype)
        dq, dk, dv = state
        dq = _put(dq, _take(dq, *query) + product("kgqs,ksd->kgqd", scores_grad, k), *query)
        dk = _put(dk, _take(dk, *key) + product("kgqs,kgqd->ksd", scores_grad, q)[:, None], *key)
        added = product("kgqs,kgqd->ksd", weights.astype(grad.dtype), grad)
        dv = _put(dv, _take(dv, *key) + added[:, None], *key)
        return dq, dk, dv

    state = (jnp.zeros(qs.shape), jnp.zeros(ks.shape), jnp.zeros(vs.shape))
    dq, dk, dv = (_tokens_first(x) for x in jax.lax.fori_loop(0, table.count, step, state))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)
