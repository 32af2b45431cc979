"""Estimates and intervals from repeated runs of the same tasks: pass@k, differences, tests.

The unit of resampling is the task: its runs share the page and the goal, so treating them as
independent would make every interval too narrow.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

# The standard error of a 2.5 % tail estimated from this many resamples is 0.16 points.
RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval and the number of tasks that it is based on."""

    mean: float
    low: float
    high: float
    tasks: int

    def as_dict(self) -> dict[str, float | int]:
        return dataclasses.asdict(self)


def pass_at_k(successes: np.ndarray, k: int) -> np.ndarray:
    """Estimates the chance that at least one of `k` of a task's runs, drawn without replacement, succeeds.

    The unbiased estimator `1 - C(n-c, k) / C(n, k)` of Chen et al. (2021). With k = 1 it is the
    mean over runs, with k = n it is "solved at least once".

    Args:
      successes: [T, n] booleans, one row a task, one column a run.
      k: 1..n.

    Returns:
      [T] floats.

    Raises:
      ValueError: k is outside 1..n.
    """
    runs = successes.shape[1]
    if not 1 <= k <= runs:
        raise ValueError(f"pass@{k} needs between 1 and {runs} runs a task")
    table = [1.0 - math.comb(runs - solved, k) / math.comb(runs, k) for solved in range(runs + 1)]
    return np.asarray(table)[successes.astype(bool).sum(axis=1)]


def bootstrap_ratio(
    numerator: np.ndarray,
    denominator: np.ndarray,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Percentile bootstrap over tasks of `sum(numerator) / sum(denominator)`.

    Args:
      numerator, denominator: [T]; tasks whose denominator is 0 are resampled with weight 0.

    Returns:
      None if the denominator is 0 everywhere: there is nothing to estimate.
    """
    numerator, denominator = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    if denominator.sum() == 0:
        return None
    draws = _resampled(len(numerator), seed, resamples)
    weight = draws @ denominator
    # A resample may contain no task with a denominator; its ratio is undefined.
    estimates = (draws @ numerator)[weight > 0] / weight[weight > 0]
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    mean = numerator.sum() / denominator.sum()
    return Interval(float(mean), float(low), float(high), int((denominator > 0).sum()))


@functools.lru_cache(maxsize=1)
def _resampled(tasks: int, seed: int, resamples: int) -> np.ndarray:
    """Returns how often each task occurs in each resample, [resamples, tasks] float64.

    Counts turn a statistic into one matrix product; floats make that product ten times as fast. The last
    result is cached, because several statistics of the same tasks follow one another.
    """
    # Drawing n tasks with replacement is a multinomial draw of their counts.
    counts = np.random.default_rng(seed).multinomial(tasks, np.full(tasks, 1 / tasks), size=resamples)
    draws = counts.astype(np.float64)
    # The cache returns this array to every caller.
    draws.flags.writeable = False
    return draws


def bootstrap_mean(
    values: np.ndarray, seed: int = 0, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Interval | None:
    """Percentile bootstrap over tasks of the mean of `values` [T]; None if there are no tasks."""
    return bootstrap_ratio(values, np.ones(len(values)), seed, resamples, confidence)


def paired_difference(
    first: np.ndarray, second: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Bootstrap of `mean(first - second)` where row t of both is the same task.

    Resampling tasks keeps the pairing, so the difficulty of a task, which both models share, cancels.
    """
    if len(first) != len(second):
        raise ValueError(f"paired values must be of the same tasks, got {len(first)} and {len(second)}")
    return bootstrap_mean(np.asarray(first, np.float64) - np.asarray(second, np.float64), seed, resamples)


def crossed_bootstrap(
    values: np.ndarray, seed: int = 0, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Interval | None:
    """Percentile bootstrap of the mean over training runs and tasks, both resampled.

    All training runs are evaluated on the same tasks, so the two levels are crossed, not nested. They are
    resampled independently (Owen 2007, the pigeonhole bootstrap). Noise of a single run is counted more
    than once, which makes the interval too wide rather than too narrow. With one training run or one task
    only the other level is resampled.

    Args:
      values: [S, T], one row per training run, one column per task.

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
    estimates = ((trainings @ values) * tasks).sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high), values.shape[1])


def student_interval(values: Sequence[float]) -> Interval | None:
    """Mean of a few independent values, one per training run, with Student's 95 % interval.

    A bootstrap of two or three values gives little more than their range, which misses the true mean far
    too often. `tasks` is the number of values.

    Returns:
      None for fewer than two values, which give no estimate of the variance.
    """
    if len(values) < 2:
        return None
    from scipy import stats  # See `mcnemar`.

    mean = float(np.mean(values))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * stats.sem(values))
    return Interval(mean, mean - half, mean + half, len(values))


def steps_on_solved(successes: np.ndarray, steps: np.ndarray, seed: int = 0) -> Interval | None:
    """Mean steps of successful runs ([T, n] both), with an interval over tasks."""
    solved = successes.astype(bool)
    return bootstrap_ratio((steps * solved).sum(axis=1), solved.sum(axis=1), seed)


def step_reduction(
    successes: np.ndarray,
    steps: np.ndarray,
    other_successes: np.ndarray,
    other_steps: np.ndarray,
    seed: int = 0,
) -> Interval | None:
    """`1 - steps / other_steps` over the tasks that both policies solved at least once.

    Each task counts with the mean steps of its solved runs; all arrays are [T, n] of the same tasks.
    """
    mine, theirs = (
        np.divide((s * ok).sum(1), ok.sum(1), out=np.zeros(len(ok)), where=ok.any(1))
        for ok, s in ((successes.astype(bool), steps), (other_successes.astype(bool), other_steps))
    )
    both = (mine > 0) & (theirs > 0)
    return bootstrap_ratio(np.where(both, theirs - mine, 0.0), np.where(both, theirs, 0.0), seed)


def steps_saved(
    successes: np.ndarray,
    steps: np.ndarray,
    other_successes: np.ndarray,
    other_steps: np.ndarray,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """`1 - steps / other_steps`, each the mean steps of a policy on the runs it solved.

    RMSWeb's reflection table uses this figure. The two means cover different runs, because each policy
    solves other tasks; `step_reduction` uses only tasks that both solved. All arrays are [T, n] of the
    same tasks, which are resampled together.

    Returns:
      None when one of the two solved nothing; `tasks` counts those that either solved.
    """
    (top, count), (other_top, other_count) = (
        ((taken * solved).sum(axis=1).astype(np.float64), solved.sum(axis=1).astype(np.float64))
        for solved, taken in ((successes.astype(bool), steps), (other_successes.astype(bool), other_steps))
    )
    if not count.sum() or not other_count.sum():
        return None
    draws = _resampled(len(count), seed, resamples)
    both = (draws @ count > 0) & (draws @ other_count > 0)
    draws = draws[both]
    estimates = 1 - (draws @ top) * (draws @ other_count) / ((draws @ count) * (draws @ other_top))
    tail = (1 - confidence) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    mean = 1 - top.sum() * other_count.sum() / (count.sum() * other_top.sum())
    return Interval(float(mean), float(low), float(high), int(((count > 0) | (other_count > 0)).sum()))


def disagreements(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Counts the tasks that only the first and that only the second solved; both are [T] booleans."""
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    return int((first & ~second).sum()), int((~first & second).sum())


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Exact two-sided McNemar p-value of two [T] boolean outcomes on the same tasks.

    Only tasks on which the two disagree count; with none, p = 1.
    """
    # Imported here: it takes two seconds to load, and workers that import this module compute no p-values.
    from scipy import stats

    wins, losses = disagreements(first, second)
    return float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for multiple comparisons (Holm 1979); keeps their order.

    With each compared to 5 %, the chance of any false finding among them stays below 5 %, however they
    depend on each other.
    """
    # Imported here: statsmodels takes a second to load, and few reports need it.
    from statsmodels.stats.multitest import multipletests

    if not p_values:
        return []
    _, corrected, _, _ = multipletests(p_values, method="holm")
    return np.asarray(corrected).tolist()
