"""Collects all figures of a run: the content of `summary.json`, shown by the page."""

from __future__ import annotations

from typing import Any

from collection.evaluation.results import Results, compare, score
from collection.report.sources import LABELS, STAGES, RunFolder

PAIRS = (("sft", "base"), ("rl", "sft"), ("rl", "base"))
_EVALUATION = "eval/reward"
_SCORES = (
    *("label", "model", "tasks", "runs", "temperature", "mean_steps_solved", "by_site", "outcomes", "judges"),
    *("missing", "never_done", "fates", "cost"),
)


def build_summary(run: RunFolder, seed: int = 0, across_judges: bool = False) -> dict[str, Any]:
    """Collects the figures of every stage; None for a stage that has not run.

    Args:
      across_judges: as for `collection.evaluation.results.compare`, which may raise `UserError`.

    Returns:
      `stages.<folder>.{status, seconds}`, `total_seconds`, `teacher`, `models.<label>.pass_at_<k>` and
      the like, `differences.<a>_minus_<b>`, and one section per stage with its own report.
    """
    reports = {stage: run.report(stage) for stage in STAGES}
    results = {label: run.results(label) for label in LABELS}
    stages = {
        stage: {
            "status": "not run" if report is None else "done",
            "seconds": None if report is None else report["seconds"],
        }
        for stage, report in reports.items()
    }
    return {
        "stages": stages,
        "total_seconds": sum(stage["seconds"] or 0.0 for stage in stages.values()),
        "teacher": _teacher(reports["collect"]),
        "models": {label: _scores(reports[f"evaluate/{label}"], results[label], seed) for label in LABELS},
        "differences": _differences(results, seed, across_judges),
        "collection": _section(reports["collect"]),
        "policy_collection": _section(reports["collect_policy"]),
        "filter": _section(reports["sft_corpus"]),
        "sft": _section(reports["sft"]),
        "mining": _section(reports["mine"]),
        "rl": _section(reports["rl"]),
        "held_out": _held_out(run, reports["rl"]),
    }


def _held_out(run: RunFolder, report: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns greedy rewards on RL's held-out prompts, before and after; None if nothing is held out.

    Returns:
      `reward`, `type.<action type>` and `category.<failure mode>`, each with `first` and `last`.
    """
    if report is None:
        return None
    evaluated = [row for row in (*run.metrics("rl"), report["final"]) if _EVALUATION in row]
    if not evaluated:
        return None
    first, last = evaluated[0], evaluated[-1]

    def part(prefix: str) -> dict[str, Any]:
        names = sorted(
            key.removeprefix(prefix) for key in first.keys() | last.keys() if key.startswith(prefix)
        )
        return {name: {"first": first.get(prefix + name), "last": last.get(prefix + name)} for name in names}

    return {
        "reward": {"first": first[_EVALUATION], "last": last[_EVALUATION]},
        "type": part(f"{_EVALUATION}/type/"),
        "category": part(f"{_EVALUATION}/category/"),
    }


def _teacher(report: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if report is None else {"kind": report["teacher"], "model": report["model"]}


def _scores(report: dict[str, Any] | None, results: Results | None, seed: int) -> dict[str, Any] | None:
    """Computes the figures anew, as those of differences are, so that a report of an earlier version fits."""
    if report is None or results is None:
        return None
    figures = {**report, **score(results, seed)}
    return {key: value for key, value in figures.items() if key in _SCORES or key.startswith("pass_at_")}


def _differences(results: dict[str, Results | None], seed: int, across_judges: bool) -> dict[str, Any]:
    differences: dict[str, Any] = {}
    for first, second in PAIRS:
        mine, theirs = results[first], results[second]
        differences[f"{first}_minus_{second}"] = (
            None if mine is None or theirs is None else compare(mine, theirs, seed, across_judges)
        )
    return differences


def _section(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a stage's report without the fields that `stages` has and without lists of ids."""
    if report is None:
        return None
    return {key: value for key, value in report.items() if key not in ("stage", "seconds", "dropped_ids")}
