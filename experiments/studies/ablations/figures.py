"""Figures of the trained variants, ready for JSON, and their tables, built from `collection.report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collection.evaluation.statistics import CONFIDENCE
from collection.report.paper_tables import percent, points
from collection.report.tables import Column, Document, Table, TableRow
from experiments.studies.ablations.crossed import crossed_bootstrap
from experiments.studies.ablations.records import SFT, BrowserRun, HeldOut, Settings, TrainingRun
from experiments.studies.ablations.settings import FULL, VARIANTS
from rmsweb_jax.errors import UserError

ALL = "all"
# Standard errors that a difference must have to be found in four of five repetitions at the 5 % level.
_DETECTABLE = 2.8
# Claim of the paper -> variant that the full recipe is compared with (None: the first policy), and what the
# paper reports, in points of success on its three benchmarks.
PAPER_CLAIMS = {
    "RL improves the SFT policy": (None, "+3.7 / +7.0 / +2.4"),
    "mined prompts are better than the full corpus": ("full_corpus", "+2.0 / +5.7 / +4.8"),
    "the salvage anchor helps": ("anchor_free", "+1.7 / +5.9 / +1.0"),
    "competence gate and anchor are better than DAPO": ("dapo", "+1.5 / +3.8 / +3.0"),
    "RL is better than SFT on the same prompts": ("sft_same_prompts", "not reported"),
}
NOTES = (
    f"Intervals are of {CONFIDENCE:.0%}: percentile bootstrap that resamples trainings and tasks "
    "independently, because all trainings answer the same prompts and play the same tasks. A task's "
    "prompts are drawn together. It counts the randomness of a single run more than once, which makes it "
    "wide, and underestimates the variance between few trainings (with three, the standard error by about a "
    "fifth).",
    "Differences are paired by seed and prompt, or task. Detectable: the smallest true difference that would "
    "be found in four of five such studies, 2.8 standard errors.",
    "Classes of prompts are by eight replies of the first policy: *accepted* by both gates, *solved* (all "
    "right, no contrast), *hard* (no competent reply). The replies are sampled, but the greedy reply that is "
    "compared is not one of them.",
    "The learning rate of `sft_same_prompts` is that of RL and was not tuned: another one may do better.",
)


def build_figures(
    shared: Settings,
    held_out: HeldOut,
    trainings: Sequence[TrainingRun],
    played: Sequence[BrowserRun],
    seed: int,
) -> dict[str, Any]:
    """Everything that the page shows, as JSON; `seed` is that of the bootstrap."""
    tasks = {task_id for run in played for task_id in run.tasks}
    sft = next((run for run in played if run.variant == SFT), None)
    return {
        "config": shared.config,
        "corpus": shared.corpus,
        "seeds": sorted({run.seed for run in trainings}),
        "played": len(played),
        "tasks": len(tasks),
        "page_types": len({task_id.split("/")[1] for task_id in tasks}),
        "classes": {name: int(mask.sum()) for name, mask in class_masks(held_out).items()},
        "exact_before": {
            name: float(before(held_out)[mask].mean()) for name, mask in class_masks(held_out).items()
        },
        "variants": summarize(held_out, trainings, seed),
        "sft_pass_at_1": None if sft is None else float(pass_rates(sft, list(sft.tasks)).mean()),
        "browser": summarize_browser(played, seed),
    }


def class_masks(held_out: HeldOut) -> dict[str, np.ndarray]:
    """Class of prompts -> [P] which held-out prompts are in it; `ALL` comes first."""
    fates = np.asarray(held_out.fates)
    return {ALL: np.ones(len(fates), bool)} | {name: fates == name for name in sorted(set(held_out.fates))}


def before(held_out: HeldOut) -> np.ndarray:
    """[P] whether the first policy's greedy reply is exactly right."""
    return np.asarray(held_out.exact, np.float64)


def summarize(held_out: HeldOut, trainings: Sequence[TrainingRun], seed: int = 0) -> list[dict[str, Any]]:
    """One row for each variant that has a training, in the order of `VARIANTS`.

    Returns:
      `change` of the exact share since before training, and `minus_full`, the difference of both variants'
      exact shares, by class of prompts; None where there is nothing to compare. What the trainings did is
      given as [lowest, highest].

    Raises:
      UserError: a training answered another number of prompts.
    """
    masks = class_masks(held_out)
    by_variant: dict[str, dict[int, TrainingRun]] = {}
    for run in sorted(trainings, key=lambda run: run.seed):
        if len(run.exact) != len(held_out.exact):
            raise UserError(f"{run.variant} {run.seed}: it answered other prompts; delete its result file")
        by_variant.setdefault(run.variant, {})[run.seed] = run
    rows = []
    for variant in (name for name in VARIANTS if name in by_variant):
        own, full = by_variant[variant], by_variant.get(FULL, {})
        pairs = [number for number in own if number in full and variant != FULL]
        change = np.stack([_exact(run) - before(held_out) for run in own.values()])
        minus_full = np.stack([_exact(own[at]) - _exact(full[at]) for at in pairs]) if pairs else None
        rows.append(
            {
                "variant": variant,
                "seeds": list(own),
                "change": {name: _interval(change, mask, held_out, seed) for name, mask in masks.items()},
                "minus_full": {
                    name: None if minus_full is None else _interval(minus_full, mask, held_out, seed)
                    for name, mask in masks.items()
                },
                "prompts": _span([run.prompts for run in own.values()]),
                "optimizer_steps": _span([run.optimizer_steps for run in own.values()]),
                "training_s": _span([round(run.seconds) for run in own.values()]),
            }
        )
    return rows


def _exact(run: TrainingRun) -> np.ndarray:
    return np.frombuffer(run.exact.encode(), np.uint8).astype(np.float64) - ord("0")


def _span(values: Sequence[int]) -> list[int]:
    return [min(values), max(values)]


def _interval(values: np.ndarray, mask: np.ndarray, held_out: HeldOut, seed: int) -> dict[str, float]:
    """Mean of [S, P] values over the prompts of a class, with the interval and the detectable difference."""
    tasks, index, counts = np.unique(
        np.asarray(held_out.tasks)[mask], return_inverse=True, return_counts=True
    )
    sums = np.zeros((len(values), len(tasks)))
    for row, chosen in zip(sums, values[:, mask], strict=True):
        np.add.at(row, index, chosen)
    found = crossed_bootstrap(sums / counts, seed, weights=counts)
    assert found is not None
    detectable = _DETECTABLE * (found.high - found.low) / (2 * 1.96)
    return {**found.as_dict(), "detectable": detectable}


def summarize_browser(played: Sequence[BrowserRun], seed: int = 0) -> list[dict[str, Any]]:
    """One row for each variant whose policies were played: `pass_at_1`, by seed, and differences.

    Raises:
      UserError: the seeds of a variant were evaluated on different tasks.
    """
    by_variant: dict[str, dict[int, BrowserRun]] = {}
    for run in sorted(played, key=lambda run: run.seed):
        by_variant.setdefault(run.variant, {})[run.seed] = run
    full, sft = by_variant.get(FULL, {}), by_variant.get(SFT, {}).get(0)
    rows = []
    for variant in (name for name in VARIANTS if name in by_variant):
        own = list(by_variant[variant].values())
        tasks = _shared_tasks(own)
        pass_at_1 = crossed_bootstrap(np.stack([pass_rates(run, tasks) for run in own]), seed)
        if pass_at_1 is None:
            raise UserError(f"{variant}: its seeds have no task in common; delete its result files")
        pairs = [(run, full[run.seed]) for run in own if run.seed in full and variant != FULL]
        rows.append(
            {
                "variant": variant,
                "pass_at_1": pass_at_1.as_dict(),
                "pass_by_seed": [float(pass_rates(run, list(run.tasks)).mean()) for run in own],
                "pass_minus_full": _difference(pairs, seed),
                "pass_minus_sft": _difference([(run, sft) for run in own], seed) if sft else None,
            }
        )
    return rows


def pass_rates(run: BrowserRun, task_ids: Sequence[str]) -> np.ndarray:
    """[T] share of a task's runs that succeeded."""
    return np.asarray([np.mean(run.tasks[task_id]) for task_id in task_ids])


def _shared_tasks(runs: Sequence[BrowserRun]) -> list[str]:
    return [task_id for task_id in runs[0].tasks if all(task_id in run.tasks for run in runs)]


def _difference(pairs: Sequence[tuple[BrowserRun, BrowserRun]], seed: int) -> dict[str, float | int] | None:
    """Interval of the first's pass@1 minus the second's, paired by training and task."""
    if not pairs:
        return None
    tasks = _shared_tasks([run for pair in pairs for run in pair])
    rates = np.stack([pass_rates(first, tasks) - pass_rates(second, tasks) for first, second in pairs])
    found = crossed_bootstrap(rates, seed)
    return found and found.as_dict()


def compared(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The paper's claims: (claim, paper's figures, measured). An interval of exact replies decides none."""
    rows = {row["variant"]: row for row in figures["variants"]}
    found = []
    for claim, (other, paper) in PAPER_CLAIMS.items():
        if other is None:
            gain = rows[FULL]["change"][ALL] if FULL in rows else None
        else:
            gain = _negated(rows[other]["minus_full"][ALL]) if other in rows else None
        found.append((claim, paper, "not run yet" if gain is None else points(gain)))
    return found


def _negated(interval: Mapping[str, float] | None) -> dict[str, float] | None:
    if interval is None:
        return None
    flipped = {"mean": -interval["mean"], "low": -interval["high"], "high": -interval["low"]}
    return {**interval, **flipped}


# --- Tables ---


def tables(figures: Mapping[str, Any]) -> list[Table]:
    """The paper's claims, held-out prompts by class, success in the browser, and the work that was done."""
    claims = _table(
        "The paper's claims",
        "Full recipe minus the other, in points of exact greedy replies to all held-out prompts; the paper's "
        "are points of success on WebVoyager / Online-Mind2Web / WebTailBench at 8B.",
        ("claim", "paper", "here"),
        compared(figures),
    )
    browser = [_browser(figures)] if figures["played"] else []
    return [claims, *_held_out(figures), *browser, _work(figures["variants"])]


def document(figures: Mapping[str, Any], command: str) -> Document:
    """The page of one run of the study."""
    missing = [f"Not run yet: {', '.join(figures['missing'])}."] if figures["missing"] else []
    return Document("Ablations", tables(figures), [], [*missing, *NOTES], command)


def _held_out(figures: Mapping[str, Any]) -> list[Table]:
    classes, rows = figures["classes"], figures["variants"]
    shares = figures["exact_before"]
    counted = ", ".join(f"{name} {count} ({100 * shares[name]:.1f}%)" for name, count in classes.items())
    change = [
        (row["variant"], str(len(row["seeds"])), *(points(row["change"][name]) for name in classes))
        for row in rows
    ]
    minus = [
        (
            row["variant"],
            *(points(row["minus_full"][name]) for name in classes),
            _detectable(row["minus_full"]),
        )
        for row in rows
        if row["minus_full"][ALL] is not None
    ]
    return [
        _table(
            "Held-out prompts: change by training",
            "Primary outcome: change of the share of exact greedy replies, in points, by class of the prompt "
            f"under the first policy. Prompts, and exact before: {counted}.",
            ("variant", "seeds", *classes),
            change,
        ),
        _table(
            "Held-out prompts: minus the full recipe",
            "Differences in points after training.",
            ("variant", *classes, "detectable, all"),
            minus,
        ),
    ]


def _detectable(intervals: Mapping[str, Mapping[str, float]]) -> str:
    return f"{100 * intervals[ALL]['detectable']:.1f}"


def _browser(figures: Mapping[str, Any]) -> Table:
    rows = []
    if figures["sft_pass_at_1"] is not None:
        rows.append(("first policy", f"{100 * figures['sft_pass_at_1']:.1f}", "", "", ""))
    rows += [
        (
            row["variant"],
            percent(row["pass_at_1"]),
            "" if row["variant"] == FULL else points(row["pass_minus_full"]),
            points(row["pass_minus_sft"]),
            " / ".join(f"{100 * rate:.1f}" for rate in row["pass_by_seed"]),
        )
        for row in figures["browser"]
    ]
    head = ("variant", "pass@1, %", "minus full, points", "minus first policy, points", "by seed, %")
    caption = f"{figures['tasks']} tasks of {figures['page_types']} page types."
    return _table("In the browser", caption, head, rows)


def _work(variants: Sequence[Mapping[str, Any]]) -> Table:
    names = ("prompts", "optimizer_steps", "training_s")
    rows = [
        (row["variant"], *(_range(row[name]) for name in names), VARIANTS[row["variant"]]) for row in variants
    ]
    head = ("variant", "prompts", "optimizer steps", "training, s", "change")
    return _table("Work done", "Lowest and highest over seeds.", head, rows)


def _range(span: Sequence[int]) -> str:
    low, high = span
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(title: str, caption: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, caption, tuple(map(Column, head)), tuple(TableRow(cells) for cells in rows))
