"""Coverage of the intervals of rates and differences, and p-values, on simulated evaluations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from collection.evaluation.statistics import (
    CONFIDENCE,
    Interval,
    mcnemar,
    paired_difference,
    permutation_p,
    rate_interval,
)
from tests.proofs.result import Claim, Figures, Proof, main, table

TASKS, RUNS, RATES = (10, 40, 150, 588), 3, (0.0, 0.03, 0.5, 0.97)
# Correlation of a task's runs: nearly independent, and nearly all alike.
CORRELATIONS = (0.2, 0.7)
# Rates of two policies. Their task rates are correlated by a normal copula.
PAIRS = (
    (0.0, 0.0),
    (0.03, 0.03),
    (0.5, 0.5),
    (0.97, 0.97),
    (0.0, 0.03),
    (0.03, 0.1),
    (0.5, 0.6),
    (0.97, 0.9),
)
SHARED = 0.7
SETS, BOOTSTRAP_SETS, BOOTSTRAP_RESAMPLES = 4000, 1000, 1000
TESTED, TEST_SETS = (10, 40, 150), 500
LOW, HIGH = 0.93, 0.97
# Cells whose true coverage is a limit fall on its wrong side by chance.
SLACK = 2 * math.sqrt(LOW * (1 - LOW) / SETS)
TAILS = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]


def measure() -> Figures:
    rng = np.random.default_rng(0)
    return {
        "tasks": list(TASKS),
        "runs": RUNS,
        "correlations": list(CORRELATIONS),
        "shared": SHARED,
        "sets": SETS,
        "bootstrap_sets": BOOTSTRAP_SETS,
        "test_sets": TEST_SETS,
        "rates": list(_rates(rng)),
        "differences": list(_differences(rng)),
        "against_scipy": _against_scipy(rng),
        "tests": list(_tests(rng)),
    }


def simulate(
    rates: Sequence[float], correlation: float, sets: int, tasks: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Draws outcomes [sets, tasks, RUNS] of policies on the same tasks; task rates are beta-distributed.

    Args:
      rates: mean rate of each policy.
      correlation: of two runs of a task; the beta distribution's 1 / (a + b + 1).
    """
    common = rng.standard_normal((sets, tasks))
    drawn = []
    for rate in rates:
        level = math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * rng.standard_normal((sets, tasks))
        chance = np.full(level.shape, rate)
        if 0 < rate < 1:
            size = 1 / correlation - 1
            grid = np.linspace(-6, 6, 20_001)
            quantiles = stats.beta.ppf(stats.norm.cdf(grid), rate * size, (1 - rate) * size)
            chance = np.interp(level, grid, quantiles)
        drawn.append(rng.random((sets, tasks, RUNS)) < chance[..., None])
    return drawn


def covered(intervals: Iterable[Interval | None], truth: float) -> float:
    """Share of intervals that contain the truth."""
    return float(np.mean([one is not None and one.low <= truth <= one.high for one in intervals]))


def _rates(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for correlation in CORRELATIONS:
        for rate in RATES:
            for tasks in TASKS:
                (wins,) = simulate([rate], correlation, SETS, tasks, rng)
                trials = np.full(tasks, RUNS)
                yield {
                    "correlation": correlation,
                    "rate": rate,
                    "tasks": tasks,
                    "ours": round(covered((rate_interval(one.sum(1), trials) for one in wins), rate), 4),
                    **_others(wins[:BOOTSTRAP_SETS].mean(axis=2), rate, rng),
                }


def _others(values: np.ndarray, truth: float, rng: np.random.Generator) -> dict[str, float]:
    """Coverage of three usual intervals of the mean of [sets, tasks] values."""
    tasks = values.shape[1]
    counts = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=BOOTSTRAP_RESAMPLES) / tasks
    mean, half = values.mean(1), stats.t.ppf(TAILS[1], tasks - 1) * stats.sem(values, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bca = [
            stats.bootstrap((one,), np.mean, n_resamples=BOOTSTRAP_RESAMPLES, rng=rng).confidence_interval
            for one in values[:: max(1, tasks // 150)]
        ]
    limits = {
        "percentile": np.quantile(values @ counts.T, TAILS, axis=1),
        "bca": np.array(bca).T,
        "student": np.stack([mean - half, mean + half]),
    }
    return {
        name: round(float(np.mean((low <= truth) & (truth <= high))), 4)
        for name, (low, high) in limits.items()
    }


def _differences(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    for correlation in CORRELATIONS:
        for rates in PAIRS:
            for tasks in TASKS:
                first, second = simulate(rates, correlation, SETS, tasks, rng)
                intervals = [
                    paired_difference(one.mean(axis=1), other.mean(axis=1), RUNS)
                    for one, other in zip(first, second, strict=True)
                ]
                values = (first.mean(axis=2) - second.mean(axis=2))[:BOOTSTRAP_SETS]
                yield {
                    "correlation": correlation,
                    "rates": list(rates),
                    "tasks": tasks,
                    "ours": round(covered(intervals, rates[0] - rates[1]), 4),
                    **_others(values, rates[0] - rates[1], rng),
                }


def _against_scipy(rng: np.random.Generator) -> dict[str, Any]:
    """p-values next to scipy's test of successes over all tasks: exact, and with 99,999 resamples.

    Differences are whole numbers of successes: sums of thirds differ in their last digits, and scipy would
    miss ties.
    """
    exact, drawn = [], []
    for tasks, found, resamples in ((10, exact, np.inf), (60, drawn, 99_999)):
        for first, second in zip(*simulate((0.5, 0.65), 0.5, 40, tasks, rng), strict=True):
            direct = stats.permutation_test(
                (first.sum(axis=1) - second.sum(axis=1).astype(np.float64),),
                np.sum,
                permutation_type="samples",
                vectorized=True,
                n_resamples=resamples,
                batch=10_000,
                rng=rng,
            )
            p = float(direct.pvalue)
            # Of the 9,999 draws of ours and the 99,999 of scipy's, of a two-sided p.
            error = math.sqrt(2 * max(p, 1e-3) * (1 / 9_999 + 1 / 99_999))
            found.append((abs(permutation_p(first, second) - p), error))
    return {
        "exact_pairs": len(exact),
        "exact_largest_gap": float(max(gap for gap, _ in exact)),
        "drawn_pairs": len(drawn),
        "drawn_largest_gap": round(max(gap for gap, _ in drawn), 5),
        "drawn_largest_gap_in_errors": round(max(gap / error for gap, error in drawn), 2),
    }


def _tests(rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Share of evaluations with p up to 5 %: without a difference, and with one of ten points."""
    for rates in ((0.5, 0.5), (0.6, 0.5)):
        for tasks in TESTED:
            pairs = list(zip(*simulate(rates, 0.5, TEST_SETS, tasks, rng), strict=True))
            found: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
                "permutation": permutation_p,
                "mcnemar": lambda first, second: mcnemar(first.any(axis=1), second.any(axis=1)),
            }
            yield {
                "rates": list(rates),
                "tasks": tasks,
                **{
                    name: round(float(np.mean([p(*pair) <= 0.05 for pair in pairs])), 3)
                    for name, p in found.items()
                },
            }


# --- The page ---


def why(row: Mapping[str, Any]) -> str:
    """Returns the reason for a coverage outside the limits; "" inside."""
    if LOW <= row["ours"] <= HIGH:
        return ""
    rates = row.get("rates") or [row["rate"]]
    rare = [min(rate, 1 - rate) * row["tasks"] for rate in rates]
    if not any(rare):
        return "nothing is ever solved: the truth, 0, is in every interval"
    if row["ours"] > HIGH and not all(rare):
        return "one policy solves nothing, which its interval cannot take as certain"
    if row["ours"] > HIGH:
        return f"{min(rare):.1f} tasks of a policy end the rare way, so the result takes few values"
    if row["tasks"] <= 10:
        return "ten tasks with few values tell too little about variance and correlation"
    return "chance, or a fault"


def claims(figures: Figures) -> list[Claim]:
    rates, differences = figures["rates"], figures["differences"]
    solved = [row for row in rates if row["rate"]]
    inside = [row for row in solved if LOW - SLACK <= row["ours"] <= HIGH + SLACK]
    low = [row["ours"] for row in differences if row["ours"] < LOW - SLACK]
    even = [row for row in differences if LOW <= row["ours"] <= HIGH]
    scipy, tests = figures["against_scipy"], figures["tests"]
    null = [row["permutation"] for row in tests if row["rates"][0] == row["rates"][1]]
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / figures["test_sets"])
    missed = sum(row["percentile"] < LOW for row in solved)
    return [
        Claim(
            f"intervals of rates above 0 contain the truth in {LOW:.0%} to {HIGH:.0%} (two standard errors)",
            f"{len(inside)} of {len(solved)} cells; {_range(solved)}",
            len(inside) == len(solved),
        ),
        Claim(
            f"intervals of differences contain the truth in at least {LOW:.0%}",
            f"{len(differences) - len(low)} of {len(differences)} cells; {_range(differences)}",
            not low,
        ),
        Claim(f"the same: at most {HIGH:.0%} as well", f"{len(even)} of {len(differences)} cells", None),
        Claim("percentile bootstrap of rates above 0: cells below 93 %", f"{missed} of {len(solved)}", None),
        Claim(
            f"p-values of {scipy['exact_pairs']} pairs of ten tasks are scipy's exact ones",
            f"largest gap {scipy['exact_largest_gap']:.1e}",
            scipy["exact_largest_gap"] < 1e-9,
        ),
        Claim(
            f"p-values of {scipy['drawn_pairs']} pairs of 60 tasks are scipy's, but for the drawing",
            f"largest gap {scipy['drawn_largest_gap']}, "
            f"{scipy['drawn_largest_gap_in_errors']} standard errors",
            scipy["drawn_largest_gap_in_errors"] < 4,
        ),
        Claim(
            "without a difference, the permutation test finds one in at most 5 % (and two standard errors)",
            ", ".join(f"{share:.1%}" for share in null),
            max(null) <= most,
        ),
    ]


def _range(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{min(row['ours'] for row in rows):.1%} to {max(row['ours'] for row in rows):.1%}"


def tables(figures: Figures) -> str:
    head = ("runs' correlation", "rate", "tasks", "ours", "percentile", "BCa", "Student", "outside, because")
    tests = [
        (f"{one:.0%} and {other:.0%}", row["tasks"], f"{row['permutation']:.1%}", f"{row['mcnemar']:.1%}")
        for row in figures["tests"]
        for one, other in [row["rates"]]
    ]
    return "\n\n".join(
        (
            "## Rates (pass@1)",
            table(head, map(_row, figures["rates"])),
            "## Paired differences",
            table(("runs' correlation", "rates", *head[2:]), map(_row, figures["differences"])),
            "## Tests: evaluations with p up to 5 %",
            table(("rates", "tasks", "permutation test of pass@1", "McNemar's of pass@3"), tests),
        )
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    rates = " and ".join(f"{rate:.0%}" for rate in row.get("rates") or [row["rate"]])
    reason = why(row)
    ours = f"**{row['ours']:.1%}**" if reason else f"{row['ours']:.1%}"
    others = (f"{row[name]:.1%}" for name in ("percentile", "bca", "student"))
    return (f"{row['correlation']}", rates, str(row["tasks"]), ours, *others, reason)


ABOUT = """\
Evaluations of {tasks} tasks with {runs} runs each are drawn, {sets:,} per cell, and the intervals of reports
are computed from each. Chances of success are beta-distributed over tasks, so that runs of a task are
correlated ({correlations}). Two policies share the difficulty of a task (correlation {shared} of the chances,
on a normal scale). The tables have the share of intervals that contain the true rate or difference; 95 % is
right. A cell outside 93 to 97 % is bold, with the reason. With {sets:,} sets, the standard error of a cell is
0.3 points.

Ours: Wilson's interval at the effective sample size, and for differences Newcombe's combination of two such
intervals. Next to them, for the same data (the first {bootstrap_sets:,} sets, for BCa and many tasks fewer),
three usual intervals of a mean over tasks: the percentile bootstrap and the BCa bootstrap, which have no
width where all tasks end alike (BCa is then undefined, which counts as a miss), and Student's.

The tests: rates of two policies, 0.5 correlation of runs, {test_sets} evaluations each. McNemar's test looks
at tasks solved at least once, which is another question.
"""
PROOF = Proof(
    "Intervals and tests, simulated",
    ABOUT,
    measure,
    claims,
    tables,
    packages=("numpy", "scipy", "statsmodels"),
)

if __name__ == "__main__":
    main(PROOF)
