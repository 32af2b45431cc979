"""Greedy replies to held-out prompts, scored by the polarized reward whatever is trained on."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from rmsweb_jax.actions.reward import EXACT, score_response, target_type
from rmsweb_jax.metrics import SampledReply
from rmsweb_jax.rl.prompts import RlData
from rmsweb_jax.rl.rollout import Engine, score_groups
from rmsweb_jax.sampling import Sampling


def evaluate(engine: Engine, data: RlData, sampling: Sampling) -> tuple[dict[str, float], list[SampledReply]]:
    """Mean reward and share of exact replies, also by action type and by failure category, and the replies.

    Args:
      engine: has the policy.
      sampling: limits of a response; its temperature and number of samples are not read.
    """
    if not data.held_out:
        return {}, []
    prompts = [data.prompt(number) for number in data.held_out]
    greedy = dataclasses.replace(sampling, num_samples=1, temperature=0.0)
    drawn = engine.draw(prompts, [0] * len(prompts), greedy).result()
    groups = score_groups(prompts, drawn, data.decode, score_response)
    rewards = np.asarray([group.rewards[0] for group in groups])
    parts: dict[str, list[float]] = defaultdict(list)
    for prompt, reward in zip(prompts, rewards, strict=True):
        parts[f"type/{target_type(prompt.target)}"].append(reward)
        if prompt.category:
            parts[f"category/{prompt.category}"].append(reward)
    metrics = {"eval/reward": rewards.mean(), "eval/exact": (rewards == EXACT).mean()}
    metrics |= {f"eval/reward/{name}": np.mean(part) for name, part in sorted(parts.items())}
    metrics["eval/truncated"] = np.mean([group.truncated[0] for group in groups])
    replies = [
        SampledReply(
            group.prompt.prompt_id, data.decode(group.responses[0]), group.prompt.target, float(reward)
        )
        for group, reward in zip(groups, rewards, strict=True)
    ]
    return {name: float(value) for name, value in metrics.items()}, replies
