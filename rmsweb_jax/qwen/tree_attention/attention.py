"""Tree attention with its gradient, by the implementation that is asked for."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float32

from rmsweb_jax.qwen.attention import Keys, Queries
from rmsweb_jax.qwen.tree_attention.rule import Ends, TreeKernel


def _implementation(kernel: TreeKernel) -> Any:
    # Imported when asked for: Pallas takes a second to load, and a process runs on one platform.
    return importlib.import_module(f"rmsweb_jax.qwen.tree_attention.{kernel.implementation}")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def tree_attention(q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel) -> Queries:
    """Computes grouped-query attention of prefix trees; scores are scaled by `head_dim ** -0.5`.

    Args:
      q: `heads` is a multiple of `kv_heads`.
      until: see `rule`.

    Returns:
      The mixed values in the dtype of `q`. Padding gets its own values.
    """
    return _forward(q, k, v, until, kernel)[0]


def _forward(
    q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel
) -> tuple[Queries, Float32[jax.Array, "rows kv_heads group tokens"]]:
    """Returns the mixed values, and the logarithms of the sums of exponentials of scores."""
    return _implementation(kernel).forward(q, k, v, jnp.asarray(until), kernel)


def _save(q: Queries, k: Keys, v: Keys, until: Ends, kernel: TreeKernel) -> tuple[Queries, tuple[Any, ...]]:
    # A name by which rematerialization saves them, see `text.remat`.
    out, log_total = (checkpoint_name(x, "attention") for x in _forward(q, k, v, until, kernel))
    return out, (q, k, v, until, out, log_total)


def _backward(kernel: TreeKernel, saved: tuple[Any, ...], grad: Queries) -> tuple[Any, ...]:
    q, k, v, until, out, log_total = saved
    rows, tokens, heads, size = out.shape
    # The gradient through the softmax's denominator: one number a query and head. As a product with zeros and
    # ones, because a sum over the last of four axes makes XLA copy both arrays on TPU.
    of_head = jnp.repeat(jnp.eye(heads, dtype=jnp.float32), size, axis=0)
    flat = (rows, tokens, heads * size)
    products = out.reshape(flat).astype(jnp.float32) * grad.reshape(flat).astype(jnp.float32)
    delta = jnp.einsum("btx,xh->bht", products, of_head, precision=jax.lax.Precision.HIGHEST)
    delta = delta.reshape(rows, k.shape[2], -1, tokens)
    backward = _implementation(kernel).backward
    return *backward(q, k, v, jnp.asarray(until), grad, log_total, delta, kernel), None


tree_attention.defvjp(_save, _backward)
