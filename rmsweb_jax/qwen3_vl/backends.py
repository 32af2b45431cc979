"""Which back end computes the attention rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from rmsweb_jax.qwen3_vl.attention import LANES, Attend, AttentionConfig, attend, attention_mask
from rmsweb_jax.qwen3_vl.cudnn import make_cudnn_attend
from rmsweb_jax.qwen3_vl.inputs import Array, RowLayout


def default_attention(
    head_dim: int, dtype: Any, mesh: Mesh | None = None, platform: str | None = None
) -> AttentionConfig:
    """The fastest back end of a platform (the one that runs here by default), for heads of `head_dim`."""
    platform = platform or jax.default_backend()
    if platform == "tpu" and head_dim % LANES == 0:
        return AttentionConfig("splash", mesh)
    if platform == "gpu" and jnp.dtype(dtype).itemsize == 2 and head_dim % 8 == 0 and head_dim <= 128:
        return AttentionConfig("cudnn", mesh)
    return AttentionConfig("xla", mesh)


def make_attend(
    config: AttentionConfig, segment_ids: Array, slot_ids: Array | None, layout: RowLayout | None
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
                "splash attention needs slots at fixed places: lay the rows out with a RowLayout"
            )
        return make_splash_attend(config, jnp.asarray(segment_ids), layout)
    if config.backend == "cudnn":
        return make_cudnn_attend(config, segment_ids, slot_ids, layout)
    mask = attention_mask(segment_ids, slot_ids)
    return lambda q, k, v: attend(q, k, v, mask)
