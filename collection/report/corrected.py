"""The table of rates and differences that are corrected for the errors of their judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collection.evaluation.judge_error import Judged, corrected_difference, corrected_rate
from collection.evaluation.results import Results
from collection.report.comparison import Difference
from collection.report.evaluations import Evaluation, benchmark_title
from collection.report.paper_tables import make_table, percent, points
from collection.report.tables import Table


def corrected_figures(
    evaluations: Sequence[Evaluation], compared: Sequence[Difference]
) -> list[dict[str, Any]]:
    """Computes pass@1 and its differences next to the corrected ones, where the errors are known."""
    by_key = {(one.label, one.benchmark): one for one in evaluations if one.judge_error}
    found: list[dict[str, Any]] = []
    for (label, benchmark), one in by_key.items():
        assert one.judge_error
        judged = _judged(one.results, one.results.has_result)
        corrected = corrected_rate(judged, one.judge_error, one.seed)
        errors = {"errors": one.judge_error.report()}
        found.append(_figure(label, benchmark, one.score["pass_at_1"], corrected.as_dict()) | errors)
    for difference in compared:
        keys = [(label, difference.benchmark) for label in (difference.first, difference.second)]
        if all(key in by_key for key in keys):
            first, second = (by_key[key] for key in keys)
            tasks = [task for task in first.results.tasks if task in set(second.results.tasks)]
            mine, theirs = (one.results.select(tasks) for one in (first, second))
            runs = min(mine.runs, theirs.runs)
            both = mine.has_result[:, :runs] & theirs.has_result[:, :runs]
            assert first.judge_error and second.judge_error
            judged = _judged(mine, both), _judged(theirs, both)
            corrected = corrected_difference(
                *judged, errors=(first.judge_error, second.judge_error), seed=first.seed
            )
            name = f"{first.label} − {second.label}"
            raw = difference.figures["pass_at_1"]
            found.append(_figure(name, first.benchmark, raw, corrected.as_dict()))
    return found


def corrected_table(figures: Sequence[dict[str, Any]]) -> Table:
    """Builds the table of `corrected_figures`."""
    rows = []
    for one in figures:
        shown, errors = (percent, one["errors"]) if "errors" in one else (points, {})
        rows.append(
            {
                "Policy": one["policy"],
                "Benchmark": benchmark_title(one["benchmark"]),
                "pass@1, judged": shown(one["judged"]),
                "Sensitivity of the judge (%)": percent(errors["sensitivity"]) if errors else "",
                "Specificity of the judge (%)": percent(errors["specificity"]) if errors else "",
                "pass@1, corrected": shown(one["corrected"]),
            }
        )
    caption = (
        "A judge passes a share of the successes (sensitivity) and fails a share of the failures "
        "(specificity), as measured by experiments.judge. The corrected figure (Rogan and Gladen) has an "
        "interval that resamples the tasks of the evaluation and those on which the errors were measured. "
        "It is right as far as the judge errs on both alike. Differences are in points."
    )
    return make_table("corrected", "Corrected for the judge's errors", caption, rows)


def _figure(policy: str, benchmark: str, judged: Any, corrected: Any) -> dict[str, Any]:
    return {"policy": policy, "benchmark": benchmark, "judged": judged, "corrected": corrected}


def _judged(results: Results, there: np.ndarray) -> Judged:
    """Shares of the runs `there` ([T, runs]); tasks without one are left out."""
    there = there & results.has_result[:, : there.shape[1]]
    kept = there.any(axis=1)
    runs = there.sum(axis=1)[kept]
    # A run that a limit ended is a failure, and no judge was asked.
    asked = results.values("outcome")[:, : there.shape[1]] == "done"
    passed = results.successes[:, : there.shape[1]]
    return Judged((passed & there).sum(1)[kept] / runs, (asked & there).sum(1)[kept] / runs)
