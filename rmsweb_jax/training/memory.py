"""Memory of devices: what arrays take of it, and which rematerialization a gradient needs to fit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.stages import Compiled, Lowered

from rmsweb_jax.training.mesh import any_process


def device_bytes(tree: Any) -> int:
    """Counts the bytes of sharded arrays, also abstract ones, on one device."""
    leaves = jax.tree.leaves(tree)
    # An abstract array without a sharding is on one device.
    shapes = [leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves]
    return sum(math.prod(shape) * _item_bytes(leaf.dtype) for shape, leaf in zip(shapes, leaves, strict=True))


def uneven_split(tree: Any, devices: int) -> float:
    """Bytes of sharded arrays on one device over those of an even split; `devices` if each has a copy."""
    whole = sum(math.prod(leaf.shape) * _item_bytes(leaf.dtype) for leaf in jax.tree.leaves(tree))
    return device_bytes(tree) * devices / whole


def _item_bytes(dtype: Any) -> int:
    # A PRNG key has no itemsize of its own; its implementation has two words.
    return 8 if jnp.issubdtype(dtype, jax.dtypes.prng_key) else dtype.itemsize


def choose_remat(fits: Callable[[str], bool]) -> str:
    """Returns "named" if a program fits with it in all processes, otherwise "full".

    Not "offload": an 8B layer would move 160 KB a token to the host and back, which takes longer than "full"
    needs to compute them again where the host is behind PCIe (5 and 2 us at 32 GB/s and 50 % of a v5p).
    """
    chosen = "full" if any_process(not fits("named")) else "named"
    logging.info("remat=%s chosen", chosen)
    return chosen


def program_bytes(compiled: Compiled) -> int:
    """Counts the memory of a device that a program needs, with its arguments."""
    memory = compiled.memory_analysis()
    if memory is None:
        return 0
    # Not the compiler's peak, which counts arrays in host memory as well.
    return (
        memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.generated_code_size_in_bytes
    )


def out_of_memory(error: Exception) -> bool:
    """True if a program does not fit the memory of a device; a kernel may also lack fast memory."""
    return "RESOURCE_EXHAUSTED" in str(error) and "Vmem" not in str(error)


def fits_device(lower: Callable[[], Lowered], resident: Any) -> bool:
    """True if a program fits the devices of this machine, or if their memory is not known.

    Args:
      lower: makes the program, which is compiled unless the memory is not known.
      resident: other arrays that stay on the devices.
    """
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return True
    try:
        needed = program_bytes(lower().compile())
    except jax.errors.JaxRuntimeError as error:
        if not out_of_memory(error):
            raise
        return False
    return needed + device_bytes(resident) <= limit
