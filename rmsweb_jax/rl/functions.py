"""The functions that settings of RL name: loss, gate and reward, each the recipe's or the user's own.

One's own is named by its import path, see `rmsweb_jax.own`, and tried before a run does anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from rmsweb_jax.actions.reward import REWARDS
from rmsweb_jax.errors import UserError
from rmsweb_jax.own import find, one_line
from rmsweb_jax.rl import gates, losses
from rmsweb_jax.rl.config import Objective, RlConfig

LOSSES: Mapping[str, losses.Loss] = {"salvage_ds": losses.salvage_ds}
GATES: Mapping[str, gates.Gate] = {"salvage_ds": gates.salvage_ds, "contrast": gates.contrast}
_REPLY = '{"evaluation_previous_goal":"","memory":"","next_goal":"","action":[{"go_back":{}}]}'


def find_loss(objective: Objective) -> losses.Loss:
    """Returns the loss that an objective names: of `LOSSES`, or of an import path.

    Raises:
      UserError: there is none, or it is no `Loss`, or it does not take this objective.
    """

    def fits(loss: Any) -> bool:
        match losses.abstract_sums(loss, objective):
            case value, dict(metrics):
                pairs = [one if isinstance(one, tuple) else (one, one) for one in metrics.values()]
            case _:
                return False
        scalars = all(one.shape == () for pair in [(value,), *pairs] for one in pair)
        return scalars and jnp.issubdtype(value.dtype, jnp.floating) and all(len(one) == 2 for one in pairs)

    wanted = "of (log_probs, batch, objective) that returns a loss and a dictionary of metrics, all numbers"
    return _find("objective.loss", objective.loss, LOSSES, fits, wanted)


def find_gate(name: str, samples: int) -> gates.Gate:
    """Returns the gate of a name in `GATES`, or of an import path.

    Args:
      samples: of a group; those of episodes may be fewer.

    Raises:
      UserError: there is none, or it is no `Gate`.
    """

    def fits(gate: Any) -> bool:
        for count in {2, samples}:
            spread = np.outer((0.0, 0.3, 1.0), np.linspace(0, 1, count))
            rewards = np.concatenate([spread, np.ones((1, count))])
            fates, advantages = gate(rewards)
            if fates.shape != rewards.shape[:1] or advantages.shape != rewards.shape:
                return False
            rejected = advantages[fates != "accepted"]
            if not set(fates) <= set(gates.FATES) or not np.isfinite(advantages).all() or rejected.any():
                return False
        return True

    wanted = (
        f"of rewards [groups, samples] that returns fates [groups], of {', '.join(gates.FATES)}, and "
        "advantages [groups, samples], 0 where a group is not accepted"
    )
    return _find("gate", name, GATES, fits, wanted)


def find_reward(name: str) -> Callable[[str, str], float]:
    """Returns the reward of a name in `REWARDS`, or of an import path.

    Raises:
      UserError: there is none, or it gives no number for an empty response, or not 1 for the target itself.
    """

    def fits(reward: Any) -> bool:
        given = reward(_REPLY, _REPLY), reward("", _REPLY)
        return all(isinstance(one, (int, float)) for one in given) and given[0] == 1

    wanted = "of (response, target), two texts, that returns a float, 1 for the target itself"
    return _find("reward", name, REWARDS, fits, wanted)


def check_functions(config: RlConfig) -> None:
    """Tries the functions of a run.

    Raises:
      UserError: one cannot be used.
    """
    find_loss(config.objective)
    find_gate(config.gate, config.num_samples)
    find_reward(config.reward)


def _find(key: str, name: str, known: Mapping[str, Any], fits: Callable[[Any], bool], wanted: str) -> Any:
    """Returns a function of `known`, or imports one and tries whether it `fits`."""
    if name in known:
        return known[name]
    function = find(key, name)
    # Anything may go wrong in code of the user's.
    try:
        fault = "" if fits(function) else "it returned something else"
    except Exception as error:
        fault = one_line(error)
    if fault:
        raise UserError(f"config.{key} is {name!r}: {fault}; make it a function {wanted} (docs/train.md)")
    return function
