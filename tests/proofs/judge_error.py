"""How often corrected rates and differences contain the truth, with judges of known errors. Ten minutes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from collection.evaluation import judge_error
from collection.evaluation.judge_error import Judged, JudgeError, corrected_difference, corrected_rate
from collection.evaluation.statistics import Interval, paired_difference, rate_interval
from tests.proofs.page import Check, publish, table

SIMULATIONS = 1_000
# In place of 9,999, for time: a limit is then 0.35 points of coverage off at most.
RESAMPLES = 1_999
# Judges are less alike on one task than on others: their errors vary by task as beta variables with this sum.
SPREAD = 20.0
LOW, HIGH = 0.93, 0.97
# Points by which a judge shifts a rate, from which on the baseline must fail.
APART = 5.0


class Case(NamedTuple):
    """An evaluation of two policies.

    Attributes:
      rates: shares of their runs that are successes.
      judges: sensitivity and specificity on each one's runs.
      calibrated: tasks, of three runs each, on which the errors were measured.
    """

    tasks: int
    runs: int
    rates: tuple[float, float]
    judges: tuple[tuple[float, float], tuple[float, float]]
    calibrated: int

    @property
    def one_judge(self) -> bool:
        return self.judges[0] == self.judges[1]


CASES = (
    Case(300, 3, (0.6, 0.5), ((0.9, 0.8), (0.9, 0.8)), 60),
    Case(300, 1, (0.66, 0.59), ((0.9, 0.78), (0.9, 0.78)), 100),
    Case(100, 3, (0.3, 0.2), ((0.85, 0.8), (0.85, 0.8)), 60),
    Case(300, 3, (0.6, 0.6), ((0.95, 0.75), (0.85, 0.9)), 60),
    Case(150, 1, (0.8, 0.7), ((0.95, 0.7), (0.9, 0.85)), 100),
)


def draw_judged(
    rng: np.random.Generator, chances: np.ndarray, runs: int, judge: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Truth and verdicts, [tasks, runs] both, of tasks with these chances of success."""
    truth = rng.random((len(chances), runs)) < chances[:, None]
    sensitivity, specificity = (
        rng.beta(one * SPREAD, (1 - one) * SPREAD, (len(chances), 1)) for one in judge
    )
    passes = np.where(truth, sensitivity, 1 - specificity)
    return truth, rng.random(truth.shape) < passes


def draw_error(rng: np.random.Generator, case: Case, judge: tuple[float, float]) -> JudgeError:
    truth, passed = draw_judged(rng, rng.beta(1, 1, case.calibrated), 3, judge)
    found = zip(
        np.repeat(np.arange(case.calibrated), 3).astype(str), truth.ravel(), passed.ravel(), strict=True
    )
    return JudgeError.of("simulated", found)


def simulate(case: Case, seed: int) -> dict[str, Interval]:
    rng = np.random.default_rng((seed, CASES.index(case)))
    # Tasks are as hard for both: chances are those of one quantile.
    hard = rng.random(case.tasks)
    chances = [_quantile(rate, hard) for rate in case.rates]
    shares = [
        draw_judged(rng, some, case.runs, judge)[1].mean(1)
        for some, judge in zip(chances, case.judges, strict=True)
    ]
    everywhere = np.ones(case.tasks)
    judged = [Judged(share, everywhere) for share in shares]
    first = draw_error(rng, case, case.judges[0])
    errors = first, first if case.one_judge else draw_error(rng, case, case.judges[1])
    raw = rate_interval(shares[0] * case.runs, everywhere * case.runs)
    apart = paired_difference(*shares, case.runs)
    assert raw and apart
    return {
        "rate": corrected_rate(judged[0], first, seed),
        "difference": corrected_difference(judged[0], judged[1], errors, seed),
        "raw rate": raw,
        "raw difference": apart,
    }


def _quantile(rate: float, place: np.ndarray) -> np.ndarray:
    """Chances of success with this mean: a task is nearly always solved, nearly never, or between them."""
    from scipy import stats

    return stats.beta.ppf(place, 2 * rate, 2 * (1 - rate))


def cover(number: int) -> dict[str, Any]:
    judge_error.RESAMPLES = RESAMPLES
    case = CASES[number]
    truth = {"rate": case.rates[0], "difference": case.rates[0] - case.rates[1]}
    found = [simulate(case, seed) for seed in range(SIMULATIONS)]
    share: Callable[[str, str], float] = lambda name, of: float(  # noqa: E731
        np.mean([one[name].low <= truth[of] <= one[name].high for one in found])
    )
    return {
        "tasks, runs": f"{case.tasks}, {case.runs}",
        "true rates": " / ".join(map(str, case.rates)),
        "sensitivity, specificity": " / ".join(f"{one:g}, {other:g}" for one, other in case.judges),
        "tasks with labels": case.calibrated,
        "rate": share("rate", "rate"),
        "difference": share("difference", "difference"),
        "rate, not corrected": share("raw rate", "rate"),
        "difference, not corrected": share("raw difference", "difference"),
        "apart, points": 100 * _bias(case),
        "width of the rate, points": 100
        * float(np.mean([one["rate"].high - one["rate"].low for one in found])),
    }


ABOUT = f"""\
**Baseline:** the same rates without the correction, whose intervals must fail where a judge's two kinds of
errors do not cancel. Control: the truth is drawn, and therefore known.

Share of {SIMULATIONS:,} simulated evaluations whose 95 % interval contains the truth. Two policies play the
same tasks, which are as hard for both; a judge with these errors decides, on other tasks with another rate of
success it is measured against the truth, and its errors differ by task. In the last two cases it errs
differently on the two policies, and was measured on both. Next to them the intervals that leave out the
judge's errors.

*Apart* is the true rate minus the one that the judge gives in the mean. Before the run the baseline was to
fail in all cases; in three of them false passes and false failures cancel but for 2 points at most, where a
rate without correction is nearly right by chance, and its interval is narrower. The check is now on the
cases in which they do not.
"""


def _bias(case: Case) -> float:
    """What the judge takes from the first policy's rate."""
    rate, (sensitivity, specificity) = case.rates[0], case.judges[0]
    return rate - rate * sensitivity - (1 - rate) * (1 - specificity)


def checks(rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    covered = [row[name] for row in rows for name in ("rate", "difference")]
    raw = [row["rate, not corrected"] for row in rows if abs(row["apart, points"]) >= APART]
    return [
        (
            f"corrected rates and differences: {LOW:.0%} to {HIGH:.0%} of the intervals contain the truth",
            f"{min(covered):.1%} to {max(covered):.1%}",
            min(covered) >= LOW and max(covered) <= HIGH,
        ),
        (
            f"baseline: rates that are not corrected, {APART:g} points or more apart: less than 80 %",
            f"{min(raw):.1%} to {max(raw):.1%}",
            max(raw) < 0.8,
        ),
    ]


if __name__ == "__main__":
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(cover, range(len(CASES))))
    title = "Rates corrected for a judge's errors"
    publish("judge_error", title, ABOUT, {"cases": rows}, checks(rows), table(rows))
