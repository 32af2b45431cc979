"""The attention rule on GPU: cuDNN's flash attention, through `jax.nn.dot_product_attention`.

The kernel knows "causal" by itself; any other rule is a mask that it has to read, [Q, S] for every row. A
row of one segment (a `RowLayout`) needs none for its prompt: padding follows it, where nothing looks back
from. Slots need one of [slot, prompt + slot], over the prompt's keys repeated for each slot: that is the
work of the rule and no more, where a mask over the whole row would compute all pairs of slots.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rmsweb_jax.qwen3_vl.attention import Attend, AttentionConfig, attention_mask
from rmsweb_jax.qwen3_vl.inputs import Array, RowLayout


def make_cudnn_attend(
    config: AttentionConfig, segment_ids: Array, slot_ids: Array | None, layout: RowLayout | None
) -> Attend:
    """See `backends.make_attend`."""
    implementation = "xla" if config.interpret else "cudnn"
    kernel = functools.partial(jax.nn.dot_product_attention, implementation=implementation)
    if layout is None:
        mask = attention_mask(segment_ids, slot_ids)[:, None]
        return lambda q, k, v: kernel(q, k, v, mask=mask, is_causal=True)
    if not layout.slot:
        return lambda q, k, v: kernel(q, k, v, is_causal=True)
    return _shared_prefix(kernel, segment_ids, layout)


def _shared_prefix(kernel: Any, segment_ids: Array, layout: RowLayout) -> Attend:
    rows, length = segment_ids.shape
    prompt, slot = layout.prompt, layout.slot
    slots = (length - prompt) // slot
    read = jnp.asarray(segment_ids)[:, None, :prompt] > 0
    own = jnp.tril(jnp.ones((slot, slot), bool))
    parts = [jnp.broadcast_to(part, (rows, slot, part.shape[-1])) for part in (read, own)]
    mask = jnp.repeat(jnp.concatenate(parts, axis=-1), slots, axis=0)[:, None]

    def replies(x: jax.Array) -> jax.Array:
        """The slots of [B, T, H, D] as rows: [B * slots, slot, H, D]."""
        return x[:, prompt:].reshape(rows * slots, slot, *x.shape[2:])

    def visible(x: jax.Array) -> jax.Array:
        """What each slot sees: the prompt, then itself."""
        return jnp.concatenate([jnp.repeat(x[:, :prompt], slots, axis=0), replies(x)], axis=1)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        of_prompt = kernel(q[:, :prompt], k[:, :prompt], v[:, :prompt], is_causal=True)
        of_slots = kernel(replies(q), visible(k), visible(v), mask=mask)
        return jnp.concatenate([of_prompt, of_slots.reshape(rows, slots * slot, *q.shape[2:])], axis=1)

    return attend
