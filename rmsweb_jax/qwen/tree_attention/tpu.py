"""Tree attention as TPU kernels in Pallas, forward and backward."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from rmsweb_jax.qwen.attention import Keys, Queries
from rmsweb_jax.qwen.tree_attention.rule import (
    MASKED,
    BlockTable,
    Entry,
    TreeKernel,
    block_table,
    visible_in_block,
)


def _dot(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    return jax.lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((), ())), preferred_element_type=jnp.float32)


def _with_mask(entry: Entry, until_ref: Any, block: int, compute: Any) -> None:
    """Calls `compute` with the mask of the block, or with None where all queries see all keys."""

    @pl.when(entry.masked)
    def _() -> None:
        compute(visible_in_block(entry, until_ref[...], block))

    @pl.when(jnp.logical_not(entry.masked))
    def _() -> None:
        compute(None)


def _scores(k: jax.Array, q: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Scaled scores of a block, [keys, queries].

    Keys are rows, so that maxima and sums over keys are vectors along the lanes, as queries are stored.
    A query that sees no key of its first blocks gets a uniform mixture of them. Its own key, which comes
    last, wipes it out: the difference of the maxima is so large that its factor is 0.
    """
    scores = _dot(k, q, (1, 1)) * q.shape[-1] ** -0.5
    return scores if mask is None else jnp.where(mask, scores, MASKED)


def _forward_kernel(
    entries_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    until_ref: Any,
    out_ref: Any,
    log_total_ref: Any,
    mixed: Any,
    top: Any,
    total: Any,
) -> None:
    """Adds one block to its queries' running softmax ("online softmax": Milakov and Gimelshein 2018)."""
    entry = Entry.unpack(entries_ref[pl.program_id(1)])
    block, size = k_ref.shape

    @pl.when(entry.first)
    def _() -> None:
        mixed[...] = jnp.zeros_like(mixed)
        top[...] = jnp.full_like(top, MASKED)
        total[...] = jnp.zeros_like(total)

    def compute(mask: jax.Array | None) -> None:
        k, v = k_ref[...], v_ref[...]
        # The query heads of a key head share its block: keys, values and mask are read once.
        for head in range(top.shape[0]):
            own, columns = slice(head, head + 1), slice(head * size, (head + 1) * size)
            scores = _scores(k, q_ref[:, columns], mask)
            highest = jnp.maximum(top[own], scores.max(0, keepdims=True))
            weights, factor = jnp.exp(scores - highest), jnp.exp(top[own] - highest)
            total[own] = total[own] * factor + weights.sum(0, keepdims=True)
            mixed[columns] = mixed[columns] * factor + _dot(v, weights.astype(v.dtype), (0, 0))
            top[own] = highest

    _with_mask(entry, until_ref, block, compute)

    @pl.when(entry.last)
    def _() -> None:
        log_total_ref[...] = top[...] + jnp.log(total[...])
        for head in range(top.shape[0]):
            columns = slice(head * size, (head + 1) * size)
            out = mixed[columns] / total[slice(head, head + 1)]
            out_ref[:, columns] = out.T.astype(out_ref.dtype)


def _gradients(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    grad: jax.Array,
    log_total: jax.Array,
    delta: jax.Array,
    mask: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Attention weights of a block and the gradient of its unscaled scores, both [keys, queries]."""
    weights = jnp.exp(_scores(k, q, mask) - log_total)
    scores_grad = weights * (_dot(v, grad, (1, 1)) - delta) * q.shape[-1] ** -0.5
    return weights.astype(grad.dtype), scores_grad.astype(q.dtype)


def _backward_kernel(
    entries_ref: Any,
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    until_ref: Any,
    grad_ref: Any,
    log_total_ref: Any,
    delta_ref: Any,
    *refs: Any,
    block: int,
    queries: bool,
    keys: bool,
) -> None:
    """Adds the gradients of one block to those of its queries, of its keys and values, or of all.

    Args:
      refs: the gradients that are written, and float32 scratch for sums over consecutive blocks.
    """
    entry = Entry.unpack(entries_ref[pl.program_id(1)])
    size = k_ref.shape[-1]
    fused = queries and keys
    if fused:
        dq_ref, dk_ref, dv_ref, dq = refs
        # A row's key gradients are one output block: it stays in fast memory until the row changes.
        dk, dv, place = dk_ref, dv_ref, pl.ds(entry.key * block, block)
        new_row = entry.first & (entry.query == 0)
    elif queries:
        dq_ref, dq = refs
    else:
        dk_ref, dv_ref, dk, dv = refs
        place, new_row = slice(None), entry.first

    if queries:

        @pl.when(entry.first)
        def _() -> None:
            dq[...] = jnp.zeros_like(dq)

    if keys:

        @pl.when(new_row)
        def _() -> None:
            dk[...] = jnp.zeros_like(dk)
            dv[...] = jnp.zeros_like(dv)

    def compute(mask: jax.Array | None) -> None:
        k, v = k_ref[...], v_ref[...]
        for head in range(log_total_ref.shape[0]):
            own, columns = slice(head, head + 1), slice(head * size, (head + 1) * size)
            q, grad = q_ref[:, columns], grad_ref[:, columns]
            weights, scores_grad = _gradients(q, k, v, grad, log_total_ref[own], delta_ref[own], mask)
            if queries:
                dq[:, columns] += _dot(scores_grad, k, (0, 0))
            if keys:
                dk[place] += _dot(scores_grad, q, (1, 0))
                dv[place] += _dot(weights, grad, (1, 0))

    _with_mask(entry, until_ref, block, compute)

    @pl.when(entry.last)
    def _() -> None:
        if queries:
            dq_ref[...] = dq[...].astype(dq_ref.dtype)
        if keys and not fused:
            dk_ref[...] = dk[...].astype(dk_ref.dtype)
            dv_ref[...] = dv[...].astype(dv_ref.dtype)


def _flat(x: jax.Array) -> jax.Array:
    """Heads behind one another along the lanes, which needs no transposition around the kernel."""
    return x.reshape(*x.shape[:2], -1)


def _specs(block: int, group: int, size: int) -> dict[str, pl.BlockSpec]:
    """The blocks of queries, keys, ends and sums that an entry reads or writes."""

    def place(make: Any) -> Any:
        return lambda head, step, entries: make(Entry.unpack(entries[step]), head)

    return {
        "query": pl.BlockSpec((None, block, group * size), place(lambda e, head: (e.row, e.query, head))),
        "key": pl.BlockSpec((None, block, size), place(lambda e, head: (e.row, e.key, head))),
        "until": pl.BlockSpec((None, 1, block), place(lambda e, head: (e.row, 0, e.key))),
        "sums": pl.BlockSpec((None, None, group, block), place(lambda e, head: (e.row, head, 0, e.query))),
    }


def _call(
    body: Any, table: BlockTable, kv_heads: int, kernel: TreeKernel, specs: Any, out: Any, scratch: Any
) -> Any:
    vmem = None if kernel.vmem_mib is None else kernel.vmem_mib << 20
    return pl.pallas_call(
        body,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(kv_heads, table.count),
            in_specs=specs,
            out_specs=[spec for spec, _ in out],
            scratch_shapes=scratch,
        ),
        out_shape=[shape for _, shape in out],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=vmem
        ),
        interpret=kernel.interpret,
    )


def forward(q: Queries, k: Keys, v: Keys, until: Any, kernel: TreeKernel) -> tuple[Any, Any]:
    rows, length, heads, size = q.shape
    kv_heads = k.shape[2]
    group, block = heads // kv_heads, kernel.block
    table, spec = block_table(until, block), _specs(block, group, size)
    out, log_total = _call(
        _forward_kernel,
        table,
        kv_heads,
        kernel,
        [spec["query"], spec["key"], spec["key"], spec["until"]],
        [
            (spec["query"], jax.ShapeDtypeStruct((rows, length, heads * size), q.dtype)),
            (spec["sums"], jax.ShapeDtypeStruct((rows, kv_heads, group, length), jnp.float32)),
        ],
        [
            pltpu.VMEM((group * size, block), jnp.float32),
            pltpu.VMEM((group, block), jnp.float32),
            pltpu.VMEM((group, block), jnp.float32),
        ],
    )(table.entries, _flat(q), _flat(k), _flat(v), until[:, None])
    return out.reshape(q.shape), log_total


def backward(
    q: Queries, k: Keys, v: Keys, until: Any, grad: Any, log_total: Any, delta: Any, kernel: TreeKernel
) -> tuple[Any, Any, Any]:
    rows, length, heads, size = q.shape
    kv_heads = k.shape[2]
    group, block = heads // kv_heads, kernel.block
    spec = _specs(block, group, size)
    specs = [spec[name] for name in ("query", "key", "key", "until", "query", "sums", "sums")]
    arrays = (_flat(q), _flat(k), _flat(v), until[:, None], _flat(grad), log_total, delta)
    dq_out = (spec["query"], jax.ShapeDtypeStruct((rows, length, heads * size), q.dtype))
    dq_sum = pltpu.VMEM((block, group * size), jnp.float32)

    def run(queries: bool, keys: bool, out: Any, scratch: Any) -> Any:
        body = functools.partial(_backward_kernel, block=block, queries=queries, keys=keys)
        table = block_table(until, block, by_key=not queries)
        return _call(body, table, kv_heads, kernel, specs, out, scratch)(table.entries, *arrays)

    if kernel.fused_backward:
        whole = pl.BlockSpec(
            (None, length, size), lambda head, step, entries: (Entry.unpack(entries[step]).row, 0, head)
        )
        key_out = (whole, jax.ShapeDtypeStruct((rows, length, kv_heads * size), jnp.float32))
        dq, dk, dv = run(True, True, [dq_out, key_out, key_out], [dq_sum])
    else:
        key_out = (spec["key"], jax.ShapeDtypeStruct((rows, length, kv_heads * size), k.dtype))
        (dq,) = run(True, False, [dq_out], [dq_sum])
        key_sum = pltpu.VMEM((block, size), jnp.float32)
        dk, dv = run(False, True, [key_out, key_out], [key_sum, key_sum])
    return dq.reshape(q.shape), dk.reshape(k.shape).astype(k.dtype), dv.reshape(v.shape).astype(v.dtype)
