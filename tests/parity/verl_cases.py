"""Random responses to compare losses on, and our losses on them as values with gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.rl import losses
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.losses import (
    VALUES,
    LossAndMetrics,
    TokenBatch,
    low_var_kl,
    policy_loss,
    salvage_ds,
    token_weights,
)
from tests.parity.verl_package import Graded

SHAPES = ((1, 1), (1, 40), (7, 1), (8, 64), (33, 17), (128, 48), (16, 512), (8, 2048))
# Standard deviations of log-ratios: on-policy, what training sees, far off, beyond every clip.
SPREADS = (0.0, 0.02, 1.0, 25.0)
CLIPS = (
    {"clip_low": 0.2, "clip_high": 0.32, "dual_clip": 3.0},
    {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0},
    {"clip_low": 0.5, "clip_high": 1.5, "dual_clip": 1.2},
)
PAPER = CLIPS[0]
# Where k3 reaches 10.
_K3_BOUNDS = (2.610866, -10.999983)
_MARGIN = 1e-3


class Case(NamedTuple):
    """Responses in rows [B, T]: log-probabilities, advantages, and which tokens there are."""

    new: np.ndarray
    old: np.ndarray
    ref: np.ndarray
    advantages: np.ndarray
    mask: np.ndarray

    def rows(self, which: Any) -> Case:
        return Case(*(array[which] for array in self))


def make_case(
    rng: np.random.Generator, shape: tuple[int, int], spread: float, dtype: Any, *, empty: bool = False
) -> Case:
    """Ragged responses with advantages of both signs (some 0), and one a row.

    Gradients jump at the clips' bounds, where a rounding decides: log-ratios keep off them.

    Args:
      empty: the last row has no token.
    """
    rows, length = shape
    lengths = rng.integers(1, length + 1, rows)
    if empty:
        lengths[-1] = 0
    mask = np.arange(length) < lengths[:, None]
    bounds = [20.0, -20.0]
    for clips in CLIPS:
        bounds += [np.log(1 - clips["clip_low"]), np.log(1 + clips["clip_high"]), np.log(clips["dual_clip"])]
    log_ratio = _keep_off(rng.normal(0, spread, shape), bounds)
    to_ref = _keep_off(rng.normal(0, spread, shape), (20.0, -20.0, *_K3_BOUNDS))
    # Log-probabilities, hence not above 0.
    new = -np.exp(rng.normal(-1, 1.5, shape)) - np.maximum(0, np.maximum(-log_ratio, to_ref))
    advantages = np.broadcast_to(rng.choice([-2.4, -0.7, 0.0, 0.4, 1.9], (rows, 1)), shape)
    arrays = new, new - log_ratio, new + to_ref, advantages, mask
    return Case(*(np.asarray(array, dtype) for array in arrays))


def _keep_off(values: np.ndarray, bounds: Any) -> np.ndarray:
    for bound in bounds:
        values = np.where(np.abs(values - bound) < _MARGIN, bound + 2 * _MARGIN, values)
    return values


def all_cases(dtype: Any) -> Iterator[Case]:
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        for spread in SPREADS:
            yield make_case(rng, shape, spread, dtype)


def our_policy_tokens(case: Case, clips: dict[str, float]) -> Graded:
    """`policy_loss` inside the mask."""

    def loss(new: jax.Array) -> jax.Array:
        tokens = policy_loss(new, jnp.asarray(case.old), jnp.asarray(case.advantages), **clips).loss
        return jnp.where(case.mask > 0, tokens, 0)

    return _graded(loss, case.new)


def our_kl_tokens(case: Case) -> Graded:
    """`low_var_kl`."""
    return _graded(lambda new: low_var_kl(new, jnp.asarray(case.ref)), case.new)


def _graded(function: Any, new: np.ndarray) -> Graded:
    values, backward = jax.vjp(function, jnp.asarray(new))
    return Graded(np.asarray(values), np.asarray(backward(jnp.ones_like(values))[0]))


def weights(mask: np.ndarray, counted: np.ndarray, rows: int) -> np.ndarray:
    """`token_weights` of the rows that are `counted`, as a mean over `rows`."""
    none = np.zeros(mask.shape[1], np.float32)
    return np.stack(
        [token_weights(row > 0, rows) if ours else none for row, ours in zip(mask, counted, strict=True)]
    )


def objective(
    case: Case,
    pg_weight: np.ndarray,
    kl_weight: np.ndarray,
    salvage_weight: np.ndarray,
    settings: Objective,
) -> tuple[Graded, dict[str, Any]]:
    """`salvage_ds`: its loss with the gradient, and its metrics."""
    values = {name: np.zeros_like(case.old) for name in VALUES} | {
        "advantages": case.advantages,
        "pg_weight": pg_weight,
        "kl_weight": kl_weight,
        "salvage_weight": salvage_weight,
        "old_log_probs": case.old,
        "ref_log_probs": case.ref,
    }
    batch = TokenBatch.of((case.mask > 0).astype(np.int32), values)

    def loss(new: jax.Array) -> LossAndMetrics:
        return salvage_ds(new, batch, settings)

    (value, found), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(case.new))
    return Graded(np.asarray(value), np.asarray(gradient)), found


def our_policy(
    case: Case, clips: dict[str, float], rows: int | None = None
) -> tuple[Graded, dict[str, float]]:
    """The surrogate alone, as a mean over `rows` (by default all here), and verl's metrics."""
    everyone, none = np.ones(len(case.mask), bool), np.zeros(case.mask.shape, np.float32)
    bounds: dict[str, Any] = {name: clips[name] for name in ("clip_low", "clip_high")}
    settings = Objective(**bounds, kl_coef=0.0, salvage_weight=0.0)
    weight = weights(case.mask, everyone, rows or len(case.mask))
    # A constant of the recipe, and a setting of verl's.
    with mock.patch.object(losses, "DUAL_CLIP", clips["dual_clip"]):
        loss, found = objective(case, weight, none, none, settings)
    return loss, metrics(found)


def metrics(found: dict[str, Any]) -> dict[str, float]:
    """The metrics of an optimizer step under verl's names."""
    names = {"pg_clipfrac": "pg_clipfrac", "ppo_kl": "ppo_kl", "pg_clipfrac_lower": "pg_clipfrac_dual"}
    pairs = {theirs: found[ours] for theirs, ours in names.items()}
    return {name: float(total) / max(float(count), 1) for name, (total, count) in pairs.items()}


def our_kl(case: Case, rows: int | None = None) -> Graded:
    """The KL term alone."""
    everyone, none = np.ones(len(case.mask), bool), np.zeros(case.mask.shape, np.float32)
    weight = weights(case.mask, everyone, rows or len(case.mask))
    return objective(case, none, weight, none, Objective(kl_coef=1.0, salvage_weight=0.0))[0]


def our_salvage(case: Case) -> Graded:
    """The salvage anchor alone, on the tokens of the mask."""
    everyone, none = np.ones(len(case.mask), bool), np.zeros(case.mask.shape, np.float32)
    weight = weights(case.mask, everyone, len(case.mask))
    return objective(case, none, none, weight, Objective(kl_coef=0.0, salvage_weight=1.0))[0]
