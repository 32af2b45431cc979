"""AdamW and the learning-rate schedules of both training stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

Schedule = Callable[[Any], Any]


def warmup_cosine(peak: float, total_steps: int, warmup_ratio: float) -> Schedule:
    """Makes a schedule with linear warm-up, then a cosine decay to 0.

    With s counted from 0 and w = ceil(warmup_ratio * total_steps), the rate is `peak * s / w` for s < w, so
    that the first update has rate 0, and then `peak * (1 + cos(pi * (s - w) / (total_steps - w))) / 2`.
    Source: LLaMA-Factory's `cosine`, which is transformers' `get_cosine_schedule_with_warmup`.
    """
    # Rounded up, as in LLaMA-Factory.
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
    """Makes AdamW (0.9, 0.999, eps 1e-8) after clipping by the global norm; decays all trained arrays.

    Gradients that are not finite change nothing but the counts in its state (`optax.ApplyIfFiniteState`).
    """
    # Decay applies to adapters too, A and B alike, as in the trainers of the paper's runs.
    optimizer = optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(learning_rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay),
    )
    # Never applied, however many there are: an iteration dispatches all its steps before the run reads the
    # counts and stops.
    return optax.apply_if_finite(optimizer, max_consecutive_errors=jnp.iinfo(jnp.int32).max)
