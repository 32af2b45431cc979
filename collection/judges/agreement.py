"""Agreement between judges: confusion tables, Cohen's kappa, precision and recall against a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collection.evaluation.statistics import CONFIDENCE, RESAMPLES, Interval

# Rows and columns of a confusion table, and their names.
VERDICTS: tuple[bool | None, ...] = (True, False, None)
NAMES = ("passed", "failed", "unjudged")
# Numbers per block of resamples: 32 MB of float64 for any number of tasks.
_CHUNK = 4_000_000

# One judge's verdicts by trajectory id.
Verdicts = Mapping[str, bool | None]


def confusion(first: Verdicts, second: Verdicts) -> np.ndarray:
    """Counts verdicts over the runs that both judged, [3, 3]; rows are the first judge's (`VERDICTS`)."""
    table = np.zeros((3, 3), int)
    for run in first.keys() & second.keys():
        table[VERDICTS.index(first[run]), VERDICTS.index(second[run])] += 1
    return table


def cohens_kappa(tables: np.ndarray) -> np.ndarray:
    """Agreement beyond chance, (p_o - p_e) / (1 - p_e) (Cohen 1960).

    Args:
      tables: [..., K, K] counts.

    Returns:
      [...]; NaN where it is undefined: without runs, or when both judges give one constant verdict.
    """
    tables = np.asarray(tables, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = tables / tables.sum((-2, -1), keepdims=True)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        expected = (shares.sum(-1) * shares.sum(-2)).sum(-1)
        # An undefined kappa must stay NaN despite rounding errors.
        return np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)


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
    kappa = float(cohens_kappa(counts.sum(0)))
    if np.isnan(kappa):
        return None
    estimates = np.concatenate([cohens_kappa(drawn) for drawn in _resampled(counts, seed, resamples)])
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


def _resampled(counts: np.ndarray, seed: int, resamples: int) -> list[np.ndarray]:
    """Yields blocks [R, 2, 2] of counts summed over tasks drawn with replacement from [T, 2, 2]."""
    tasks, rng = len(counts), np.random.default_rng(seed)
    even, at_once = np.full(tasks, 1 / tasks), max(1, _CHUNK // tasks)
    sizes = [min(at_once, resamples - start) for start in range(0, resamples, at_once)]
    flat = counts.reshape(tasks, 4)
    return [(rng.multinomial(tasks, even, size=size) @ flat).reshape(-1, 2, 2) for size in sizes]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
