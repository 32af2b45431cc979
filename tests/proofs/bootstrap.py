"""The bootstrap over training runs and tasks."""

from __future__ import annotations

import numpy as np

from collection.evaluation.statistics import CONFIDENCE, RESAMPLES, Interval


def crossed_bootstrap(
    values: np.ndarray,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    weights: np.ndarray | None = None,
) -> Interval | None:
    """Percentile bootstrap of the mean over training runs and tasks, both resampled (scipy has no such one).

    All training runs are evaluated on the same tasks, so the two levels are crossed, not nested. They are
    resampled independently (Owen 2007, the pigeonhole bootstrap). Noise of a single run is counted more
    than once, which makes the interval too wide rather than too narrow. With one training run or one task
    only the other level is resampled.

    Args:
      values: [S, T], one row per training run, one column per task.
      weights: [T] weight of each task in the mean, such as its number of prompts; None weighs all alike.

    Returns:
      None if there are no trainings or no tasks.
    """
    values = np.asarray(values, np.float64)
    if not values.size:
        return None
    rng = np.random.default_rng(seed)
    trainings, tasks = (
        rng.multinomial(size, np.full(size, 1 / size), size=resamples) / size for size in values.shape
    )
    weights = np.ones(values.shape[1]) if weights is None else np.asarray(weights, np.float64)
    tasks *= weights
    estimates = ((trainings @ values) * tasks).sum(axis=1) / tasks.sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    mean = float(np.average(values.mean(axis=0), weights=weights))
    return Interval(mean, float(low), float(high), values.shape[1])
