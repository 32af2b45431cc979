"""Attention over rows whose tokens are prefix trees in depth-first order, and the blocks of it that run.

Each token k of a row has an index `until[k]`, at which its branch of the tree ends; query q sees key k if and
only if k <= q < until[k]. Packed samples (`until` is the sample's end), prompts that several responses share
(the end of the group; a response's own end) and turns that branch off a common history are cases of this one
rule. Padding has `until = k + 1`: it sees itself, and no token sees it. FlashMask (Wang et al., ICLR 2025)
represents masks by columns in the same way.

Scores are computed in square blocks. `block_table` lists on the device, from the smallest and largest `until`
of each block of keys, the blocks in which some query sees some key; all others cost nothing. The list is as
long as the rows need: the kernel's grid has its length, which is known at run time.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.qwen3_vl.attention import Keys, Queries
from rmsweb_jax.qwen3_vl.inputs import Array

# Finite: the exponential of a difference of two masked scores is not NaN.
_MASKED = -1e30
# Bits of a block's place in an entry: 512 blocks a row, 1,024 rows a device.
_PLACE_BITS, _ROW_BITS = 9, 10

Ends = Int32[Array, "rows tokens"]


def visible_pairs(until: Ends) -> Bool[jax.Array, "rows tokens tokens"]:
    """Writes the attention rule as a mask, query by key."""
    until = jnp.asarray(until)
    query = jnp.arange(until.shape[1])[:, None]
    return (query >= query.T) & (query < until[:, None, :])


class BlockTable(NamedTuple):
    """The blocks of scores to compute, sorted by row.

    Attributes:
      entries: packed places, see `_Entry`; only the first `count` are used.
      count: how many blocks run.
    """

    entries: Int32[jax.Array, " blocks"]
    count: Int32[jax.Array, ""]


class _Entry(NamedTuple):
    """One block of scores: its row, its place among the blocks of queries and keys, and what it does.

    Attributes:
      masked: some query of the block does not see some key.
      first, last: the block begins or ends the sum over keys (or over queries, in a table by keys).
    """

    row: Any
    query: Any
    key: Any
    masked: Any
    first: Any
    last: Any

    def pack(self) -> jax.Array:
        place = (self.row << _PLACE_BITS | self.query) << _PLACE_BITS | self.key
        return place << 3 | self.masked << 2 | self.first << 1 | self.last

    @classmethod
    def unpack(cls, entry: Any) -> _Entry:
        mask = (1 << _PLACE_BITS) - 1
        place = entry >> 3
        return cls(
            row=place >> 2 * _PLACE_BITS,
            query=place >> _PLACE_BITS & mask,
            key=place & mask,
            masked=(entry & 4) != 0,
            first=(entry & 2) != 0,
            last=(entry & 1) != 0,
        )


def block_table(until: Ends, block: int, by_key: bool = False) -> BlockTable:
    """Lists the blocks in which some query sees some key.

    Queries and keys have blocks of the same size, so that a block runs if the largest `until` of its keys is
    behind its first query, and needs no mask if the smallest is behind its last. The diagonal always runs,
    since tokens see themselves.

    Args:
      until: a row's length is a multiple of `block`.
      by_key: sorts by blocks of keys, for sums over queries; otherwise by blocks of queries.
    """
    until = jnp.asarray(until)
    rows, length = until.shape
    blocks = length // block
    ends = until.reshape(rows, blocks, block)
    query = jnp.arange(blocks)[:, None]
    key = query.T
    runs = (key < query) & (ends.max(2)[:, None] > query * block) | (key == query)
    whole = (key < query) & (ends.min(2)[:, None] >= (query + 1) * block)
    order = jnp.swapaxes(runs, 1, 2) if by_key else runs
    # The last axis is summed over; running totals find its first and last block that runs.
    seen = jnp.cumsum(order, axis=2, dtype=jnp.int32)
    first, last = order & (seen == 1), order & (seen == seen[:, :, -1:])
    size = rows * blocks * (blocks + 1) // 2
    row, outer, inner = jnp.nonzero(order, size=size, fill_value=0)
    at = (row, outer, inner)
    query, key = (inner, outer) if by_key else (outer, inner)
    flags = (~whole[row, query, key], first[at], last[at])
    entries = _Entry(row, query, key, *(flag.astype(jnp.int32) for flag in flags)).pack()
    return BlockTable(entries.astype(jnp.int32), order.sum(dtype=jnp.int32))


@dataclasses.dataclass(frozen=True)
class TreeKernel:
    """Settings of the kernel; hashable, so that they can be static under `jax.jit`.

    Attributes:
      block: tokens of a block; divides the length of a row. At 1,024 the kernel computes a third more pairs
        on samples of 3,000 tokens than at 512.
      implementation: "pallas" is the TPU kernel, "xla" a loop over the same table for any platform.
      fused_backward: one backward kernel instead of two. It keeps a row's key and value gradients of one
        head in fast memory, 2 x 4 x 128 bytes a token twice, and computes five matrix products instead of
        seven.
      vmem_mib: fast memory that a kernel may take; None is the compiler's limit.
      interpret: runs the TPU kernel on any platform, slowly.
    """

    block: int = 512
    implementation: str = "pallas"
    fused_backward: bool = True
    vmem_mib: int | None = None
    interpret: bool = False


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def tree_attention(q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel) -> Queries:
    """Computes grouped-query attention of prefix trees; scores are scaled by `head_dim ** -0.5`.

    Args:
      q: `heads` is a multiple of `kv_heads`.
      until: see the module.

    Returns:
      The mixed values in the dtype of `q`. Padding gets its own values.
    """
    return _forward(q, k, v, until, kernel)[0]


def _forward(
    q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel
) -> tuple[Queries, Float32[jax.Array, "rows kv_heads group tokens"]]:
    """Returns the mixed values, and the logarithms of the sums of exponentials of scores."""
    forward = _pallas_forward if kernel.implementation == "pallas" else _loop_forward
    return forward(q, k, v, jnp.asarray(until), kernel)


def _save(q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel) -> tuple[Queries, tuple[Any, ...]]:
    # A name by which rematerialization saves them, see `text.remat`.
    out, log_total = (checkpoint_name(x, "attention") for x in _forward(q, k, v, until, kernel))
    return out, (q, k, v, until, out, log_total)


def _backward(kernel: TreeKernel, saved: tuple[Any, ...], grad: Queries) -> tuple[Any, ...]:
    q, k, v, until, out, log_total = saved
    rows, _, heads, size = out.shape
    # The gradient through the softmax's denominator: one number a query and head. As a product with zeros and
    # ones, because a sum over the last of four axes makes XLA copy both arrays on TPU.
    of_head = jnp.repeat(jnp.eye(heads, dtype=jnp.float32), size, axis=0)
    products = _flat(out).astype(jnp.float32) * _flat(grad).astype(jnp.float32)
    delta = jnp.einsum("btx,xh->bht", products, of_head, precision=jax.lax.Precision.HIGHEST)
    delta = delta.reshape(rows, k.shape[2], -1, out.shape[1])
    backward = _pallas_backward if kernel.implementation == "pallas" else _loop_backward
    return *backward(q, k, v, jnp.asarray(until), grad, log_total, delta, kernel), None


tree_attention.defvjp(_save, _backward)


def _dot(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    return jax.lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((), ())), preferred_element_type=jnp.float32)


def _visible(entry: _Entry, until: jax.Array, block: int) -> jax.Array:
    """The rule in one block, [keys, queries]; `until` is [1, keys]."""
    key = entry.key * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 0)
    query = entry.query * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 1)
    return (key <= query) & (query < until.reshape(block, 1))


def _with_mask(entry: _Entry, until_ref: Any, block: int, compute: Any) -> None:
    """Calls `compute` with the mask of the block, or with None where all queries see all keys."""

    @pl.when(entry.masked)
    def _() -> None:
        compute(_visible(entry, until_ref[...], block))

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
    return scores if mask is None else jnp.where(mask, scores, _MASKED)


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
    entry = _Entry.unpack(entries_ref[pl.program_id(1)])
    block, size = k_ref.shape

    @pl.when(entry.first)
    def _() -> None:
        mixed[...] = jnp.zeros_like(mixed)
        top[...] = jnp.full_like(top, _MASKED)
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
    entry = _Entry.unpack(entries_ref[pl.program_id(1)])
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
        return lambda head, step, entries: make(_Entry.unpack(entries[step]), head)

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


def _pallas_forward(q: Queries, k: Keys, v: Keys, until: Any, kernel: TreeKernel) -> tuple[Any, Any]:
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


def _pallas_backward(
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
            (None, length, size), lambda head, step, entries: (_Entry.unpack(entries[step]).row, 0, head)
        )
        key_out = (whole, jax.ShapeDtypeStruct((rows, length, kv_heads * size), jnp.float32))
        dq, dk, dv = run(True, True, [dq_out, key_out, key_out], [dq_sum])
    else:
        key_out = (spec["key"], jax.ShapeDtypeStruct((rows, length, kv_heads * size), k.dtype))
        (dq,) = run(True, False, [dq_out], [dq_sum])
        key_sum = pltpu.VMEM((block, size), jnp.float32)
        dk, dv = run(False, True, [key_out, key_out], [key_sum, key_sum])
    return dq.reshape(q.shape), dk.reshape(k.shape).astype(k.dtype), dv.reshape(v.shape).astype(v.dtype)


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


def _loop_mask(entry: _Entry, until: jax.Array, block: int) -> jax.Array:
    ends = jax.lax.dynamic_slice(until, (entry.row, entry.key * block), (1, block))
    return _visible(entry, ends, block).T


def _loop_forward(q: Queries, k: Keys, v: Keys, until: Any, kernel: TreeKernel) -> tuple[Any, Any]:
    kv_heads, block = k.shape[2], kernel.block
    table = block_table(until, block)
    qs, ks, vs = (_heads_first(x, kv_heads) for x in (q, k, v))
    mixed = jnp.zeros(qs.shape, jnp.float32)
    top = jnp.full(qs.shape[:-1], _MASKED, jnp.float32)

    def step(number: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        entry = _Entry.unpack(table.entries[number])
        query, key = (entry.row, entry.query, block), (entry.row, entry.key, block)
        mixed, top, total = (_take(x, *query) for x in state)
        scores = jnp.einsum(
            "kgqd,kxsd->kgqs", _take(qs, *query), _take(ks, *key), preferred_element_type=jnp.float32
        )
        scores = jnp.where(_loop_mask(entry, until, block), scores * q.shape[-1] ** -0.5, _MASKED)
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


def _loop_backward(
    q: Queries, k: Keys, v: Keys, until: Any, grad: Any, log_total: Any, delta: Any, kernel: TreeKernel
) -> tuple[Any, Any, Any]:
    kv_heads, block, scale = k.shape[2], kernel.block, q.shape[-1] ** -0.5
    table = block_table(until, block)
    qs, ks, vs, grads = (_heads_first(x, kv_heads) for x in (q, k, v, grad))

    def step(number: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        entry = _Entry.unpack(table.entries[number])
        query, key = (entry.row, entry.query, block), (entry.row, entry.key, block)
        q, grad, log, own = (_take(x, *query) for x in (qs, grads, log_total, delta))
        k, v = (_take(x, *key)[:, 0] for x in (ks, vs))
        product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
        mask = _loop_mask(entry, until, block)
        scores = jnp.where(mask, product("kgqd,ksd->kgqs", q, k) * scale, _MASKED)
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
