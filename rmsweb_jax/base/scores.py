"""What a base is worth: how often it points at the element that a goal names."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from rmsweb_jax.base.loop import summarize
from rmsweb_jax.base.rows import Batch
from rmsweb_jax.base.train import make_loss, split_params
from rmsweb_jax.qwen3_vl.model import Qwen3VL


def score(model: Qwen3VL, batches: Iterable[Batch], kinds: tuple[str, ...]) -> dict[str, float]:
    """Accuracies over batches of one shape; an index counts when it is the likeliest next token.

    Returns:
      `accuracy` and `accuracy_KIND` of index tokens, `chance` of guessing among the elements that the
      action could be about, `copy_accuracy` of all other learned tokens, `questions` asked, `loss`.
    """
    skeleton, params = split_params(model)
    loss_fn = make_loss(skeleton)
    step = jax.jit(lambda params, batch: loss_fn(params, batch)[1])
    metrics = [jax.device_get(step(params, batch)) for batch in batches]
    return {**summarize(metrics, kinds), "questions": float(sum(part.asked.sum() for part in metrics))}
