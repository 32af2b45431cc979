"""Tree attention as GPU kernels in Pallas' Triton dialect, forward and backward.

A program computes one block of queries of a head, or one block of keys of a key head, over its own list of
blocks: first those without a mask, then those with one. Online softmax as in FlashAttention-2 (Dao 2023).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Int32

from rmsweb_jax.qwen.attention import Keys, Queries
from rmsweb_jax.qwen.tree_attention.rule import MASKED, Ends, TreeKernel, blocks_that_run

# Warps of a program, and the largest block of keys: the gradients of keys and of values, both in float32,
# stay in the registers of an H100.
_WARPS, _KEY_BLOCK = 8, 64


class _Lists(NamedTuple):
    """The blocks over which each block sums.

    Attributes:
      blocks: those without a mask, those with one, then those that do not run; both in ascending order.
      whole: how many need no mask.
      count: how many run.
    """

    blocks: Int32[jax.Array, "rows blocks blocks"]
    whole: Int32[jax.Array, "rows blocks"]
    count: Int32[jax.Array, "rows blocks"]


def _lists(until: Ends, block: int, by_key: bool = False) -> _Lists:
    runs, whole = blocks_that_run(until, block)
    if by_key:
        runs, whole = jnp.swapaxes(runs, 1, 2), jnp.swapaxes(whole, 1, 2)
    order = jnp.argsort(jnp.where(whole, 0, jnp.where(runs, 1, 2)), axis=2, stable=True)
    return _Lists(order.astype(jnp.int32), whole.sum(2, dtype=jnp.int32), runs.sum(2, dtype=jnp.int32))


def _sum_over_blocks(add: Any, state: Any, blocks_ref: Any, whole_ref: Any, count_ref: Any) -> Any:
    """Calls `add(masked, block, state)` for the blocks of a list."""

    def step(masked: bool) -> Any:
        return lambda number, state: add(masked, blocks_ref[number], state)

    whole = whole_ref[0]
    state = jax.lax.fori_loop(0, whole, step(False), state)
    return jax.lax.fori_loop(whole, count_ref[0], step(True), state)


def _visible(query: Any, key: Any, until_ref: Any, block: int) -> jax.Array:
    """The rule in one block, [queries, keys]."""
    queries = query * block + jnp.arange(block)[:, None]
    keys = key * block + jnp.arange(block)[None, :]
    return (keys <= queries) & (queries < until_ref[pl.ds(key * block, block)][None, :])


def _dot(a: jax.Array, b: jax.Array, trans_a: bool = False, trans_b: bool = False) -> jax.Array:
    return triton.dot(a.T if trans_a else a, b.T if trans_b else b)


def _forward_kernel(
    blocks_ref: Any,
    whole_ref: Any,
    count_ref: Any,
    until_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    out_ref: Any,
    log_total_ref: Any,
) -> None:
    block, size = q_ref.shape
    place, q = pl.num_programs(1) - 1 - pl.program_id(1), q_ref[...]

    def add(masked: bool, key: Any, state: Any) -> Any:
        mixed, top, total = state
        own = pl.ds(key * block, block)
        scores = _dot(q, k_ref[own], trans_b=True) * size**-0.5
        if masked:
            scores = jnp.where(_visible(place, key, until_ref, block), scores, MASKED)
        highest = jnp.maximum(top, scores.max(1))
        weights, factor = jnp.exp(scores - highest[:, None]), jnp.exp(top - highest)
        v = v_ref[own]
        mixed = mixed * factor[:, None] + _dot(weights.astype(v.dtype), v)
        return mixed, highest, total * factor + weights.sum(1)

    # The diagonal is the last block of a list, so that every query has seen a key in the end.
    state = (jnp.zeros((block, size)), jnp.full(block, MASKED), jnp.zeros(block))
    mixed, top, total = _sum_over_blocks(add, state, blocks_ref, whole_ref, count_ref)
    out_ref[...] = (mixed / total[:, None]).astype(out_ref.dtype)
    log_total_ref[...] = top + jnp.log(total)


def _gradients(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    grad: jax.Array,
    log_total: jax.Array,
    delta: jax.Array,
    mask: Any,
) -> tuple[jax.Array, jax.Array]:
    """Attention weights of a block and the gradient of its unscaled scores, both [queries, keys]."""
    scale = q.shape[1] ** -0.5
    weights = jnp.exp(_dot(q, k, trans_b=True) * scale - log_total[:, None])
    if mask is not None:
        weights = jnp.where(mask, weights, 0.0)
    scores_grad = weights * (_dot(grad, v, trans_b=True) - delta[:, None]) * scale
    return weights.astype(grad.dtype), scores_grad.astype(q.dtype)


def _query_kernel(
    blocks_ref: Any,
    whole_ref: Any,
    count_ref: Any,
    until_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    grad_ref: Any,
    log_total_ref: Any,
    delta_ref: Any,
    dq_ref: Any,
) -> None:
    block, _ = q_ref.shape
    place = pl.num_programs(1) - 1 - pl.program_id(1)
    q, grad, log_total, delta = q_ref[...], grad_ref[...], log_total_ref[...], delta_ref[...]

    def add(masked: bool, key: Any, dq: Any) -> Any:
        own = pl.ds(key * block, block)
        k = k_ref[own]
        mask = _visible(place, key, until_ref, block) if masked else None
        _, scores_grad = _gradients(q, k, v_ref[own], grad, log_total, delta, mask)
        return dq + _dot(scores_grad, k)

    dq = _sum_over_blocks(add, jnp.zeros(q.shape), blocks_ref, whole_ref, count_ref)
    dq_ref[...] = dq.astype(dq_ref.dtype)


def _key_kernel(
    blocks_ref: Any,
    whole_ref: Any,
    count_ref: Any,
    until_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    grad_ref: Any,
    log_total_ref: Any,
    delta_ref: Any,
    dk_ref: Any,
    dv_ref: Any,
) -> None:
    block, _ = k_ref.shape
    place, k, v = pl.program_id(1), k_ref[...], v_ref[...]

    def add(masked: bool, query: Any, state: Any) -> Any:
        own = pl.ds(query * block, block)
        mask = _visible(query, place, until_ref, block) if masked else None

        def add_head(head: Any, state: Any) -> Any:
            dk, dv = state
            q, grad = q_ref[own, head], grad_ref[own, head]
            log_total, delta = log_total_ref[head, own], delta_ref[head, own]
            weights, scores_grad = _gradients(q, k, v, grad, log_total, delta, mask)
            return dk + _dot(scores_grad, q, trans_a=True), dv + _dot(weights, grad, trans_a=True)

        return jax.lax.fori_loop(0, q_ref.shape[1], add_head, state)

    state = (jnp.zeros(k.shape), jnp.zeros(k.shape))
    dk, dv = _sum_over_blocks(add, state, blocks_ref, whole_ref, count_ref)
    dk_ref[...], dv_ref[...] = dk.astype(dk_ref.dtype), dv.astype(dv_ref.dtype)


def _list_specs(blocks: int, length: int, place: Any) -> list[pl.BlockSpec]:
    """Specs of a program's list, and of the ends of its row."""
    one = pl.BlockSpec((None, 1), lambda head, step, row: (row, place(step)))
    whole = pl.BlockSpec((None, None, blocks), lambda head, step, row: (row, place(step), 0))
    return [whole, one, one, pl.BlockSpec((None, length), lambda head, step, row: (row, 0))]


def _call(body: Any, grid: Any, in_specs: Any, out: Any, kernel: TreeKernel) -> Any:
    return pl.pallas_call(
        body,
        grid=grid,
        in_specs=in_specs,
        out_specs=[spec for spec, _ in out],
        out_shape=[shape for _, shape in out],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=2),
        interpret=kernel.interpret,
        name=body.__name__.strip("_"),
    )


def _query_specs(
    blocks: int, block: int, length: int, group: int, size: int
) -> tuple[list[pl.BlockSpec], pl.BlockSpec, pl.BlockSpec, pl.BlockSpec]:
    """Specs of a program for one block of queries: list and ends, queries, keys, sums."""

    # The last queries have the longest lists, and start first.
    def place(step: Any) -> Any:
        return blocks - 1 - step

    query = pl.BlockSpec((None, block, None, size), lambda head, step, row: (row, place(step), head, 0))
    key = pl.BlockSpec((None, length, None, size), lambda head, step, row: (row, 0, head // group, 0))
    sums = pl.BlockSpec(
        (None, None, None, block), lambda head, step, row: (row, head // group, head % group, place(step))
    )
    return _list_specs(blocks, length, place), query, key, sums


def forward(q: Queries, k: Keys, v: Keys, until: Any, kernel: TreeKernel) -> tuple[Any, Any]:
    rows, length, heads, size = q.shape
    kv_heads, block = k.shape[2], kernel.block
    group, blocks = heads // kv_heads, length // block
    lists, query, key, sums = _query_specs(blocks, block, length, group, size)
    out = [
        (query, jax.ShapeDtypeStruct(q.shape, q.dtype)),
        (sums, jax.ShapeDtypeStruct((rows, kv_heads, group, length), jnp.float32)),
    ]
    run = _call(_forward_kernel, (heads, blocks, rows), [*lists, query, key, key], out, kernel)
    out, log_total = run(*_lists(until, block), until, q, k, v)
    return out, log_total


def backward(
    q: Queries, k: Keys, v: Keys, until: Any, grad: Any, log_total: Any, delta: Any, kernel: TreeKernel
) -> tuple[Any, Any, Any]:
    rows, length, heads, size = q.shape
    kv_heads, block = k.shape[2], kernel.block
    group, blocks = heads // kv_heads, length // block
    arrays = (until, q, k, v, grad, log_total, delta)

    lists, query, key, sums = _query_specs(blocks, block, length, group, size)
    specs = [*lists, query, key, key, query, sums, sums]
    out = [(query, jax.ShapeDtypeStruct(q.shape, q.dtype))]
    run = _call(_query_kernel, (heads, blocks, rows), specs, out, kernel)
    (dq,) = run(*_lists(until, block), *arrays)

    block = min(block, _KEY_BLOCK)
    blocks = length // block
    lists = _list_specs(blocks, length, lambda step: step)
    query = pl.BlockSpec((None, length, group, size), lambda head, step, row: (row, 0, head, 0))
    key = pl.BlockSpec((None, block, None, size), lambda head, step, row: (row, step, head, 0))
    sums = pl.BlockSpec((None, None, group, length), lambda head, step, row: (row, head, 0, 0))
    specs = [*lists, query, key, key, query, sums, sums]
    out = [(key, jax.ShapeDtypeStruct(k.shape, k.dtype))] * 2
    run = _call(_key_kernel, (kv_heads, blocks, rows), specs, out, kernel)
    dk, dv = run(*_lists(until, block, by_key=True), *arrays)
    return dq, dk, dv
