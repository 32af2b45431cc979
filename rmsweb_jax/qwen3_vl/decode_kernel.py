"""Decoding attention on TPU: a Pallas kernel that reads the keys and values a step needs, once.

Left to itself XLA writes the scores of long prompts to memory, in float32, and reads places that nobody
attends to. Here scores live in fast memory, a stretch of keys at a time, with a running maximum and sum
("online softmax": Milakov and Gimelshein 2018; flash-decoding: Dao et al. 2023), and stretches without a
place to attend to are not fetched.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from rmsweb_jax.qwen3_vl.attention import LANES
from rmsweb_jax.qwen3_vl.stored import Stored

_MASKED = -1e30
# Keys of a stretch, over all of its heads: enough that a fetch outweighs its overhead, and few enough that
# the stretches at the ends of a span waste little.
_STRETCH = 2048


def _stretch(places: int, heads: int) -> int:
    """Places of a stretch: a multiple of 128 that divides them."""
    size = max(LANES, _STRETCH // heads // LANES * LANES)
    while places % size:
        size -= LANES
    return size


def _live_stretches(start: Any, count: Any, size: int, places: int) -> Any:
    """How many stretches hold a place of the span, from the one that holds its start on."""
    covered = jax.lax.div(jax.lax.rem(start, size) + count + size - 1, size)
    return jnp.where(count > 0, jnp.minimum(covered, places // size), 0)


def _kernel(start_ref: Any, count_ref: Any, q_ref: Any, *refs: Any, places: int, scaled: bool) -> None:
    """A stretch of a row; `refs`: keys, values, scales, outputs, and the running mixture, top and total."""
    keys_ref, values_ref, *scale_refs = refs[: 4 if scaled else 2]
    mixed_ref, log_total_ref, running, top, total = refs[-5:]
    row, step = pl.program_id(0), pl.program_id(1)
    heads, size = keys_ref.shape[1:3]
    start, count = start_ref[row], count_ref[row]

    @pl.when(step == 0)
    def _() -> None:
        running[...] = jnp.zeros_like(running)
        top[...] = jnp.full_like(top, _MASKED)
        total[...] = jnp.zeros_like(total)

    @pl.when(step < _live_stretches(start, count, size, places))
    def _() -> None:
        first = jax.lax.rem(jax.lax.div(start, size) + step, places // size) * size
        age = first - start + jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)
        live = jnp.where(age < 0, age + places, age) < count
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
            scores = jnp.where(live, scores, _MASKED)
            new_top = jnp.maximum(top[head], scores.max(-1, keepdims=True))
            weights, shrink = jnp.exp(scores - new_top), jnp.exp(top[head] - new_top)
            top[head] = new_top
            total[head] = total[head] * shrink + weights.sum(-1, keepdims=True)
            if scaled:
                weights = weights * scale_refs[1][0, head : head + 1]
            running[head] = running[head] * shrink + jnp.dot(
                weights.astype(q.dtype),
                values_ref[0, head].astype(q.dtype),
                preferred_element_type=jnp.float32,
            )

    @pl.when(step == pl.num_programs(1) - 1)
    def _() -> None:
        # Nothing to attend to: a mixture of zeros that weighs nothing.
        some = jnp.maximum(total[...], jnp.finfo(jnp.float32).tiny)
        mixed_ref[0] = running[...] / some
        log_total_ref[0] = jnp.where(total[...] > 0, top[...] + jnp.log(some), _MASKED)


def flash_decode(
    q: jax.Array, keys: Stored, values: Stored, start: jax.Array, count: jax.Array, *, interpret: bool
) -> tuple[jax.Array, jax.Array]:
    """Attention of M queries of each of H heads over a span of a ring of P places.

    Args:
      q: [N, H, M, D], scaled by the softmax's temperature.
      keys, values: [N, H, P, D], P and D multiples of 128.
      start, count: [N] int32, the span.
      interpret: runs anywhere, in the Pallas interpreter.

    Returns:
      The mixture of values [N, H, M, D] and the logarithm of the sum of exponentials [N, H, M], float32;
      zeros and -1e30 where the span is empty.
    """
    rows, heads, queries, dim = q.shape
    places = keys.data.shape[2]
    size = _stretch(places, heads)
    steps = places // size

    def stretch(row: Any, step: Any, starts: Any, counts: Any) -> Any:
        # What repeats the last one is not fetched again.
        last = jnp.maximum(_live_stretches(starts[row], counts[row], size, places) - 1, 0)
        return jax.lax.rem(jax.lax.div(starts[row], size) + jnp.minimum(step, last), steps)

    def by_row(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, *shape), lambda row, *_: (row, *[0] * len(shape)))

    kept = pl.BlockSpec((1, heads, size, dim), lambda row, *at: (row, 0, stretch(row, *at), 0))
    scale = pl.BlockSpec((1, heads, size), lambda row, *at: (row, 0, stretch(row, *at)))
    scales = [part.scale for part in (keys, values) if part.scale is not None]
    shapes = ((heads, queries, dim), (heads, queries, 1))
    mixed, log_total = pl.pallas_call(
        functools.partial(_kernel, places=places, scaled=bool(scales)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(rows, steps),
            in_specs=[by_row(heads, queries, dim), kept, kept, *[scale] * len(scales)],
            out_specs=[by_row(*shape) for shape in shapes],
            scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in (*shapes, shapes[1])],
        ),
        out_shape=[jax.ShapeDtypeStruct((rows, *shape), jnp.float32) for shape in shapes],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        interpret=interpret,
    )(start, count, q, keys.data, values.data, *scales)
    return mixed, log_total[..., 0]
