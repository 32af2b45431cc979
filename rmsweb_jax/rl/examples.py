"""Groups of rollouts to be read by people: good, bad and rejected ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.actions.reward import EXACT, explain_response
from rmsweb_jax.rl.advantages import GatedAdvantages
from rmsweb_jax.rl.rollout import Group

FATES = ("accepted", "solved", "unsolved", "incompetent")


def readable_groups(
    groups: Sequence[Group],
    gates: GatedAdvantages,
    decode: Callable[[np.ndarray], str],
    each: int,
) -> Iterable[dict[str, Any]]:
    """The first groups of each fate as plain values.

    Args:
      gates: of `groups`.
      decode: response tokens -> text.
      each: groups of a fate.
    """
    for fate in FATES:
        for number in np.flatnonzero(getattr(gates, fate))[:each]:
            group = groups[number]
            yield {
                "prompt_id": group.prompt.prompt_id,
                "category": group.prompt.category,
                "fate": fate,
                "target": group.prompt.target,
                "responses": [_readable(group, sample, decode) for sample in range(len(group.responses))],
            }


def _readable(group: Group, sample: int, decode: Callable[[np.ndarray], str]) -> dict[str, Any]:
    text = decode(group.responses[sample])
    return {
        "text": text,
        "reward": float(group.rewards[sample]),
        "field": deciding_field(text, group.prompt.target),
        "truncated": bool(group.truncated[sample]),
        "log_prob": float(group.log_probs[sample].mean()),
    }


def deciding_field(response: str, target: str) -> str:
    """What kept a response from the full polarized reward; empty when nothing did."""
    explanation = explain_response(response, target)
    if explanation.error:
        return explanation.error
    if explanation.score == EXACT:
        return ""
    worst = min(explanation.pairs, key=lambda pair: pair.level, default=None)
    # All pairs exact, or none: actions are missing or too many.
    return worst.field if worst is not None and worst.level < EXACT else "action"
