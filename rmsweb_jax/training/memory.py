"""Memory of devices: what arrays take of it, and which rematerialization a gradient needs to fit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# Policies of rematerialization by what the backward pass repeats or moves, the least first.
_POLICIES = ("named", "offload", "full")


def device_bytes(tree: Any) -> int:
    """Counts the bytes of sharded arrays, also abstract ones, on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * _item_bytes(leaf.dtype) for leaf in leaves)


def uneven_split(tree: Any, devices: int) -> float:
    """Bytes of sharded arrays on one device over those of an even split; `devices` if each has a copy."""
    whole = sum(math.prod(leaf.shape) * _item_bytes(leaf.dtype) for leaf in jax.tree.leaves(tree))
    return device_bytes(tree) * devices / whole


def _item_bytes(dtype: Any) -> int:
    # A PRNG key has no itemsize of its own; its implementation has two words.
    return 8 if jnp.issubdtype(dtype, jax.dtypes.prng_key) else dtype.itemsize


def choose_remat(fits: Callable[[str], bool]) -> str:
    """Returns the first of "named", "offload" and "full" with which a program fits, or "full" untried."""
    chosen = next((policy for policy in _POLICIES[:-1] if fits(policy)), _POLICIES[-1])
    logging.info("remat=%s chosen", chosen)
    return chosen


def fits_device(lower: Callable[[], jax.stages.Lowered], resident: Any) -> bool:
    """True if a program fits the devices of this machine, or if their memory is not known.

    Args:
      lower: makes the program, which is compiled unless the memory is not known.
      resident: other arrays that stay on the devices.
    """
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return True
    try:
        memory = lower().compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return False
    return memory is None or memory.peak_memory_in_bytes + device_bytes(resident) <= limit
