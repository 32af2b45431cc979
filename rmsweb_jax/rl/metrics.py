"""What an iteration tells about itself (RMSWeb, appendix "Salvage-DS RL training dynamics")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rmsweb_jax.rl.advantages import GatedAdvantages
from rmsweb_jax.rl.refill import Refilled
from rmsweb_jax.rl.rollout import Group


def refill_metrics(refilled: Refilled[Group], version: int) -> dict[str, float]:
    """What became of the groups.

    Args:
      version: of the policy that sampled in this iteration.
    """
    return {
        "refill/batches": refilled.batches,
        "refill/exhausted": int(refilled.exhausted),
        "refill/surplus": len(refilled.surplus),
        "refill/accepted": len(refilled.accepted),
        "refill/salvaged": len(refilled.salvaged),
        "refill/stale": sum(group.version < version for group in refilled.accepted),
    }


def rollout_metrics(
    groups: Sequence[Group], gates: GatedAdvantages, competent_reward: float
) -> dict[str, float]:
    """Shares, rewards and lengths over sampled groups.

    Args:
      gates: of the groups.
      competent_reward: a response below it counts as wrong.
    """
    responses = [response for group in groups for response in group.responses]
    log_probs = [part for group in groups for part in group.log_probs]
    rewards = np.concatenate([group.rewards for group in groups])
    return {
        "gates/accepted": float(gates.accepted.mean()),
        "gates/std_rejected": float((gates.solved | gates.unsolved).mean()),
        "gates/std_rejected_solved": float(gates.solved.mean()),
        "gates/std_rejected_unsolved": float(gates.unsolved.mean()),
        "gates/competence_rejected": float(gates.incompetent.mean()),
        "reward/mean": float(rewards.mean()),
        "reward/best_of_k": float(gates.best.mean()),
        "reward/group_std": float(gates.std.mean()),
        "reward/correct": float((rewards >= competent_reward).mean()),
        "response/length": float(np.mean([len(response) for response in responses])),
        "response/truncated": float(np.mean([group.truncated for group in groups])),
        "rollout_log_ppl": float(np.mean([-part.mean() for part in log_probs])),
    }


class ScoredResponse(NamedTuple):
    """A retained response and its log-probabilities, [R] each.

    Attributes:
      reward: of the response.
      accepted: whether its group passed both gates.
      old: under the training forward, before the update.
      sampled: as the sampler saw them.
      stale: an earlier policy drew it than the one before the update.
    """

    reward: float
    accepted: bool
    old: np.ndarray
    sampled: np.ndarray
    stale: bool = False


def log_prob_metrics(responses: Sequence[ScoredResponse], competent_reward: float) -> dict[str, float]:
    """Log-probabilities (means of token means) of correct and wrong responses, and the sampler's deviation.

    Correct and wrong are compared within accepted groups, which have both: elsewhere the easy states would
    make up the one side and the hard states the other. The deviation is |exp(old) - exp(sampled)| a token,
    where both are of one policy.
    """
    values: dict[str, float] = {}
    fresh = [part for part in responses if not part.stale]
    if fresh:
        apart = np.concatenate([np.abs(np.exp(part.old) - np.exp(part.sampled)) for part in fresh])
        values = {"sampler/gap_mean": float(apart.mean()), "sampler/gap_max": float(apart.max())}
    accepted = [part for part in responses if part.accepted]
    correct = [part.old.mean() for part in accepted if part.reward >= competent_reward]
    wrong = [part.old.mean() for part in accepted if part.reward < competent_reward]
    if correct:
        values["logp/correct"] = float(np.mean(correct))
    if wrong:
        values["logp/wrong"] = float(np.mean(wrong))
    if correct and wrong:
        values["logp/gap"] = values["logp/correct"] - values["logp/wrong"]
    return values
