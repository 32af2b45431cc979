"""Keys and values as a cache holds them: in the model's floats, or in 8 bits with scales."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# How a cache is stored: as the model computes, or in 8 bits with a scale a head and place.
CACHE_DTYPES = ("model", "int8", "float8_e4m3fn")

_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}


class Stored(NamedTuple):
    """Keys or values of a layer, [..., D]; `data * scale` with a float32 scale [...] when in 8 bits."""

    data: jax.Array
    scale: jax.Array | None = None


def store(x: jax.Array, dtype: str) -> Stored:
    """Keys or values [..., D] as a cache of `dtype` (one of `CACHE_DTYPES`) holds them."""
    if dtype == "model":
        return Stored(x)
    largest = _LARGEST[dtype]
    x32 = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(x32).max(-1) / largest, 1e-12)
    data = x32 / scale[..., None]
    return Stored((jnp.round(data) if dtype == "int8" else data).astype(dtype), scale)


def turned(keys: Stored) -> Stored:
    """Keys [..., P, D] as [..., D, P], and the other way round."""
    return keys._replace(data=keys.data.swapaxes(-2, -1))
