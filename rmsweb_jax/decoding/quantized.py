"""Keys and values as caches hold them: in the model's floats, or in 8 bits with scales."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Shaped

# "model" keeps the dtype of the computation; the others keep 8 bits and one scale for each head and position.
CACHE_DTYPES = ("model", "int8", "float8_e4m3fn")

# Largest finite value of each 8-bit type, to which the largest entry of a vector is scaled.
_LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}


class CacheArray(NamedTuple):
    """Keys or values of a layer; in 8 bits their value is `data * scale[..., None]`.

    The scale has the axes of `data` without the head dimension, also where `data` is transposed.
    """

    data: Shaped[jax.Array, ...]
    scale: Float32[jax.Array, ...] | None = None


def to_cache(x: Float[jax.Array, "*axes head_dim"], dtype: str) -> CacheArray:
    """Converts keys or values to the form of a cache of `dtype`, one of `CACHE_DTYPES`."""
    if dtype == "model":
        return CacheArray(x)
    largest = _LARGEST[dtype]
    x32 = x.astype(jnp.float32)
    # A vector of zeros would otherwise be divided by a scale of zero.
    scale = jnp.maximum(jnp.abs(x32).max(-1) / largest, 1e-12)
    data = x32 / scale[..., None]
    # A cast to int8 truncates; a cast to float8 rounds to nearest by itself.
    return CacheArray((jnp.round(data) if dtype == "int8" else data).astype(dtype), scale)


def swap_last_axes(keys: CacheArray) -> CacheArray:
    """Converts keys [..., positions, head_dim] to [..., head_dim, positions], or back."""
    return keys._replace(data=keys.data.swapaxes(-2, -1))
