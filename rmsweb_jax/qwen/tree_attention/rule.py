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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from rmsweb_jax.qwen.inputs import Array

# Finite: the exponential of a difference of two masked scores is not NaN.
MASKED = -1e30
# Bits of a block's place in an entry; with three flags and a row's number, below 1,024, it is an int32.
_PLACE_BITS = 9
MAX_BLOCKS = 2**_PLACE_BITS

Ends = Int32[Array, "rows tokens"]


def visible_pairs(until: Ends) -> Bool[jax.Array, "rows tokens tokens"]:
    """Writes the attention rule as a mask, query by key."""
    until = jnp.asarray(until)
    query = jnp.arange(until.shape[1])[:, None]
    return (query >= query.T) & (query < until[:, None, :])


def blocks_that_run(
    until: Ends, block: int
) -> tuple[Bool[jax.Array, "rows blocks blocks"], Bool[jax.Array, "rows blocks blocks"]]:
    """Finds the blocks in which some query sees some key, and those in which all queries see all keys.

    Queries and keys have blocks of the same size, so that a block runs if the largest `until` of its keys is
    behind its first query, and needs no mask if the smallest is behind its last. The diagonal always runs,
    since tokens see themselves.

    Args:
      until: a row's length is a multiple of `block`.

    Returns:
      For blocks of queries by blocks of keys.
    """
    rows, length = until.shape
    blocks = length // block
    ends = until.reshape(rows, blocks, block)
    query = jnp.arange(blocks)[:, None]
    key = query.T
    runs = (key < query) & (ends.max(2)[:, None] > query * block) | (key == query)
    return runs, (key < query) & (ends.min(2)[:, None] >= (query + 1) * block)


class BlockTable(NamedTuple):
    """The blocks of scores to compute, sorted by row.

    Attributes:
      entries: packed places, see `Entry`; only the first `count` are used.
      count: how many blocks run.
    """

    entries: Int32[jax.Array, " blocks"]
    count: Int32[jax.Array, ""]


class Entry(NamedTuple):
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
    def unpack(cls, entry: Any) -> Entry:
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

    Args:
      until: a row's length is a multiple of `block`.
      by_key: sorts by blocks of keys, for sums over queries; otherwise by blocks of queries.
    """
    until = jnp.asarray(until)
    runs, whole = blocks_that_run(until, block)
    rows, blocks, _ = runs.shape
    order = jnp.swapaxes(runs, 1, 2) if by_key else runs
    # The last axis is summed over; running totals find its first and last block that runs.
    seen = jnp.cumsum(order, axis=2, dtype=jnp.int32)
    first, last = order & (seen == 1), order & (seen == seen[:, :, -1:])
    size = rows * blocks * (blocks + 1) // 2
    row, outer, inner = jnp.nonzero(order, size=size, fill_value=0)
    at = (row, outer, inner)
    query, key = (inner, outer) if by_key else (outer, inner)
    flags = (~whole[row, query, key], first[at], last[at])
    entries = Entry(row, query, key, *(flag.astype(jnp.int32) for flag in flags)).pack()
    return BlockTable(entries.astype(jnp.int32), order.sum(dtype=jnp.int32))


@dataclasses.dataclass(frozen=True)
class TreeKernel:
    """Settings of the kernel; hashable, so that they can be static under `jax.jit`.

    Attributes:
      block: tokens of a block; divides the length of a row. At 1,024 the kernel computes a third more pairs
        on samples of 3,000 tokens than at 512.
      implementation: the module that computes it, "tpu", "gpu" or "loop".
      fused_backward: on TPU, one backward kernel instead of two. It keeps a row's key and value gradients of
        one head in fast memory, 2 x 4 x 128 bytes a token twice, and computes five matrix products instead
        of seven.
      vmem_mib: fast memory that a TPU kernel may take; None is the compiler's limit.
      interpret: runs a kernel on any platform, slowly.
    """

    block: int = 512
    implementation: str = "tpu"
    fused_backward: bool = True
    vmem_mib: int | None = None
    interpret: bool = False


def visible_in_block(entry: Entry, until: jax.Array, block: int) -> jax.Array:
    """The rule in one block, [keys, queries]; `until` is [1, keys]."""
    key = entry.key * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 0)
    query = entry.query * block + jax.lax.broadcasted_iota(jnp.int32, (block, block), 1)
    return (key <= query) & (query < until.reshape(block, 1))
