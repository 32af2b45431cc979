"""Layers of both the decoder and the vision tower: linear with optional adapter, norms, rotary embedding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, Float32, Int, Key

LoRAParam = nnx.LoRAParam
# Names of a matrix's axes but that of stacked layers, kept with the parameter: `sharding` splits it by them.
Axes = tuple[str, str]


def fan_in_normal(key: Key[jax.Array, ""], shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draws a kernel [..., inputs, outputs] from a normal distribution with deviation 1 / sqrt(inputs).

    A checkpoint replaces it. A model trained from scratch needs it: only with it the tiny base learns to
    ground.
    """
    return (jax.random.normal(key, shape, jnp.float32) * shape[-2] ** -0.5).astype(dtype)


class LoRA(nnx.Module):
    """A low-rank adapter, `scale * dropout(x) @ A @ B` (Hu et al. 2021).

    Attributes:
      a: [*lead, inputs, rank] float32, initialized as PEFT does (Kaiming uniform with a = sqrt(5)).
      b: [*lead, rank, outputs] float32, zero at first, so that the policy starts equal to its reference.
      scale: alpha / rank.
    """

    def __init__(
        self,
        lead: tuple[int, ...],
        fan_in: int,
        fan_out: int,
        axes: Axes,
        *,
        rank: int,
        alpha: float,
        dropout: float,
        key: jax.Array,
    ):
        # Kaiming uniform with a = sqrt(5) has gain sqrt(1/3) and bound gain * sqrt(3 / fan_in).
        bound = fan_in**-0.5
        a = jax.random.uniform(key, (*lead, fan_in, rank), jnp.float32, -bound, bound)
        self.a = LoRAParam(a, axes=(axes[0], "lora_rank"))
        self.b = LoRAParam(jnp.zeros((*lead, rank, fan_out), jnp.float32), axes=("lora_rank", axes[1]))
        self.scale = alpha / rank
        self.dropout = dropout

    def __call__(
        self, x: Float[jax.Array, "*lead inputs"], key: Key[jax.Array, ""] | None
    ) -> Float[jax.Array, "*lead outputs"]:
        """Computes what the adapter adds to a layer's output; a key enables dropout."""
        if key is not None and self.dropout > 0:
            # On the adapter's input only; the frozen path has no dropout (as in PEFT).
            # 16 random bits an entry: half the work of a 32-bit uniform number, which took a tenth of a step.
            drop = jax.random.bits(key, x.shape, jnp.uint16) < round(self.dropout * 2**16)
            x = jnp.where(drop, 0, x / (1 - self.dropout)).astype(x.dtype)
        # The parameters stay float32: an update of 1e-5 would vanish in bfloat16, whose values near 0.01 are
        # 6e-5 apart. The products are computed in the dtype of the activations.
        return (x @ self.a[...].astype(x.dtype)) @ self.b[...].astype(x.dtype) * self.scale

    def delta(self) -> Float32[jax.Array, "*lead inputs outputs"]:
        """Computes what the adapter adds to the layer's kernel."""
        return self.scale * (self.a[...] @ self.b[...])


class Linear(nnx.Module):
    """A linear layer with optional bias and adapter.

    Attributes:
      kernel: [inputs, outputs], with a leading layer axis in stacked layers.
      kernel_scale: [outputs] float32, what int8 kernels are multiplied by; see `quantize`.
    """

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        axes: Axes,
        *,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
        use_bias: bool = False,
    ):
        self.kernel = nnx.Param(fan_in_normal(rngs.params(), (fan_in, fan_out), param_dtype), axes=axes)
        self.kernel_scale: nnx.Param | None = nnx.data(None)
        self.bias = nnx.Param(jnp.zeros((fan_out,), param_dtype)) if use_bias else nnx.data(None)
        self.lora: LoRA | None = nnx.data(None)
        self.dtype = dtype

    def __call__(
        self,
        x: Float[jax.Array, "*lead inputs"],
        *,
        adapters: bool = False,
        key: Key[jax.Array, ""] | None = None,
    ) -> Float[jax.Array, "*lead outputs"]:
        # Flattened to two axes: XLA's CPU back end takes twice as long for the kernel's gradient when it
        # contracts over two.
        lead, x = x.shape[:-1], x.astype(self.dtype).reshape(-1, x.shape[-1])
        out = checkpoint_name(x @ self.kernel[...].astype(self.dtype), "linear")
        if self.kernel_scale is not None:
            out = out * self.kernel_scale[...].astype(self.dtype)
        if self.bias is not None:
            out = out + self.bias[...].astype(self.dtype)
        if adapters and self.lora is not None:
            out = out + self.lora(x, key)
        return out.reshape(*lead, -1)

    def weight(self) -> Float[jax.Array, "*layers inputs outputs"]:
        """Returns the kernel; an int8 one in float32, as it counts."""
        if self.kernel_scale is None:
            return self.kernel[...]
        return self.kernel[...].astype(jnp.float32) * self.kernel_scale[...][..., None, :]


def rms_norm(
    x: Float[jax.Array, "*lead size"], scale: Float[jax.Array, " size"], eps: float, offset: float = 0.0
) -> Float[jax.Array, "*lead size"]:
    """Normalizes the last axis by its root mean square, in float32; returns the dtype of `x`."""
    # A bfloat16 mean of squares over thousands of entries would have two or three digits.
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + eps)
    return ((offset + scale.astype(jnp.float32)) * x32).astype(x.dtype)


class RMSNorm(nnx.Module):
    """RMS normalization over the last axis, in float32.

    Attributes:
      scale: what `offset` is added to.
    """

    def __init__(self, size: int, *, eps: float, param_dtype: Any, offset: float = 0.0):
        self.scale = nnx.Param(jnp.full((size,), 1 - offset, param_dtype))
        self.eps, self.offset = eps, offset

    def __call__(self, x: Float[jax.Array, "*lead size"]) -> Float[jax.Array, "*lead size"]:
        return rms_norm(x, self.scale[...], self.eps, self.offset)


class LayerNorm(nnx.Module):
    """Layer normalization over the last axis with eps 1e-6, in float32."""

    def __init__(self, size: int, *, param_dtype: Any):
        self.scale = nnx.Param(jnp.ones((size,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((size,), param_dtype))

    def __call__(self, x: Float[jax.Array, "*lead size"]) -> Float[jax.Array, "*lead size"]:
        x32 = x.astype(jnp.float32)
        x32 = x32 - x32.mean(-1, keepdims=True)
        x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), -1, keepdims=True) + 1e-6)
        return (x32 * self.scale[...].astype(jnp.float32) + self.bias[...].astype(jnp.float32)).astype(
            x.dtype
        )


class Embedding(nnx.Module):
    """A table of `rows` vectors, initialized from a normal distribution with deviation `std`."""

    def __init__(
        self,
        rows: int,
        size: int,
        axes: Axes,
        *,
        std: float,
        rngs: nnx.Rngs,
        dtype: Any,
        param_dtype: Any,
    ):
        values = jax.random.normal(rngs.params(), (rows, size), jnp.float32) * std
        self.embedding = nnx.Param(values.astype(param_dtype), axes=axes)
        self.dtype = dtype

    def __call__(self, index: Int[jax.Array, "*lead"]) -> Float[jax.Array, "*lead size"]:
        return self.embedding[...][index].astype(self.dtype)


def rotate(
    x: Float[jax.Array, "*lead heads head_dim"],
    cos: Float32[jax.Array, "*#lead half_dim"],
    sin: Float32[jax.Array, "*#lead half_dim"],
) -> Float[jax.Array, "*lead heads head_dim"]:
    """Applies rotary embeddings: rotates each entry of a head's first half with one of its second half.

    Only the first entries of a head are rotated if the table is for fewer.
    """
    # The same angles for all heads. Halves, not neighbouring pairs as in the RoPE paper: checkpoints of
    # Llama-like models are stored for this order.
    cos, sin = cos[..., None, :], sin[..., None, :]
    size = cos.shape[-1]
    first, second, rest = jnp.split(x.astype(jnp.float32), [size, 2 * size], -1)
    rotated = [first * cos - second * sin, second * cos + first * sin, rest]
    return jnp.concatenate(rotated, -1).astype(x.dtype)
