"""The back ends of the attention rule: choice by platform, and the fused GPU kernel of cuDNN."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Int32

from rmsweb_jax.qwen3_vl.attention import TPU_LANES, Attend, AttentionConfig, attend, attention_mask
from rmsweb_jax.qwen3_vl.inputs import Array, RowLayout


def default_attention(
    head_dim: int, dtype: Any, mesh: Mesh | None = None, platform: str | None = None
) -> AttentionConfig:
    """Chooses the fastest back end for a head dimension and dtype.

    Args:
      platform: "tpu", "gpu" or "cpu"; by default the one that JAX runs on.
    """
    platform = platform or jax.default_backend()
    # The fused kernels' own limits; anything else takes the reference.
    if platform == "tpu" and head_dim % TPU_LANES == 0:
        return AttentionConfig("splash", mesh)
    if platform == "gpu" and jnp.dtype(dtype).itemsize == 2 and head_dim % 8 == 0 and head_dim <= 128:
        return AttentionConfig("cudnn", mesh)
    return AttentionConfig("xla", mesh)


def make_attend(
    config: AttentionConfig,
    segment_ids: Int32[Array, "rows tokens"],
    slot_ids: Int32[Array, "rows tokens"] | None,
    layout: RowLayout | None,
) -> Attend:
    """Makes the function that computes the attention rule for given rows.

    Args:
      segment_ids, slot_ids, layout: see `ModelInputs`.

    Raises:
      ValueError: the back end needs a layout for rows with slots.
    """
    if config.backend == "splash":
        # Imported here: the kernel's module takes a second to import, and most platforms never run it.
        from rmsweb_jax.qwen3_vl.splash import make_splash_attend

        if slot_ids is not None and layout is None:
            raise ValueError(
                "splash attention needs slots at fixed positions: lay the rows out with a RowLayout"
            )
        return make_splash_attend(config, jnp.asarray(segment_ids), layout)
    if config.backend == "cudnn":
        return _cudnn_attend(config, segment_ids, slot_ids, layout)
    mask = attention_mask(segment_ids, slot_ids)
    return lambda q, k, v: attend(q, k, v, mask)


def _cudnn_attend(
    config: AttentionConfig, segment_ids: Array, slot_ids: Array | None, layout: RowLayout | None
) -> Attend:
    # cuDNN has a causal mode. Any other rule must be passed as a mask, whose bytes it then reads.
    # `interpret` computes the same calls by XLA, so that CPUs can test the layout below.
    implementation = "xla" if config.interpret else "cudnn"
    kernel = functools.partial(jax.nn.dot_product_attention, implementation=implementation)
    if layout is None:
        mask = attention_mask(segment_ids, slot_ids)[:, None]
        return lambda q, k, v: kernel(q, k, v, mask=mask, is_causal=True)
    if not layout.slot:
        return lambda q, k, v: kernel(q, k, v, is_causal=True)
    return _shared_prefix(kernel, segment_ids, layout)


def _shared_prefix(kernel: Any, segment_ids: Array, layout: RowLayout) -> Attend:
    """Computes rows with slots as two calls: the prompt, causal; then each slot as a row of its own."""
    rows, length = segment_ids.shape
    prompt, slot = layout.prompt, layout.slot
    slots = (length - prompt) // slot
    # One mask [rows * slots, 1, slot, prompt + slot] instead of one over the whole row: a slot sees the real
    # tokens of its prompt, and itself causally.
    read = jnp.asarray(segment_ids)[:, None, :prompt] > 0
    own = jnp.tril(jnp.ones((slot, slot), bool))
    parts = [jnp.broadcast_to(part, (rows, slot, part.shape[-1])) for part in (read, own)]
    mask = jnp.repeat(jnp.concatenate(parts, axis=-1), slots, axis=0)[:, None]

    def replies(x: jax.Array) -> jax.Array:
        """Reshapes the slots of [rows, tokens, heads, head_dim] to rows of their own."""
        return x[:, prompt:].reshape(rows * slots, slot, *x.shape[2:])

    def visible(x: jax.Array) -> jax.Array:
        """Joins the prompt and each slot, which is what the slot sees."""
        return jnp.concatenate([jnp.repeat(x[:, :prompt], slots, axis=0), replies(x)], axis=1)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        # Prompts begin at position 0, so that causality hides their padding from all real tokens.
        of_prompt = kernel(q[:, :prompt], k[:, :prompt], v[:, :prompt], is_causal=True)
        of_slots = kernel(replies(q), visible(k), visible(v), mask=mask)
        return jnp.concatenate([of_prompt, of_slots.reshape(rows, slots * slot, *q.shape[2:])], axis=1)

    return attend
