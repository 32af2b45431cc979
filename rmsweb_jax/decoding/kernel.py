"""Attention to cached keys on TPU: a Pallas kernel that reads the keys and values of a span once.

Without it XLA writes the float32 scores of long prompts to main memory, and reads positions that are masked.
The kernel keeps the scores of one block of keys at a time in fast memory, with a running maximum and sum
("online softmax": Milakov and Gimelshein 2018; flash-decoding: Dao et al. 2023), and does not fetch blocks
outside the span.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Float, Float32, Int32

from rmsweb_jax.decoding.quantized import CacheArray
from rmsweb_jax.qwen.attention import TPU_LANES

# Finite, so that the exponential of a difference of two masked scores is not NaN.
_MASKED = -1e30
# Keys of a block, summed over its heads: enough that a fetch outweighs its overhead, and few enough that the
# blocks at the ends of a span waste little.
_BLOCK_KEYS = 2048
# Queries that are kept in fast memory at a time.
_TILE = 256


def _block_size(positions: int, heads: int) -> int:
    """Chooses the positions of a block: a multiple of 128 that divides `positions`."""
    size = max(TPU_LANES, _BLOCK_KEYS // heads // TPU_LANES * TPU_LANES)
    while positions % size:
        size -= TPU_LANES
    return size


def _num_blocks(start: Any, count: Any, size: int, positions: int) -> Any:
    """Counts the blocks that hold a position of the span, beginning with the one that holds its start."""
    covered = jax.lax.div(jax.lax.rem(start, size) + count + size - 1, size)
    # A span that comes round to its first block needs that block once.
    return jnp.where(count > 0, jnp.minimum(covered, positions // size), 0)


def _kernel(start_ref: Any, count_ref: Any, q_ref: Any, *refs: Any, positions: int, scaled: bool) -> None:
    """Processes one block of one row.

    Args:
      refs: keys, values, their scales when `scaled`, the two outputs, and scratch memory for the running
        mixture, maximum and sum, which is kept from block to block of a row.
    """
    keys_ref, values_ref, *scale_refs = refs[: 4 if scaled else 2]
    mixed_ref, log_total_ref, running, top, total = refs[-5:]
    row, step = pl.program_id(0), pl.program_id(2)
    heads, size = keys_ref.shape[1:3]
    start, count = start_ref[row], count_ref[row]

    # The grid runs the blocks of some queries of a row in order; the first one resets the scratch memory.
    @pl.when(step == 0)
    def _() -> None:
        running[...] = jnp.zeros_like(running)
        top[...] = jnp.full_like(top, _MASKED)
        total[...] = jnp.zeros_like(total)

    @pl.when(step < _num_blocks(start, count, size, positions))
    def _() -> None:
        first = jax.lax.rem(jax.lax.div(start, size) + step, positions // size) * size
        # Distance of each position from the span's start, going round the ring.
        offset = first - start + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)
        visible = jnp.where(offset < 0, offset + positions, offset) < count
        # A static loop over the heads of the block: one fetch serves all of them.
        for head in range(heads):
            q = q_ref[0, head]
            scores = jax.lax.dot_general(
                q,
                keys_ref[0, head].astype(q.dtype),
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            if scaled:
                scores = scores * scale_refs[0][0, head : head + 1]
            scores = jnp.where(visible, scores, _MASKED)
            # Online softmax: what is summed so far shrinks when a larger maximum is found.
            new_top = jnp.maximum(top[head], scores.max(-1, keepdims=True))
            weights, shrink = jnp.exp(scores - new_top), jnp.exp(top[head] - new_top)
            top[head] = new_top
            total[head] = total[head] * shrink + weights.sum(-1, keepdims=True)
            # After `total`: the scale belongs to the values, not to the weights of the softmax.
            if scaled:
                weights = weights * scale_refs[1][0, head : head + 1]
            running[head] = running[head] * shrink + jnp.dot(
                weights.astype(q.dtype),
                values_ref[0, head].astype(q.dtype),
                preferred_element_type=jnp.float32,
            )

    @pl.when(step == pl.num_programs(2) - 1)
    def _() -> None:
        # No key in the span: write zeros with a log-sum-exp of -1e30, so that `merge` gives them no weight.
        some = jnp.maximum(total[...], jnp.finfo(jnp.float32).tiny)
        # Normalized here, so that the caller needs one log-sum-exp instead of maximum and sum.
        mixed_ref[0] = running[...] / some
        log_total_ref[0] = jnp.where(total[...] > 0, top[...] + jnp.log(some), _MASKED)


def flash_decode(
    q: Float[jax.Array, "rows kv_heads queries head_dim"],
    keys: CacheArray,
    values: CacheArray,
    start: Int32[jax.Array, " rows"],
    count: Int32[jax.Array, " rows"],
    *,
    interpret: bool,
) -> tuple[Float32[jax.Array, "rows kv_heads queries head_dim"], Float32[jax.Array, "rows kv_heads queries"]]:
    """Computes attention over a span of each row's ring buffer.

    Args:
      q: queries, scaled by the softmax's temperature.
      keys, values: [rows, kv_heads, positions, head_dim]; the last two must be multiples of 128.
      start, count: the span, see `KeySpan`.
      interpret: runs on any platform, in the Pallas interpreter.

    Returns:
      The mixture of values, and the logarithm of the sum of exponentials; zeros and -1e30 for an empty span.
    """
    rows, heads, queries, dim = q.shape
    positions = keys.data.shape[2]
    size = _block_size(positions, heads)
    steps = positions // size
    # Queries at a time: all of a decoding step, some of a prompt's chunk, for each of which keys are read.
    tile = queries if queries <= _TILE else math.gcd(queries, _TILE)

    def block(row: Any, step: Any, starts: Any, counts: Any) -> Any:
        # Steps after the last block of a span name it again: Pallas fetches no block twice in sequence.
        last = jnp.maximum(_num_blocks(starts[row], counts[row], size, positions) - 1, 0)
        return jax.lax.rem(jax.lax.div(starts[row], size) + jnp.minimum(step, last), steps)

    def by_tile(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, *shape), lambda row, tile, *_: (row, 0, tile, 0))

    cached = pl.BlockSpec((1, heads, size, dim), lambda row, _, *at: (row, 0, block(row, *at), 0))
    scale = pl.BlockSpec((1, heads, size), lambda row, _, *at: (row, 0, block(row, *at)))
    scales = [part.scale for part in (keys, values) if part.scale is not None]
    shapes = ((heads, tile, dim), (heads, tile, 1))
    # Outputs are float32 for every dtype of the caches, since `merge` combines them with other parts.
    mixed, log_total = pl.pallas_call(
        functools.partial(_kernel, positions=positions, scaled=bool(scales)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            # The spans: the index maps of the blocks read them before a step begins.
            num_scalar_prefetch=2,
            grid=(rows, queries // tile, steps),
            in_specs=[by_tile(heads, tile, dim), cached, cached, *[scale] * len(scales)],
            out_specs=[by_tile(*shape) for shape in shapes],
            # The running mixture, maximum and sum of the online softmax, kept from block to block of a row.
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in (*shapes, shapes[1])],
        ),
        out_shape=[jax.ShapeDtypeStruct((rows, heads, queries, last), jnp.float32) for *_, last in shapes],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",) * 3),
        interpret=interpret,
    )(start, count, q, keys.data, values.data, *scales)
    return mixed, log_total[..., 0]
