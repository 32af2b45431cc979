"""Estimates and intervals from repeated runs of the same tasks: pass@k, differences, tests.

The unit is the task: its runs share the page and the goal, so treating them as independent would make every
interval too narrow. `make proof-statistics` simulates how often the intervals contain the truth.

scipy and statsmodels are imported in the functions that need them: they take seconds to load, and workers
that import this module compute nothing.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Resamples of a bootstrap and of a permutation test. The standard error of a 2.5 % tail estimated from this
# many is 0.16 points; the smallest p-value that they can give is 0.0002.
RESAMPLES = 9_999
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


def rate_interval(successes: np.ndarray, trials: np.ndarray) -> Interval | None:
    """Rate `sum(successes) / sum(trials)` over tasks, with Wilson's interval at the effective sample size.

    The effective sample size is the number of independent trials that would give the estimate the variance
    that it has over tasks (p (1 - p) / variance): it lies between the number of tasks, where all runs of a
    task end alike, and the number of trials. Without variance, at 0 % and 100 %, it is the number of tasks.
    Unlike a bootstrap, the interval has a width there, and covers a rate near 0 or 1 of few tasks.

    Args:
      successes: [T], at most `trials`; need not be whole numbers (pass@k times the number of runs).
      trials: [T].

    Returns:
      None if there are no trials.
    """
    successes, trials = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    if not trials.sum():
        return None
    rate = float(successes.sum() / trials.sum())
    low, high = _wilson(rate, _effective_size(successes, trials, rate))
    return Interval(rate, low, high, int((trials > 0).sum()))


def _effective_size(successes: np.ndarray, trials: np.ndarray, rate: float) -> float:
    """Returns the number of independent trials with as much information; of [T] and [T]."""
    tasks = int((trials > 0).sum())
    if tasks < 2 or not 0 < rate < 1:
        return float(tasks)
    # Variance of a ratio of sums, linearized: tasks may have different numbers of trials.
    residuals = successes - rate * trials
    variance = tasks / (tasks - 1) * (residuals**2).sum() / trials.sum() ** 2
    most = float(trials.sum())
    return min(most, rate * (1 - rate) / variance) if variance else most


def _wilson(rate: float, size: float) -> tuple[float, float]:
    from statsmodels.stats.proportion import proportion_confint

    limits = proportion_confint(rate * size, size, alpha=1 - CONFIDENCE, method="wilson")
    low, high = np.asarray(limits, np.float64).tolist()
    # Rounding must not move the estimate out of its interval.
    return min(low, rate), max(high, rate)


def paired_difference(
    first: np.ndarray, second: np.ndarray, first_runs: int = 1, second_runs: int = 1
) -> Interval | None:
    """Difference of two rates over the same tasks: `mean(first - second)`, with an interval.

    The interval is put together from those of the two rates (Newcombe 1998, method 10; MOVER): squared
    distances to their limits add up, less their covariance, so the difficulty of a task, which both
    policies share, cancels. The rates' intervals are those of `rate_interval`, with Student's quantile in
    place of the normal one: the correlation is estimated from few tasks, too.

    Args:
      first, second: [T] shares in [0, 1]; row t of both is the same task.
      first_runs, second_runs: runs that a share is of.

    Returns:
      None if there are no tasks.
    """
    if len(first) != len(second):
        raise ValueError(f"paired values must be of the same tasks, got {len(first)} and {len(second)}")
    if not len(first):
        return None
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    (mine, below, above), (theirs, other_below, other_above) = (
        _student_wilson(shares, runs) for shares, runs in ((first, first_runs), (second, second_runs))
    )
    varied = np.ptp(first) > 0 and np.ptp(second) > 0
    correlation = float(np.corrcoef(first, second)[0, 1]) if varied else 0.0

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))

    mean = mine - theirs
    low, high = mean - distance(below, other_above), mean + distance(above, other_below)
    return Interval(mean, max(-1.0, low), min(1.0, high), len(first))


def _student_wilson(shares: np.ndarray, runs: int) -> tuple[float, float, float]:
    """Returns a rate and the distances to the limits of its interval, with Student's quantile."""
    from scipy import stats

    rate, tasks = float(shares.mean()), len(shares)
    size = _effective_size(shares * runs, np.full(tasks, float(runs)), rate)
    tail = (1 + CONFIDENCE) / 2
    wider = stats.t.ppf(tail, max(1, tasks - 1)) / stats.norm.ppf(tail)
    low, high = _wilson(rate, size / float(wider) ** 2)
    return rate, rate - low, high - rate


def permutation_p(first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """Two-sided p-value of the paired permutation test on pass@1 (mean over runs).

    Under the hypothesis that the two policies are alike on every task, the sign of each task's difference is
    random. All combinations of signs are gone through where there are at most `RESAMPLES` (13 tasks that
    differ), otherwise so many are drawn.

    Args:
      first, second: [T, n] and [T, m] booleans; row t of both is the same task.

    Returns:
      1 if no task differs.
    """
    from scipy import stats

    # Whole numbers, so that equal sums are equal; tasks without a difference change no sum.
    differences = first.sum(axis=1) * second.shape[1] - second.sum(axis=1) * first.shape[1]
    differences = differences[differences != 0].astype(np.float64)
    if len(differences) < 2:  # Both signs of a single difference are as far from zero.
        return 1.0
    result = stats.permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def bootstrap_ratio(numerator: np.ndarray, denominator: np.ndarray, seed: int = 0) -> Interval | None:
    """`sum(numerator) / sum(denominator)` with a bootstrap over tasks, for steps and costs.

    Args:
      numerator, denominator: [T]; tasks whose denominator is 0 are left out.

    Returns:
      None if the denominator is 0 everywhere: there is nothing to estimate.
    """
    there = np.asarray(denominator) > 0
    data = [np.asarray(one, np.float64)[there] for one in (numerator, denominator)]
    if not there.any():
        return None
    return _bootstrap(data, lambda top, bottom, axis=-1: top.sum(axis) / bottom.sum(axis), seed)


def bootstrap_mean(values: np.ndarray, seed: int = 0) -> Interval | None:
    """Mean of `values` [T] with a bootstrap over tasks; None if there are no tasks."""
    return bootstrap_ratio(values, np.ones(len(values)), seed)


def _bootstrap(data: Sequence[np.ndarray], statistic: Callable[..., np.ndarray], seed: int) -> Interval:
    """BCa bootstrap of a statistic of arrays [T], whose tasks are resampled together.

    Where BCa is not defined, because values hardly vary or some resamples have no statistic, the interval is
    of the percentiles of the others; with a single task, it is the estimate alone.
    """
    from scipy import stats

    tasks = len(data[0])
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = float(statistic(*data))
        if tasks < 2:
            return Interval(mean, mean, mean, tasks)
        result = stats.bootstrap(
            data,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            rng=np.random.default_rng(seed),
        )
    low, high = result.confidence_interval
    if not (np.isfinite(low) and np.isfinite(high)):
        drawn = result.bootstrap_distribution
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(drawn[np.isfinite(drawn)], [tail, 1 - tail])
    return Interval(mean, float(low), float(high), tasks)


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


def student_interval(values: Sequence[float]) -> Interval | None:
    """Mean of a few independent values, one per training run, with Student's 95 % interval.

    A bootstrap of two or three values gives little more than their range, which misses the true mean far
    too often. `tasks` is the number of values.

    Returns:
      None for fewer than two values, which give no estimate of the variance.
    """
    if len(values) < 2:
        return None
    from scipy import stats

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
    either = (count > 0) | (other_count > 0)

    def saved(top, count, other_top, other_count, axis=-1):
        return 1 - top.sum(axis) * other_count.sum(axis) / (count.sum(axis) * other_top.sum(axis))

    return _bootstrap([one[either] for one in (top, count, other_top, other_count)], saved, seed)


def disagreements(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Counts the tasks that only the first and that only the second solved; both are [T] booleans."""
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    return int((first & ~second).sum()), int((~first & second).sum())


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Exact two-sided McNemar p-value of two [T] boolean outcomes on the same tasks.

    Only tasks on which the two disagree count; with none, p = 1.
    """
    from statsmodels.stats import contingency_tables

    wins, losses = disagreements(first, second)
    result: Any = contingency_tables.mcnemar([[0, wins], [losses, 0]], exact=True)
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for multiple comparisons (Holm 1979); keeps their order.

    With each compared to 5 %, the chance of any false finding among them stays below 5 %, however they
    depend on each other.
    """
    from statsmodels.stats.multitest import multipletests

    if not p_values:
        return []
    _, corrected, _, _ = multipletests(p_values, method="holm")
    return np.asarray(corrected).tolist()
