"""Agreement between judges: confusion tables, Cohen's kappa, precision and recall against a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collection.evaluation.statistics import CONFIDENCE, Interval

# Rows and columns of a confusion table, and their names.
VERDICTS: tuple[bool | None, ...] = (True, False, None)
NAMES = ("passed", "failed", "unjudged")
# Each is a call of statsmodels. The standard error of a 2.5 % tail estimated from this many is 0.35 points.
RESAMPLES = 2_000

# One judge's verdicts by trajectory id.
Verdicts = Mapping[str, bool | None]


def confusion(first: Verdicts, second: Verdicts) -> np.ndarray:
    """Counts verdicts over the runs that both judged, [3, 3]; rows are the first judge's (`VERDICTS`)."""
    table = np.zeros((3, 3), int)
    for run in first.keys() & second.keys():
        table[VERDICTS.index(first[run]), VERDICTS.index(second[run])] += 1
    return table


def cohens_kappa(table: np.ndarray) -> float:
    """Agreement beyond chance, (p_o - p_e) / (1 - p_e) (Cohen 1960), of [K, K] counts.

    Returns:
      NaN where it is undefined: without runs, or when both judges give one constant verdict.
    """
    # Imported here: it takes a second to load, and most judgements need no kappa.
    from statsmodels.stats import inter_rater

    if np.count_nonzero(table.sum(0) + table.sum(1)) < 2:
        return np.nan
    kappa: Any = inter_rater.cohens_kappa(table, return_results=False)
    return float(kappa)


def kappa_interval(
    first: Verdicts, second: Verdicts, tasks: Mapping[str, str], seed: int = 0, resamples: int = RESAMPLES
) -> Interval | None:
    """Cohen's kappa over the runs that both judged, with a percentile bootstrap over tasks.

    Args:
      tasks: task of each run; the runs of a task are resampled together.

    Returns:
      None if kappa is undefined.
    """
    by_task: dict[str, np.ndarray] = {}
    for run in sorted(first.keys() & second.keys()):
        one, other = first[run], second[run]
        # Kappa is over two categories; runs that a judge left undecided are in the confusion table only.
        if one is not None and other is not None:
            by_task.setdefault(tasks[run], np.zeros((2, 2)))[int(one), int(other)] += 1
    if not by_task:
        return None
    counts = np.stack(list(by_task.values()))
    kappa = cohens_kappa(counts.sum(0))
    if np.isnan(kappa):
        return None
    # Drawing n tasks with replacement is a multinomial draw of how often each occurs.
    even = np.full(len(counts), 1 / len(counts))
    draws = np.random.default_rng(seed).multinomial(len(counts), even, size=resamples)
    estimates = [cohens_kappa(table) for table in np.tensordot(draws, counts, axes=1)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(estimates, [tail, 1 - tail])
    return Interval(kappa, float(low), float(high), len(counts))


def against(judge: Verdicts, reference: Verdicts) -> dict[str, Any]:
    """Compares a judge with a reference over the runs that the reference decided.

    Unjudged runs count as not passed, so they lower the recall. A share with an empty denominator is None.

    Returns:
      Counts, `precision` (share of the judge's passes that the reference passed), `recall` (share of the
      reference's passes that the judge passed), `wrong_passed` (share of the reference's failures that the
      judge passed), `accuracy` (share of the judge's verdicts that equal the reference's).
    """
    table = confusion(judge, {run: verdict for run, verdict in reference.items() if verdict is not None})
    right, wrong = int(table[0, 0]), int(table[0, 1])
    decided = int(table[:2, :2].sum())
    return {
        "runs": int(table.sum()),
        "unjudged": int(table[2].sum()),
        "precision": _share(right, right + wrong),
        "recall": _share(right, int(table[:, 0].sum())),
        "wrong_passed": _share(wrong, int(table[:, 1].sum())),
        "accuracy": _share(int(table[0, 0] + table[1, 1]), decided),
    }


def compare(first: Verdicts, second: Verdicts, tasks: Mapping[str, str], seed: int = 0) -> dict[str, Any]:
    """Compares two judges on the runs that both judged: confusion table, agreement and kappa."""
    table = confusion(first, second)
    both = int(table[:2, :2].sum())
    kappa = kappa_interval(first, second, tasks, seed)
    return {
        "confusion": table.tolist(),
        "both_judged": both,
        "agreement": _share(int(table[0, 0] + table[1, 1]), both),
        "kappa": kappa and kappa.as_dict(),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
