"""My own loss: Dr. GRPO (arXiv 2503.20783) and GSPO (arXiv 2507.18071), named by the settings of a run.

    PYTHONPATH=docs/examples python -m experiments.train_rl --config=configs/rl.py:demo,dapo \
        --config.prompts=PROMPTS --config.model=MODEL --workdir=WORKDIR \
        --config.objective.loss=my_own_loss:dr_grpo --config.gate=my_own_loss:without_std

GSPO is `my_own_loss:gspo` without that gate, and with clip ranges of its own size, such as 3e-4 and 4e-4.
"""

import jax.numpy as jnp
import numpy as np

from rmsweb_jax import Gated, contrast

LENGTH = 2048  # Dr. GRPO divides by a constant instead of the length of the response.


def without_std(rewards):
    """Accepts as DAPO does; an advantage is the reward minus the mean of its group."""
    fates = contrast(rewards).fates
    apart = rewards - rewards.mean(1, keepdims=True)
    return Gated(fates, np.where(fates[:, None] == "accepted", apart, 0.0))


def clipped(ratio, batch, objective):
    bounded = jnp.clip(ratio, 1 - objective.clip_low, 1 + objective.clip_high)
    return -jnp.minimum(ratio * batch.advantages, bounded * batch.advantages)


def dr_grpo(log_probs, batch, objective):
    each = clipped(jnp.exp(log_probs - batch.old_log_probs), batch, objective)
    return jnp.sum(each * batch.pg_weight * batch.length / LENGTH), {}


def gspo(log_probs, batch, objective):
    log_ratio = batch.sequence_sum(log_probs - batch.old_log_probs) / batch.length
    each = clipped(jnp.exp(log_ratio), batch, objective)
    return jnp.sum(each * batch.pg_weight), {"log_ratio": jnp.sum(log_ratio * batch.pg_weight)}
