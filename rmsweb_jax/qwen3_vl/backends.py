"""The back ends of the decoder's attention: choice by platform, and what each needs for given rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Int32

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import TPU_LANES, Attend, AttentionConfig, attend
from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.qwen3_vl.tree_attention import TreeKernel, tree_attention, visible_pairs
from rmsweb_jax.training.mesh import ROWS

# Tokens of a block: on TPU of at most 512, which compute a quarter fewer pairs than 1,024 on samples of 3,000
# tokens; on CPU of at most 256, which stay in its caches (docs/results/rows.md). Rows without a block of at
# least 64 are short, and the reference computes them faster than a loop.
_TPU_BLOCK, _CPU_BLOCK, _LEAST_BLOCK = 512, 256, 64
# Fast memory of a core in MiB by the name that JAX gives the chip, and what the fused backward kernel needs
# of it in addition to the gradients of a row's keys and values.
_VMEM_MIB = {"TPU v4": 16, "TPU v5 lite": 128, "TPU v5": 64, "TPU v5p": 64, "TPU v6 lite": 128, "TPU7x": 64}
_BLOCKS_MIB = 20


def default_attention(
    head_dim: int, dtype: Any, mesh: Mesh | None = None, block: int = 0, platform: str | None = None
) -> AttentionConfig:
    """Chooses the fastest back end for a head dimension and dtype.

    Args:
      block: largest number of tokens of a block; 0 takes that of the platform.
      platform: "tpu", "gpu" or "cpu"; by default the one that JAX runs on.
    """
    platform = platform or jax.default_backend()
    # The fused kernels' own limits; anything else is computed block by block.
    if platform == "tpu" and head_dim % TPU_LANES == 0:
        return AttentionConfig("pallas", mesh, block)
    if platform == "gpu" and jnp.dtype(dtype).itemsize == 2 and head_dim % 8 == 0 and head_dim <= 128:
        return AttentionConfig("cudnn", mesh)
    return AttentionConfig("blocks", mesh, block)


def make_attend(config: AttentionConfig, until: Int32[Array, "rows tokens"]) -> Attend:
    """Makes the function that computes the rule of `tree_attention` for given rows.

    Raises:
      UserError: rows of the TPU kernel are not a multiple of 128 tokens.
    """
    until = jnp.asarray(until)
    length = until.shape[1]
    if config.backend == "cudnn":
        mask = visible_pairs(until)[:, None]
        # cuDNN reads the mask's bytes. `interpret` computes the same call by XLA, so that CPUs can test it.
        implementation = "xla" if config.interpret else "cudnn"
        return lambda q, k, v: jax.nn.dot_product_attention(
            q, k, v, mask=mask, is_causal=True, implementation=implementation
        )
    if config.backend == "pallas":
        block = _block(length, config.block or _TPU_BLOCK)
        if block < TPU_LANES:
            raise UserError(
                f"attention on TPU: rows of {length} tokens are not a multiple of {TPU_LANES}: make "
                "config.row_multiple one"
            )
        kernel = TreeKernel(block, interpret=config.interpret)
    else:
        block = _block(length, config.block or _CPU_BLOCK)
        if config.backend == "dense" or block < _LEAST_BLOCK:
            mask = visible_pairs(until)
            return lambda q, k, v: attend(q, k, v, mask)
        kernel = TreeKernel(block, implementation="xla")
    return _sharded(kernel, until, config.mesh)


def _sharded(kernel: TreeKernel, until: Int32[jax.Array, "rows tokens"], mesh: Mesh | None) -> Attend:
    """Computes each device's rows and heads on the device."""

    def local(q: jax.Array, k: jax.Array, v: jax.Array, until: jax.Array) -> jax.Array:
        return tree_attention(q, k, v, until, _fitted(kernel, q.shape[1], q.shape[3], mesh))

    if mesh is None or mesh.size == 1:
        return lambda q, k, v: local(q, k, v, until)
    heads = P(ROWS, None, "tensor", None)
    # The kernel's outputs carry no replication types.
    sharded = jax.shard_map(
        local, mesh=mesh, in_specs=(heads, heads, heads, P(ROWS, None)), out_specs=heads, check_vma=False
    )
    return lambda q, k, v: sharded(q, k, v, until)


def _fitted(kernel: TreeKernel, length: int, head_dim: int, mesh: Mesh | None) -> TreeKernel:
    """Chooses the backward kernel by the chip's fast memory."""
    if kernel.implementation != "pallas" or kernel.interpret:
        return kernel
    chip = (mesh.devices.flat if mesh is not None else jax.devices())[0].device_kind
    # float32 gradients of keys and values, each in two buffers.
    needed = (2 * 2 * 4 * length * head_dim >> 20) + _BLOCKS_MIB
    if needed > _VMEM_MIB.get(chip, 0) * 15 // 16:
        return dataclasses.replace(kernel, fused_backward=False)
    return dataclasses.replace(kernel, fused_backward=True, vmem_mib=needed)


def _block(length: int, most: int) -> int:
    """Returns the largest of `most`, `most` / 2, ... that divides a length."""
    while length % most:
        most //= 2
    return most
