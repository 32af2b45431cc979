"""Estimates and intervals from repeated runs of the same tasks: pass@k, differences, tests.

The unit is the task: its runs share the page and the goal, so treating them as independent would make every
interval too narrow. docs/results/statistics.md says how often the intervals contain the truth.

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


@dataclasses.dataclass(frozen=True)
class BoundedInterval(Interval):
    """An interval of the runs that have a result, and bounds of the figure over all runs.

    Attributes:
      least, most: the figure if all runs without a result had ended so that it is smallest and largest: for
        a rate all failed and all solved. Equal to `mean` if no run is missing. A rate with k > 1 and a
        difference may lie outside, since they leave out runs that the bounds hold.
    """

    least: float
    most: float


def pass_at_k(successes: np.ndarray, k: int, has_result: np.ndarray | None = None) -> np.ndarray:
    """Estimates the chance that at least one of `k` of a task's runs, drawn without replacement, succeeds.

    The unbiased estimator `1 - C(n-c, k) / C(n, k)` of Chen et al. (2021), where n is the task's number of
    runs that have a result. With k = 1 it is the mean over runs, with k = n it is "solved at least once".

    Args:
      successes: [T, runs] booleans, one row a task, one column a run.
      k: 1..runs.
      has_result: [T, runs] booleans; None if all have one.

    Returns:
      [T] floats; NaN for tasks with fewer than k results, since there is no unbiased estimate.

    Raises:
      ValueError: k is outside 1..runs.
    """
    runs = successes.shape[1]
    if not 1 <= k <= runs:
        raise ValueError(f"pass@{k} needs between 1 and {runs} runs a task")
    there = np.ones(successes.shape, bool) if has_result is None else has_result
    table = np.full((runs + 1, runs + 1), np.nan)
    for n in range(k, runs + 1):
        table[n, : n + 1] = [1.0 - math.comb(n - solved, k) / math.comb(n, k) for solved in range(n + 1)]
    return table[there.sum(axis=1), (successes.astype(bool) & there).sum(axis=1)]


def pass_rate(successes: np.ndarray, has_result: np.ndarray, k: int) -> BoundedInterval | None:
    """Mean of pass@k over tasks, with an interval and bounds; every task with k results weighs the same.

    Args:
      successes, has_result, k: as for `pass_at_k`.

    Returns:
      None if no task has k results.
    """
    shares = pass_at_k(successes, k, has_result)
    there = ~np.isnan(shares)
    if not there.any():
        return None
    trials = np.full(there.sum(), has_result[there].sum(axis=1).mean())
    interval = rate_interval(shares[there] * trials, trials)
    assert interval is not None
    least, most = _bounds(successes, has_result, k)
    return BoundedInterval(**vars(interval), least=least, most=most)


def pass_difference(
    first: np.ndarray, second: np.ndarray, has_first: np.ndarray, has_second: np.ndarray, k: int
) -> BoundedInterval | None:
    """Mean difference of pass@k over tasks, of the runs that have a result on both sides.

    Run n of a task is kept only if it has a result on both sides, so both sides have as many runs of each
    task: for any missing runs, the difference of a policy to itself is 0.

    Args:
      first, second: [T, runs] booleans; row t of both is the same task.
      has_first, has_second: [T, runs] booleans, True for runs that have a result.
      k: 1..runs.

    Returns:
      None if no task has k such runs.
    """
    both = has_first & has_second
    mine, theirs = (pass_at_k(one, k, both) for one in (first, second))
    there = ~np.isnan(mine)
    if not there.any():
        return None
    interval = paired_difference(mine[there], theirs[there], both[there].sum(axis=1).mean())
    assert interval is not None
    (least, most), (other_least, other_most) = _bounds(first, has_first, k), _bounds(second, has_second, k)
    return BoundedInterval(**vars(interval), least=least - other_most, most=most - other_least)


def _bounds(successes: np.ndarray, has_result: np.ndarray, k: int) -> tuple[float, float]:
    """Returns the rates if all runs without a result had failed, and if all had been solved."""
    least, most = (pass_at_k(one, k).mean() for one in (successes & has_result, successes | ~has_result))
    return float(least), float(most)


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


def paired_difference(first: np.ndarray, second: np.ndarray, runs: float = 1) -> Interval | None:
    """Difference of two rates over the same tasks: `mean(first - second)`, with an interval.

    The interval is put together from those of the two rates (Newcombe 1998, method 10; MOVER): squared
    distances to their limits add up, less their covariance, so the difficulty of a task, which both
    policies share, cancels. The rates' intervals are those of `rate_interval`, with Student's quantile in
    place of the normal one: the correlation is estimated from few tasks, too.

    Args:
      first, second: [T] shares in [0, 1]; row t of both is the same task.
      runs: mean number of runs that a share is of.

    Returns:
      None if there are no tasks.
    """
    if len(first) != len(second):
        raise ValueError(f"paired values must be of the same tasks, got {len(first)} and {len(second)}")
    if not len(first):
        return None
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    (mine, below, above), (theirs, other_below, other_above) = (
        _student_wilson(shares, runs) for shares in (first, second)
    )
    varied = np.ptp(first) > 0 and np.ptp(second) > 0
    correlation = float(np.corrcoef(first, second)[0, 1]) if varied else 0.0

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))

    mean = mine - theirs
    low, high = mean - distance(below, other_above), mean + distance(above, other_below)
    return Interval(mean, max(-1.0, low), min(1.0, high), len(first))


def _student_wilson(shares: np.ndarray, runs: float) -> tuple[float, float, float]:
    """Returns a rate and the distances to the limits of its interval, with Student's quantile."""
    from scipy import stats

    rate, tasks = float(shares.mean()), len(shares)
    size = _effective_size(shares * runs, np.full(tasks, float(runs)), rate)
    tail = (1 + CONFIDENCE) / 2
    wider = stats.t.ppf(tail, max(1, tasks - 1)) / stats.norm.ppf(tail)
    low, high = _wilson(rate, size / float(wider) ** 2)
    return rate, rate - low, high - rate


def permutation_p(
    first: np.ndarray, second: np.ndarray, has_result: np.ndarray | None = None, seed: int = 0
) -> float:
    """Two-sided p-value of the paired permutation test on pass@1 (mean over runs).

    Under the hypothesis that the two policies are alike on every task, the sign of each task's difference is
    random. All combinations of signs are gone through where there are at most `RESAMPLES` (13 tasks that
    differ), otherwise so many are drawn.

    Args:
      first, second: [T, runs] booleans; row t of both is the same task.
      has_result: [T, runs] booleans, True for runs that have a result on both sides; None if all have one.

    Returns:
      1 if no task differs.
    """
    from scipy import stats

    there = np.ones(first.shape, bool) if has_result is None else has_result
    counts = there.sum(axis=1)
    # Differences of means as whole numbers, so that equal sums are equal. Tasks without a difference change
    # no sum.
    scale = math.lcm(*range(1, first.shape[1] + 1)) // np.maximum(counts, 1)
    differences = ((first & there).sum(axis=1) - (second & there).sum(axis=1)) * scale
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


def _on_solved(successes: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns [T] steps of the successful runs of each task, and their number; of [T, n] both."""
    solved = successes.astype(bool)
    return (steps * solved).sum(axis=1).astype(np.float64), solved.sum(axis=1).astype(np.float64)


def steps_on_solved(successes: np.ndarray, steps: np.ndarray, seed: int = 0) -> Interval | None:
    """Mean steps of successful runs ([T, n] both), with an interval over tasks."""
    return bootstrap_ratio(*_on_solved(successes, steps), seed)


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
        np.divide(top, count, out=np.zeros(len(count)), where=count > 0)
        for top, count in (_on_solved(successes, steps), _on_solved(other_successes, other_steps))
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
    solves other tasks; `step_reduction` uses only tasks that both solved. Arguments as there.

    Returns:
      None when one of the two solved nothing; `tasks` counts those that either solved.
    """
    sums = (*_on_solved(successes, steps), *_on_solved(other_successes, other_steps))
    count, other_count = sums[1], sums[3]
    if not count.sum() or not other_count.sum():
        return None
    either = (count > 0) | (other_count > 0)

    def saved(top, count, other_top, other_count, axis=-1):
        return 1 - top.sum(axis) * other_count.sum(axis) / (count.sum(axis) * other_top.sum(axis))

    return _bootstrap([one[either] for one in sums], saved, seed)


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
