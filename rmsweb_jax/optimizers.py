"""AdamW and the learning-rate schedules of both training stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

Schedule = Callable[[Any], Any]


def warmup_cosine(peak: float, total_steps: int, warmup_ratio: float) -> Schedule:
    """Linear warm-up, then half a cosine to 0.

    `lr(s) = peak * s / w` for `s < w = ceil(warmup_ratio * total_steps)`, so that the first update has
    rate 0, then `peak * (1 + cos(pi * (s - w) / (total_steps - w))) / 2`; s counts updates from 0.
    Source: LLaMA-Factory's `cosine` (transformers' `get_cosine_schedule_with_warmup`).
    """
    warmup = math.ceil(warmup_ratio * total_steps)

    def schedule(step: Any) -> Any:
        step = jnp.asarray(step, jnp.float32)
        rise = step / max(1, warmup)
        share = jnp.clip((step - warmup) / max(1, total_steps - warmup), 0.0, 1.0)
        return peak * jnp.where(step < warmup, rise, 0.5 * (1.0 + jnp.cos(jnp.pi * share)))

    return schedule


def adamw(
    learning_rate: float | Schedule, *, weight_decay: float, clip_norm: float
) -> optax.GradientTransformation:
    """AdamW (0.9, 0.999, eps 1e-8) after clipping by the global norm; decay is on every trained array."""
    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(learning_rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay),
    )
