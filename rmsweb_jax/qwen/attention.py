"""Attention of the decoder and of the vision tower: settings, and the reference for any mask.

The decoder's rule is that of `tree_attention`. The output at padding is finite, but differs between back
ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Bool, Float

Queries = Float[jax.Array, "rows tokens heads head_dim"]
Keys = Float[jax.Array, "rows tokens kv_heads head_dim"]
# (queries, keys, values) -> mixed values, for rows whose mask is fixed.
Attend = Callable[[Queries, Keys, Keys], Queries]

BACKENDS = ("dense", "blocks", "pallas", "cudnn", "triton")
# Lanes of a TPU's vector registers: head dimensions and blocks of the TPU kernels are multiples of it.
TPU_LANES = 128

_MASKED = -1e30  # Finite: a query with no visible key gets a uniform mixture instead of NaN.
# A block of the reference has an eighth of a row's queries, and at least these.
_BLOCK = 64


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """The attention back end and its settings; hashable, so that it can be static under `jax.jit`.

    Attributes:
      backend: "dense" is the reference, with a mask of all pairs; it holds the scores of an eighth of a row's
        queries. "blocks" computes only blocks with visible pairs, on any platform. "pallas" is the same as a
        TPU kernel, for head dimensions and row lengths that are multiples of 128. "cudnn" is the fused GPU
        kernel with a mask, for 16-bit floats and head dimensions that are multiples of 8 up to 128. "triton"
        is the same as "pallas" for GPUs, for 16-bit floats and head dimensions 16, 32, 64 and 128.
      mesh: its `data` and `fsdp` axes split rows, its `tensor` axis splits heads. With several devices
        all but "dense" need it, since XLA cannot partition a kernel or a loop over blocks.
      block: largest number of tokens of a block; 0 takes that of the platform.
      interpret: runs on any platform: the Pallas kernels in their interpreter, cudnn's calls by XLA.
    """

    backend: str = "dense"
    mesh: Mesh | None = None
    block: int = 0
    interpret: bool = False

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"attention back end is {self.backend!r}, not one of {BACKENDS}")


def _attend_block(
    q: Float[jax.Array, "rows kv_heads queries head_dim"],
    k: Float[jax.Array, "rows kv_heads keys head_dim"],
    v: Float[jax.Array, "rows kv_heads keys head_dim"],
    mask: Bool[jax.Array, "rows queries keys"],
) -> Float[jax.Array, "rows kv_heads queries head_dim"]:
    # Scores and softmax in float32, as in the reference; the weights are rounded for the second product.
    scores = jnp.einsum("bkqd,bksd->bkqs", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, _MASKED), axis=-1)
    return jnp.einsum("bkqs,bksd->bkqd", weights.astype(v.dtype), v)


def attend(
    q: Queries, k: Keys, v: Keys, mask: Bool[jax.Array, "rows tokens tokens"], *, causal: bool = True
) -> Queries:
    """Computes grouped-query attention without repeating keys and values.

    Args:
      q: `heads` is a multiple of `kv_heads`.
      mask: query by key.
      causal: the mask hides all later keys, so that blocks of queries skip the keys after them.

    Returns:
      The mixed values in the dtype of `v`.
    """
    batch, length, heads, size = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    # The queries of a group follow one another on the token axis, so that a block is one batched matrix
    # product.
    q = (q * size**-0.5).reshape(batch, length, kv_heads, group, size)
    # q: [rows, kv_heads, tokens * group, head_dim]; k, v: [rows, kv_heads, tokens, head_dim].
    q = q.transpose(0, 2, 1, 3, 4).reshape(batch, kv_heads, length * group, size)
    k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    mask = jnp.repeat(mask, group, axis=1)
    # Eight blocks: causal ones skip later keys, which saves 7/16 of the scores, and only one block's scores
    # are in memory at a time.
    block = max(_BLOCK, length // 8) if causal else length
    blocks = []
    for start in range(0, length, block):
        stop = min(start + block, length)
        keys = stop if causal else length
        rows = slice(start * group, stop * group)
        blocks.append(_attend_block(q[:, :, rows], k[:, :, :keys], v[:, :, :keys], mask[:, rows, :keys]))
    out = jnp.concatenate(blocks, axis=2) if len(blocks) > 1 else blocks[0]
    out = out.reshape(batch, kv_heads, length, group, size).transpose(0, 2, 1, 3, 4)
    return out.reshape(batch, length, heads, size)
