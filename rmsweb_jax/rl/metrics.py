"""Metrics of an RL iteration (RMSWeb, appendix "Salvage-DS RL training dynamics")."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from rmsweb_jax.actions.reward import EXACT, explain_response, score_response, target_type
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.requests import Request, Sampling
from rmsweb_jax.errors import UserError
from rmsweb_jax.rl.gates import COMPETENT_REWARD, FATES
from rmsweb_jax.rl.prompts import RlData
from rmsweb_jax.rl.rollout import Group, Rollouts, SampledGroups, Turn
from rmsweb_jax.training.metrics import SampledReply


def dynamic_sampling_metrics(sampled_groups: SampledGroups, version: int) -> dict[str, float]:
    """Counts an iteration's groups by their use.

    Args:
      version: version of the policy that sampled in this iteration.
    """
    return {
        "dynamic_sampling/batches": sampled_groups.batches,
        "dynamic_sampling/exhausted": int(sampled_groups.exhausted),
        "dynamic_sampling/accepted": len(sampled_groups.accepted),
        "dynamic_sampling/salvaged": len(sampled_groups.salvaged),
        **{
            f"staleness/{age}": int(count)
            for age, count in enumerate(
                np.bincount([version - group.version for group in sampled_groups.generated])
            )
        },
    }


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Computes shares, rewards and lengths over sampled groups."""
    turns = [turn for group in groups for turn in group.sampled]
    responses = [response for turn in turns for response in turn.responses]
    log_probs = [part for turn in turns for part in turn.log_probs]
    # Groups of episodes may have rewards of a part of them alone.
    by_group = [group.rewards for group in groups if len(group.rewards) > 1]
    share = {fate: sum(group.fate == fate for group in groups) / len(groups) for fate in FATES}
    metrics = {
        "gates/accepted": share["accepted"],
        "gates/std_rejected": share["solved"] + share["unsolved"],
        "gates/std_rejected_solved": share["solved"],
        "gates/std_rejected_unsolved": share["unsolved"],
        "gates/competence_rejected": share["incompetent"],
    }
    if by_group:
        rewards = np.concatenate(by_group)
        metrics |= {
            "reward/mean": float(rewards.mean()),
            "reward/best_of_k": float(np.mean([one.max() for one in by_group])),
            "reward/group_std": float(np.mean([one.std(ddof=1) for one in by_group])),
            "reward/correct": float((rewards >= COMPETENT_REWARD).mean()),
        }
    if responses:
        metrics |= {
            "response/length": float(np.mean([len(response) for response in responses])),
            "response/truncated": float(np.concatenate([turn.truncated for turn in turns]).mean()),
            # As in verl: the mean over sequences of minus the token mean of the sampler's log-probabilities.
            "rollout_log_ppl": float(np.mean([-part.mean() for part in log_probs])),
        }
    return metrics


class ScoredResponse(NamedTuple):
    """A retained response and the log-probabilities of its tokens.

    Attributes:
      reward: reward of the response.
      accepted: its group passed both gates.
      old: log-probabilities from the training forward pass, before the update.
      sampled: log-probabilities from the sampler.
      stale: the response is from an earlier policy than the one that is updated.
    """

    reward: float
    accepted: bool
    old: Float32[np.ndarray, " tokens"]
    sampled: Float32[np.ndarray, " tokens"]
    stale: bool = False


def log_prob_metrics(responses: Sequence[ScoredResponse]) -> dict[str, float]:
    """Computes mean log-probabilities of correct and of wrong responses, and the sampler's gap.

    Correct and wrong are compared within accepted groups, which have both: elsewhere the easy states would
    make up one side and the hard states the other. Means are over responses of token means. The gap is
    |exp(old) - exp(sampled)| per token.
    """
    values: dict[str, float] = {}
    # Of stale responses the two log-probabilities are of different policies.
    fresh = [part for part in responses if not part.stale]
    if fresh:
        apart = np.concatenate([np.abs(np.exp(part.old) - np.exp(part.sampled)) for part in fresh])
        values = {"sampler/gap_mean": float(apart.mean()), "sampler/gap_max": float(apart.max())}
    accepted = [part for part in responses if part.accepted]
    correct = [part.old.mean() for part in accepted if part.reward >= COMPETENT_REWARD]
    wrong = [part.old.mean() for part in accepted if part.reward < COMPETENT_REWARD]
    if correct:
        values["logp/correct"] = float(np.mean(correct))
    if wrong:
        values["logp/wrong"] = float(np.mean(wrong))
    if correct and wrong:
        values["logp/gap"] = values["logp/correct"] - values["logp/wrong"]
    return values


def check_gap(metrics: Mapping[str, float], max_gap: float) -> None:
    """Stops a run whose sampler uses another policy than the one that is trained.

    Args:
      metrics: metrics of an iteration; `sampler/gap_mean` is the token mean of |exp(old) - exp(sampled)|.

    Raises:
      UserError: the gap is larger than `max_gap`, or not a number.
    """
    gap = metrics.get("sampler/gap_mean")
    # `not <=` instead of `>`, which is False for NaN.
    if gap is not None and not gap <= max_gap:
        raise UserError(
            f"the sampler's and the trainer's probabilities differ by {gap:.4f} a token, more than "
            f"config.endpoint.max_gap ({max_gap:g}): check that the server holds the same base weights in "
            "the same precision and gives log-probabilities at the sampling temperature, or raise it"
        )


def readable_groups(
    groups: Sequence[Group],
    decode: Callable[[Int32[np.ndarray, " tokens"]], str],
    each: int,
) -> Iterable[dict[str, Any]]:
    """Yields the first groups of each fate as plain values.

    Args:
      decode: response tokens -> text.
      each: number of groups of each fate.
    """
    for fate in FATES:
        turns = [turn for group in groups if group.fate == fate for turn in group.turns if turn.responses]
        for turn in turns[:each]:
            yield {
                "prompt_id": turn.prompt.prompt_id,
                "category": turn.prompt.category,
                "fate": fate,
                "target": turn.prompt.target,
                "responses": [_readable(turn, sample, decode) for sample in range(len(turn.responses))],
            }


def _readable(
    turn: Turn, sample: int, decode: Callable[[Int32[np.ndarray, " tokens"]], str]
) -> dict[str, Any]:
    tokens, log_probs = turn.responses[sample], turn.log_probs[sample]
    text = decode(tokens)
    return {
        "text": text,
        "reward": float(turn.rewards[sample]),
        "field": deciding_field(text, turn.prompt.target) if turn.prompt.target else "",
        "truncated": bool(turn.truncated[sample]),
        "log_prob": float(log_probs.mean()),
        # A character of several tokens is shown as unknown in each of them.
        "tokens": [
            [decode(tokens[at : at + 1]), round(float(log_prob), 3)] for at, log_prob in enumerate(log_probs)
        ],
    }


def deciding_field(response: str, target: str) -> str:
    """Returns the field or error that cost a response the full polarized reward; "" with full reward."""
    explanation = explain_response(response, target)
    if explanation.error:
        return explanation.error
    if explanation.score == EXACT:
        return ""
    worst = min(explanation.pairs, key=lambda pair: pair.level, default=None)
    # All pairs are exact, or there are none: actions are missing or surplus.
    return worst.field if worst is not None and worst.level < EXACT else "action"


def evaluate(
    rollouts: Rollouts, data: RlData, sampling: Sampling
) -> tuple[dict[str, float], list[SampledReply]]:
    """Evaluates greedy replies to the held-out prompts by the polarized reward.

    Args:
      rollouts: with the policy loaded.
      sampling: limits of a response; its temperature and number of samples are not read.

    Returns:
      Mean reward and share of exact replies, also by action type and by failure category, and the replies.
    """
    if not data.held_out:
        return {}, []
    prompts = [data.prompt(number) for number in data.held_out]
    greedy = dataclasses.replace(sampling, num_samples=1, temperature=0.0)
    asked = [Request(prompt, greedy, 0, stable_hash(prompt.prompt_id)) for prompt in prompts]
    drawn = rollouts.draw(asked)
    texts = [data.decode(one.tokens[0]) for one in drawn]
    # The polarized reward also where another one is trained on, so that ablations can be compared.
    rewards = np.asarray(
        [score_response(text, prompt.target) for text, prompt in zip(texts, prompts, strict=True)]
    )
    parts: dict[str, list[float]] = defaultdict(list)
    for prompt, reward in zip(prompts, rewards, strict=True):
        parts[f"type/{target_type(prompt.target)}"].append(reward)
        if prompt.category:
            parts[f"category/{prompt.category}"].append(reward)
    metrics = {"eval/reward": rewards.mean(), "eval/exact": (rewards == EXACT).mean()}
    metrics |= {f"eval/reward/{name}": np.mean(part) for name, part in sorted(parts.items())}
    metrics["eval/truncated"] = np.mean([one.truncated[0] for one in drawn])
    replies = [
        SampledReply(prompt.prompt_id, text, prompt.target, float(reward))
        for prompt, text, reward in zip(prompts, texts, rewards, strict=True)
    ]
    return {name: float(value) for name, value in metrics.items()}, replies
