"""The attention rule on TPU: JAX's splash kernel, forward and fused backward, in `shard_map`.

The blocks to compute are chosen when a program is traced, so slots must be at fixed positions (a
`RowLayout`). Segments are compared in the kernel.
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
from jaxtyping import Int32

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import TPU_LANES, Attend, AttentionConfig
from rmsweb_jax.qwen3_vl.inputs import RowLayout
from rmsweb_jax.training.mesh import ROWS


class SharedPrefixMask(Mask):
    """Mask of a row with a prompt, then slots of equal size that see the prompt and themselves."""

    def __init__(self, length: int, layout: RowLayout):
        self.length = length
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length, self.length)

    def __getitem__(self, idx: tuple[slice, slice]) -> np.ndarray:
        query, key = (np.arange(*part.indices(self.length)) for part in idx)
        slots = [(index - self.layout.prompt) // self.layout.slot for index in (query, key)]
        visible = (key < self.layout.prompt) | (slots[0][:, None] == slots[1])
        return (key <= query[:, None]) & visible

    # By value: splash processes equal masks of several heads once.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedPrefixMask) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.length, self.layout))


@functools.lru_cache(maxsize=32)
def _mask(length: int, layout: RowLayout | None) -> Mask:
    # Cached, since splash processes equal masks once. The kernel itself is not: its tables belong to a trace.
    if layout is None or not layout.slot:
        return CausalMask((length, length))
    return SharedPrefixMask(length, layout)


def _divisor(length: int, most: int) -> int:
    """Returns the largest of `most`, `most` / 2, ... that divides a length (a multiple of 128)."""
    while length % most and most > TPU_LANES:
        most //= 2
    return most


def make_splash_attend(
    config: AttentionConfig, segment_ids: Int32[jax.Array, "rows tokens"], layout: RowLayout | None
) -> Attend:
    """Makes the attention function of given rows, see `backends.make_attend`.

    Raises:
      UserError: rows are not a multiple of 128 tokens.
    """
    length = segment_ids.shape[1]
    if length % TPU_LANES:
        raise UserError(
            f"fused attention: rows of {length} tokens are not a multiple of {TPU_LANES}: make "
            f"config.bucket_multiple one"
        )
    block = _divisor(length, config.block)
    sizes = BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        # The fused backward kernel writes a gradient of the queries for each block of keys, to be summed
        # after it. Fewer, larger blocks need less memory for these; a v5e core has room for twice the size.
        block_kv_dkv=_divisor(length, 2 * block),
        block_kv_dkv_compute=block,
        use_fused_bwd_kernel=True,
    )

    def local(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array) -> jax.Array:
        # Made inside of shard_map, with the number of heads of one device.
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

        # Splash does not scale, and takes heads before tokens.
        q, k, v = (part.transpose(0, 2, 1, 3) for part in (q * q.shape[-1] ** -0.5, k, v))
        return jax.vmap(row)(q, k, v, segments).transpose(0, 2, 1, 3)

    if config.mesh is None:
        return lambda q, k, v: local(q, k, v, segment_ids)
    heads = P(ROWS, None, "tensor", None)
    sharded = jax.shard_map(
        local,
        mesh=config.mesh,
        in_specs=(heads, heads, heads, P(ROWS, None)),
        out_specs=heads,
        # The kernel's outputs carry no replication types.
        check_vma=False,
    )
    return lambda q, k, v: sharded(q, k, v, segment_ids)
