"""Parts that both towers share: linear layers with an optional adapter, norms, rotary embedding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

LoRAParam = nnx.LoRAParam


def fan_in_normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """normal(1 / sqrt(fan-in)) for kernels [..., in, out]: with it the tiny base learns to ground at all."""
    return (jax.random.normal(key, shape, jnp.float32) * shape[-2] ** -0.5).astype(dtype)


class LoRA(nnx.Module):
    """Low-rank addition `scale * dropout(x) @ A @ B`.

    Attributes:
      a: [..., in, rank] float32, Kaiming uniform with a = sqrt(5).
      b: [..., rank, out] float32, zero at the start, so that the policy starts as its reference.
    """

    def __init__(
        self,
        lead: tuple[int, ...],
        fan_in: int,
        fan_out: int,
        *,
        rank: int,
        alpha: float,
        dropout: float,
        key: jax.Array,
    ):
        bound = fan_in**-0.5
        self.a = LoRAParam(jax.random.uniform(key, (*lead, fan_in, rank), jnp.float32, -bound, bound))
        self.b = LoRAParam(jnp.zeros((*lead, rank, fan_out), jnp.float32))
        self.scale = alpha / rank
        self.dropout = dropout

    def __call__(self, x: jax.Array, key: jax.Array | None) -> jax.Array:
        """[..., in] -> [..., out]; a key turns dropout on."""
        if key is not None and self.dropout > 0:
            keep = jax.random.bernoulli(key, 1 - self.dropout, x.shape)
            x = jnp.where(keep, x / (1 - self.dropout), 0).astype(x.dtype)
        return (x @ self.a[...].astype(x.dtype)) @ self.b[...].astype(x.dtype) * self.scale

    def delta(self) -> jax.Array:
        """What the adapter adds to the kernel: [..., in, out] float32."""
        return self.scale * (self.a[...] @ self.b[...])


class Linear(nnx.Module):
    """`x @ kernel (+ bias) (+ adapter)`, kernel [in, out]; stacked layers have a leading layer axis.

    Inputs are flattened to two axes: XLA's CPU backend is twice as slow on the kernel's gradient when it
    contracts over two.
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        *,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
        use_bias: bool = False,
    ):
        self.kernel = nnx.Param(fan_in_normal(rngs.params(), (fan_in, fan_out), param_dtype))
        self.bias = nnx.Param(jnp.zeros((fan_out,), param_dtype)) if use_bias else nnx.data(None)
        self.lora: LoRA | None = nnx.data(None)
        self.dtype = dtype

    def __call__(self, x: jax.Array, *, adapters: bool = False, key: jax.Array | None = None) -> jax.Array:
        lead, x = x.shape[:-1], x.astype(self.dtype).reshape(-1, x.shape[-1])
        out = x @ self.kernel[...].astype(self.dtype)
        if self.bias is not None:
            out = out + self.bias[...].astype(self.dtype)
        if adapters and self.lora is not None:
            out = out + self.lora(x, key)
        return out.reshape(*lead, -1)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """RMS normalisation over the last axis, in float32; returns x's dtype."""
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + eps)
    return (scale.astype(jnp.float32) * x32).astype(x.dtype)


class RMSNorm(nnx.Module):
    def __init__(self, size: int, *, eps: float, param_dtype: Any):
        self.scale = nnx.Param(jnp.ones((size,), param_dtype))
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        return rms_norm(x, self.scale[...], self.eps)


class LayerNorm(nnx.Module):
    """Layer normalisation over the last axis with eps 1e-6, in float32."""

    def __init__(self, size: int, *, param_dtype: Any):
        self.scale = nnx.Param(jnp.ones((size,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((size,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        x32 = x32 - x32.mean(-1, keepdims=True)
        x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + 1e-6)
        return (x32 * self.scale[...].astype(jnp.float32) + self.bias[...].astype(jnp.float32)).astype(
            x.dtype
        )


class Embedding(nnx.Module):
    def __init__(self, rows: int, size: int, *, std: float, rngs: nnx.Rngs, dtype: Any, param_dtype: Any):
        values = jax.random.normal(rngs.params(), (rows, size), jnp.float32) * std
        self.embedding = nnx.Param(values.astype(param_dtype))
        self.dtype = dtype

    def __call__(self, index: jax.Array) -> jax.Array:
        return self.embedding[...][index].astype(self.dtype)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotates halves of the head dimension: x [..., heads, D], cos and sin [..., D / 2] in float32."""
    cos, sin = cos[..., None, :], sin[..., None, :]
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)
