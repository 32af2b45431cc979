"""Which back end computes the attention rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from rmsweb_jax.qwen3_vl.attention import LANES, Attend, AttentionConfig, attend, attention_mask
from rmsweb_jax.qwen3_vl.inputs import Array, SlotLayout


def default_attention(
    head_dim: int, mesh: Mesh | None = None, platform: str | None = None
) -> AttentionConfig:
    """The fastest back end of a platform (the one that runs here by default), for heads of `head_dim`."""
    fused = (platform or jax.default_backend()) == "tpu" and head_dim % LANES == 0
    return AttentionConfig("splash" if fused else "xla", mesh)


def make_attend(
    config: AttentionConfig, segment_ids: Array, slot_ids: Array | None, layout: SlotLayout | None
) -> Attend:
    """The rule for given rows, as a function of q [B, T, Hq, D] and k, v [B, T, Hkv, D] to [B, T, Hq, D].

    Args:
      segment_ids, slot_ids, layout: as in `ModelInputs`.

    Raises:
      ValueError: the back end needs a layout for rows with slots.
    """
    if config.backend == "splash":
        # Imported where it is used: the kernel's module costs a second, and most platforms never run it.
        from rmsweb_jax.qwen3_vl.splash import make_splash_attend

        if slot_ids is not None and layout is None:
            raise ValueError(
                "splash attention needs slots at fixed places: lay the rows out with a SlotLayout"
            )
        return make_splash_attend(config, jnp.asarray(segment_ids), layout)
    mask = attention_mask(segment_ids, slot_ids)
    return lambda q, k, v: attend(q, k, v, mask)
