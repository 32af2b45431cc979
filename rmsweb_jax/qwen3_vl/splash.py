"""The attention rule on TPU: JAX's splash kernel, forward and fused backward, in `shard_map`.

Which blocks are computed is decided when the program is traced, so slots must lie at fixed places (a
`RowLayout`); segments are compared in the kernel.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import (
    BlockSizes,
    CausalMask,
    MultiHeadMask,
    SegmentIds,
    make_splash_mha,
)
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import LANES, Attend, AttentionConfig
from rmsweb_jax.qwen3_vl.inputs import RowLayout


class SharedPrefixMask(Mask):
    """A prompt in the first places, then slots of equal size that see it and themselves."""

    def __init__(self, length: int, layout: RowLayout):
        self.length = length
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length, self.length)

    def __getitem__(self, idx: tuple[slice, slice]) -> np.ndarray:
        query, key = (np.arange(*part.indices(self.length)) for part in idx)
        slots = [(place - self.layout.prompt) // self.layout.slot for place in (query, key)]
        visible = (key < self.layout.prompt) | (slots[0][:, None] == slots[1])
        return (key <= query[:, None]) & visible

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedPrefixMask) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.length, self.layout))


@functools.lru_cache(maxsize=32)
def _mask(length: int, layout: RowLayout | None) -> Mask:
    # Equal masks are processed once; the kernel's own tables are made inside each trace.
    if layout is None or not layout.slot:
        return CausalMask((length, length))
    return SharedPrefixMask(length, layout)


def _divisor(length: int, most: int) -> int:
    """The largest of `most`, its half, its quarter, ... that divides a length (a multiple of 128)."""
    while length % most and most > LANES:
        most //= 2
    return most


def make_splash_attend(config: AttentionConfig, segment_ids: jax.Array, layout: RowLayout | None) -> Attend:
    """See `backends.make_attend`.

    Raises:
      UserError: rows are not a multiple of 128 tokens.
    """
    length = segment_ids.shape[1]
    if length % LANES:
        raise UserError(
            f"fused attention: rows of {length} tokens are not a multiple of {LANES}: make "
            f"config.bucket_multiple one"
        )
    block = _divisor(length, config.block)
    sizes = BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        # The fused backward kernel leaves the queries' gradient once a block of keys, to be summed: with few
        # and large blocks that is less memory (twice is what fits a v5e core beside the rest).
        block_kv_dkv=_divisor(length, 2 * block),
        block_kv_dkv_compute=block,
        use_fused_bwd_kernel=True,
    )

    def local(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array) -> jax.Array:
        kernel = make_splash_mha(
            MultiHeadMask([_mask(length, layout)] * q.shape[2]),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            interpret=config.interpret,
        )

        def row(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array) -> jax.Array:
            out = kernel(q, k, v, SegmentIds(segments, segments))
            assert isinstance(out, jax.Array)
            return out

        q, k, v = (part.transpose(0, 2, 1, 3) for part in (q * q.shape[-1] ** -0.5, k, v))
        return jax.vmap(row)(q, k, v, segments).transpose(0, 2, 1, 3)

    if config.mesh is None:
        return lambda q, k, v: local(q, k, v, segment_ids)
    rows = ("data", "fsdp")
    heads = P(rows, None, "tensor", None)
    # The kernel's outputs carry no replication types.
    split = jax.shard_map(
        local,
        mesh=config.mesh,
        in_specs=(heads, heads, heads, P(rows, None)),
        out_specs=heads,
        check_vma=False,
    )
    return lambda q, k, v: split(q, k, v, segment_ids)
