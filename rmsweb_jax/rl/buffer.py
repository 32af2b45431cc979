"""Accepted groups that wait for the next iteration, as JSON beside a checkpoint's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.rl.prompts import RlData
from rmsweb_jax.rl.rollout import Group


def groups_to_json(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What `groups_from_json` makes the same groups of, to the last bit; prompts by their ids."""
    return [
        {
            "prompt_id": group.prompt.prompt_id,
            "responses": [tokens.tolist() for tokens in group.responses],
            "log_probs": [part.tolist() for part in group.log_probs],
            "truncated": group.truncated.tolist(),
            "rewards": group.rewards.tolist(),
            "advantages": group.advantages.tolist(),
            "version": group.version,
        }
        for group in groups
    ]


def groups_from_json(values: Sequence[Mapping[str, Any]], data: RlData) -> list[Group]:
    """The accepted groups that `groups_to_json` was given, their prompts read again."""
    return [
        Group(
            prompt=data.prompt(data.numbers[value["prompt_id"]]),
            responses=tuple(np.asarray(tokens, np.int32) for tokens in value["responses"]),
            log_probs=tuple(np.asarray(part, np.float32) for part in value["log_probs"]),
            truncated=np.asarray(value["truncated"], bool),
            rewards=np.asarray(value["rewards"], np.float64),
            advantages=np.asarray(value["advantages"], np.float32),
            accepted=True,
            version=value["version"],
        )
        for value in values
    ]


def fresh_enough(groups: Sequence[Group], version: int, max_staleness: int) -> tuple[Group, ...]:
    """Those that a policy of at most `max_staleness` iterations before `version` drew."""
    return tuple(group for group in groups if version - group.version <= max_staleness)
