"""verl's own functions, from its package on PyPI, as plain calls on numpy arrays.

Nothing of verl runs in the project's environment otherwise: the package lies in a folder of its own, with
what its import needs (`verl.txt`), and sees the environment's torch and numpy.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.apart import install_apart

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "verl"
REQUIREMENTS = Path(__file__).with_name("verl.txt")
SEQUENCES = "seq-mean-token-mean"
METRICS = ("pg_clipfrac", "ppo_kl", "pg_clipfrac_lower")


class Graded(NamedTuple):
    """A scalar or one value a token, and the gradient of (the sum of) it by each log-probability, [B, T]."""

    value: np.ndarray
    gradient: np.ndarray


class PolicyTerms(NamedTuple):
    """verl's loss, gradients and metrics for a batch of responses.

    Attributes:
      tokens: token losses [B, T]; the gradient is of their sum over the mask.
      loss: their mean over sequences of means over tokens.
      metrics: by the names of `METRICS`.
    """

    tokens: Graded
    loss: Graded
    metrics: dict[str, float]


class Verl:
    """The functions of `verl.trainer.ppo.core_algos`; log-probabilities and masks are [B, T] numpy arrays."""

    def __init__(self) -> None:
        install_apart(REQUIREMENTS, FOLDER)
        sys.path.append(str(FOLDER))
        self._algos: Any = importlib.import_module("verl.trainer.ppo.core_algos")
        self._actor: Any = importlib.import_module("verl.workers.config").ActorConfig

    def policy(
        self,
        new: np.ndarray,
        old: np.ndarray,
        advantages: np.ndarray,
        mask: np.ndarray,
        clips: dict[str, float],
        rows: int | None = None,
    ) -> PolicyTerms:
        """`compute_policy_loss_vanilla`.

        Args:
          clips: `clip_low`, `clip_high` and `dual_clip`.
          rows: `global_batch_size`, the rows that the mean is over; None: those of this call.
        """
        config = self._actor(
            strategy="fsdp",
            rollout_n=8,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=clips["clip_low"],
            clip_ratio_high=clips["clip_high"],
            clip_ratio_c=clips["dual_clip"],
            global_batch_info={} if rows is None else {"global_batch_size": rows},
        )
        leaf, weights = _leaf(new), torch.ones(new.shape, dtype=_tensor(new).dtype, requires_grad=True)
        arguments = _tensor(old), leaf, _tensor(advantages), _tensor(mask)
        # Token losses are the derivatives of their sum by the rollout weights that verl multiplies them with.
        total, _ = self._algos.compute_policy_loss_vanilla(*arguments, "token-sum", config, weights)
        gradient, tokens = torch.autograd.grad(total, (leaf, weights))
        mean, named = self._algos.compute_policy_loss_vanilla(*arguments, SEQUENCES, config)
        return PolicyTerms(
            Graded(tokens.numpy(), gradient.numpy()),
            _graded(mean, leaf),
            {name: named[f"actor/{name}"] for name in METRICS},
        )

    def plain_policy(
        self,
        new: np.ndarray,
        old: np.ndarray,
        advantages: np.ndarray,
        mask: np.ndarray,
        clips: dict[str, float],
    ) -> tuple[Graded, dict[str, float]]:
        """`compute_policy_loss`, the same formula of older releases."""
        leaf = _leaf(new)
        loss, clipped, kl, lower = self._algos.compute_policy_loss(
            _tensor(old),
            leaf,
            _tensor(advantages),
            _tensor(mask),
            cliprange_low=clips["clip_low"],
            cliprange_high=clips["clip_high"],
            clip_ratio_c=clips["dual_clip"],
            loss_agg_mode=SEQUENCES,
        )
        metrics = [value.item() for value in (clipped, kl, lower)]
        return _graded(loss, leaf), dict(zip(METRICS, metrics, strict=True))

    def kl(self, new: np.ndarray, ref: np.ndarray) -> Graded:
        """Token values of `kl_penalty(..., "low_var_kl")`."""
        leaf = _leaf(new)
        return _graded(self._algos.kl_penalty(leaf, _tensor(ref), "low_var_kl"), leaf)

    def mean_kl(self, new: np.ndarray, ref: np.ndarray, mask: np.ndarray, rows: int | None = None) -> Graded:
        """`agg_loss` of `kl_penalty`."""
        leaf = _leaf(new)
        values = self._algos.kl_penalty(leaf, _tensor(ref), "low_var_kl")
        return _graded(self._aggregate(values, mask, rows), leaf)

    def mean_nll(self, new: np.ndarray, mask: np.ndarray, rows: int | None = None) -> Graded:
        """`agg_loss` of negative log-probabilities."""
        leaf = _leaf(new)
        return _graded(self._aggregate(-leaf, mask, rows), leaf)

    def advantages(self, rewards: np.ndarray) -> np.ndarray:
        """`compute_grpo_outcome_advantage` of [G, K] rewards, in their dtype."""
        groups, samples = rewards.shape
        mask = torch.ones((groups * samples, 1), dtype=_tensor(rewards).dtype)
        index = np.repeat(np.arange(groups), samples)
        scores = _tensor(rewards).reshape(-1, 1)
        values, _ = self._algos.compute_grpo_outcome_advantage(scores, mask, index)
        return values.numpy().reshape(groups, samples)

    def _aggregate(self, values: torch.Tensor, mask: np.ndarray, rows: int | None) -> torch.Tensor:
        weights = torch.as_tensor(mask, dtype=values.dtype)
        return self._algos.agg_loss(values, weights, SEQUENCES, global_batch_size=rows)


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values)


def _leaf(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


def _graded(value: torch.Tensor, leaf: torch.Tensor) -> Graded:
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return Graded(value.detach().numpy(), gradient.numpy())
