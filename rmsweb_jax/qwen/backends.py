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
from rmsweb_jax.qwen.attention import TPU_LANES, Attend, AttentionConfig, attend
from rmsweb_jax.qwen.delta_kernel import delta_rule_kernel
from rmsweb_jax.qwen.gated_delta import Recur, delta_rule
from rmsweb_jax.qwen.inputs import Array, TreeTables
from rmsweb_jax.qwen.tree_attention.attention import tree_attention
from rmsweb_jax.qwen.tree_attention.rule import MAX_BLOCKS, TreeKernel, visible_pairs
from rmsweb_jax.training.mesh import ROWS

# Implementation, largest and smallest block. Blocks of 1,024 compute a third more pairs than 512 on samples
# of 3,000 tokens, and do not fit the fast memory of every TPU. 128 is the largest that stays in the registers
# of an H100, and 256 stay in the caches of a CPU; without a block of 64 the reference is faster than a loop.
_KERNELS = {
    "pallas": ("tpu", 512, TPU_LANES),
    "triton": ("gpu", 128, 16),
    "blocks": ("loop", 256, 64),
    "cudnn": ("", 0, 0),
    "dense": ("", 0, 0),
}
# Fast memory of a core in MiB by the name that JAX gives the chip, and what the fused backward kernel needs
# of it in addition to the gradients of a row's keys and values.
_VMEM_MIB = {"TPU v4": 16, "TPU v5 lite": 128, "TPU v5": 64, "TPU v5p": 64, "TPU v6 lite": 128, "TPU7x": 64}
_BLOCKS_MIB = 20


def choose_attention(
    head_dim: int,
    dtype: Any,
    mesh: Mesh | None = None,
    *,
    backend: str = "auto",
    block: int = 0,
    platform: str | None = None,
) -> AttentionConfig:
    """Chooses the back end for a head dimension and dtype.

    Args:
      backend: one of `attention.BACKENDS`; "auto" is the fastest that was measured on the platform.
      block: largest number of tokens of a block; 0 takes that of the platform.
      platform: "tpu", "gpu" or "cpu"; by default the one that JAX runs on.

    Raises:
      UserError: the back end does not compute such heads on the platform, or has no such block.
    """
    platform = platform or jax.default_backend()
    on_gpu = platform == "gpu" and jnp.dtype(dtype).itemsize == 2 and head_dim <= 128
    # The fused kernels' own limits; anything else is computed block by block.
    able = {
        "pallas": platform == "tpu" and head_dim % TPU_LANES == 0,
        "cudnn": on_gpu and head_dim % 8 == 0,
        "triton": on_gpu and head_dim in (16, 32, 64, 128),
        "blocks": True,
        "dense": True,
    }
    if backend == "auto":
        backend = next(name for name, fits in able.items() if fits)
    elif not able.get(backend):
        raise UserError(
            f"config.attention={backend} does not compute heads of {head_dim} {jnp.dtype(dtype).name} "
            f"numbers on a {platform.upper()}: leave it at auto"
        )
    _, most, least = _KERNELS[backend]
    if block and not (least <= block <= most and block & (block - 1) == 0):
        raise UserError(
            f"config.attention_block={block}: take a power of two from {least} to {most} for "
            f"config.attention={backend}, or 0"
        )
    return AttentionConfig(backend, mesh, block)


def make_attend(config: AttentionConfig, until: Int32[Array, "rows tokens"]) -> Attend:
    """Makes the function that computes the rule of `tree_attention` for given rows.

    Raises:
      UserError: rows of a kernel are not a multiple of 128 tokens.
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
    implementation, most, least = _KERNELS[config.backend]
    block = _block(length, config.block or most) if implementation else 0
    if config.backend == "dense" or (config.backend == "blocks" and block < least):
        mask = visible_pairs(until)
        return lambda q, k, v: attend(q, k, v, mask)
    if block < least:
        raise UserError(
            f"attention: rows of {length} tokens are not a multiple of {least}: make config.row_multiple, "
            "and in RL config.bucket_multiple, one"
        )
    if length > block * MAX_BLOCKS:
        raise UserError(
            f"attention: rows of {length} tokens have more than {MAX_BLOCKS} blocks of {block}: make "
            f"config.row_multiple a multiple of {most}"
        )
    return _sharded(TreeKernel(block, implementation, interpret=config.interpret), until, config.mesh)


def make_recur(config: AttentionConfig, until: Int32[Array, "rows tokens"], tables: TreeTables) -> Recur:
    """Makes the function that computes the recurrence of `gated_delta` for given rows."""
    until, tables = jnp.asarray(until), jax.tree.map(jnp.asarray, tables)
    if config.backend != "pallas":
        return lambda q, k, v, log_decay, beta: delta_rule(q, k, v, log_decay, beta, until, tables)[0]

    def local(*parts: Any) -> jax.Array:
        q, k, v, log_decay, beta, until, entry, keep = parts
        # Parents are of the convolution.
        own = TreeTables(entry, entry, keep)
        return delta_rule_kernel(q, k, v, log_decay, beta, until, own, config.interpret)

    rest, mesh = (until, tables.entry, tables.keep), config.mesh
    if mesh is None or mesh.size == 1:
        return lambda q, k, v, log_decay, beta: local(q, k, v, log_decay, beta, *rest)
    heads, rows = P(ROWS, None, "tensor"), P(ROWS)
    specs = (*[heads] * 5, rows, rows, rows)
    sharded = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=heads, check_vma=False)
    return lambda q, k, v, log_decay, beta: sharded(q, k, v, log_decay, beta, *rest)


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
    if kernel.implementation != "tpu" or kernel.interpret:
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
