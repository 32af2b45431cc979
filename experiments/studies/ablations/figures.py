"""Figures of the trained variants, ready for JSON, and their tables, built from `collection.report`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from collection.evaluation.statistics import CONFIDENCE, crossed_bootstrap, student_interval
from collection.report.dynamics import common_scales, dynamics_plot
from collection.report.paper_tables import NOT_REPORTED, number, percent, points
from collection.report.plots import standalone
from collection.report.tables import Column, Document, PlotFile, Table, TableRow
from experiments.studies.ablations.records import SFT, AblationRun, Settings
from experiments.studies.ablations.settings import FULL, VARIANTS
from rmsweb_jax.errors import UserError

NOTES = (
    f"Intervals are of {CONFIDENCE:.0%}. In the browser: percentile bootstrap that resamples trainings and "
    "tasks independently, because every training plays the same tasks. It counts the randomness of a single "
    "run more than once, which makes it wide, and underestimates the variance between few trainings (with "
    "three, the standard error by about a fifth).",
    "Differences are paired by seed and task. There is one SFT policy, so only its tasks are paired.",
    "Held-out rewards: Student's interval over trainings. With three trainings it extends more than four "
    "standard errors to each side, and beyond 0 and 1. Of six such differences without an effect, one "
    "excludes zero by chance in about every fourth table. A single seed gives no interval.",
)
PANELS = (
    "Mean over seeds, with a band from the lowest to the highest; dotted: the full recipe. All variants have "
    "the same scales. (a) Share of sampled groups without contrast, solved or unsolved, and without a "
    "competent reply (0 where that gate is off). (b) Mean log-probability per token of correct and wrong "
    "replies in accepted groups, and their gap. (c) KL to the SFT policy (k3), PPO KL within an iteration, "
    "share of clipped tokens, and log-perplexity of the rollouts."
)
# Title -> key of a variant's row, and the format of an interval.
DIFFERENCES: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "pass@1 minus the full recipe's, points": ("pass_minus_full", points),
    "pass@1 minus the SFT policy's, points": ("pass_minus_sft", points),
    "held-out reward minus the full recipe's": (
        "reward_minus_full",
        lambda interval: number(interval, 3, NOT_REPORTED, sign="+"),
    ),
}


def build_figures(
    shared: Settings, runs: Sequence[AblationRun], variants: Sequence[str], seeds: Sequence[int], seed: int
) -> dict[str, Any]:
    """Everything that the page shows, as JSON.

    Args:
      runs: trainings, and the SFT policy where it was evaluated.
      variants, seeds: requested ones; runs not among `runs` are listed under `missing`.
      seed: of the bootstrap.
    """
    tasks = {task_id for run in runs for task_id in run.tasks}
    finished = {(run.variant, run.seed) for run in runs}
    wanted = [(SFT, 0), *((variant, number) for number in seeds for variant in variants)]
    sft = next((run for run in runs if run.variant == SFT), None)
    return {
        "config": shared.config,
        "corpus": shared.corpus,
        "seeds": list(seeds),
        "tasks": len(tasks),
        "page_types": len({task_id.split("/")[1] for task_id in tasks}),
        "missing": [f"{variant} {number}" for variant, number in wanted if (variant, number) not in finished],
        "sft_pass_at_1": None if sft is None else float(pass_rates(sft, list(sft.tasks)).mean()),
        "variants": summarize(runs, seed),
    }


def summarize(runs: Sequence[AblationRun], seed: int = 0) -> list[dict[str, Any]]:
    """One row for each variant that has a run, in the order of `VARIANTS`.

    Returns:
      `pass_at_1` over trainings and tasks, `pass_by_seed`, and the differences `pass_minus_full`,
      `pass_minus_sft` and `reward_minus_full`; `reward` and `exact` of greedy replies to held-out prompts
      after training; what the trainings did as [lowest, highest]. None where there is nothing to compare.

    Raises:
      UserError: the seeds of a variant were evaluated on different tasks.
    """
    by_variant: dict[str, list[AblationRun]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_variant.setdefault(run.variant, []).append(run)
    full, sft = ({run.seed: run for run in by_variant.get(name, ())} for name in (FULL, SFT))
    rows = []
    for variant in (name for name in VARIANTS if name in by_variant):
        own = by_variant[variant]
        pairs = [(run, full[run.seed]) for run in own if run.seed in full and variant != FULL]
        rows.append(_row(variant, own, pairs, sft.get(0), seed))
    return rows


def pass_rates(run: AblationRun, task_ids: Sequence[str]) -> np.ndarray:
    """[T] share of a task's runs that succeeded."""
    return np.asarray([np.mean(run.tasks[task_id]) for task_id in task_ids])


def _row(
    variant: str,
    runs: Sequence[AblationRun],
    pairs: Sequence[tuple[AblationRun, AblationRun]],
    sft: AblationRun | None,
    seed: int,
) -> dict[str, Any]:
    tasks = _shared_tasks(runs)
    pass_at_1 = crossed_bootstrap(np.stack([pass_rates(run, tasks) for run in runs]), seed)
    if pass_at_1 is None:
        raise UserError(f"{variant}: its seeds have no task in common; delete its result files")
    trainings = [run.training for run in runs if run.training is not None]
    befores = [training.before.reward for training in trainings if training.before]
    afters = [training.after for training in trainings if training.after]
    held_out = [
        (one.training.after, other.training.after)
        for one, other in pairs
        if one.training and other.training and one.training.after and other.training.after
    ]

    def span(values: Sequence[float]) -> list[float] | None:
        return [min(values), max(values)] if values else None

    return {
        "variant": variant,
        "seeds": [run.seed for run in runs],
        "pass_at_1": pass_at_1.as_dict(),
        "pass_minus_full": _difference(pairs, seed),
        "pass_minus_sft": _difference([(run, sft) for run in runs], seed) if sft else None,
        "pass_by_seed": [float(pass_rates(run, list(run.tasks)).mean()) for run in runs],
        "corpus": trainings[0].corpus if trainings else None,
        "held_out_prompts": trainings[0].held_out_prompts if trainings else 0,
        "reward_before": float(np.mean(befores)) if befores else None,
        "reward": _estimate([after.reward for after in afters]),
        "exact": _estimate([after.exact for after in afters]),
        "reward_minus_full": _student([one.reward - other.reward for one, other in held_out]),
        **{
            name: span([getattr(training, name) for training in trainings])
            for name in ("prompts", "iterations", "optimizer_steps", "generation_batches")
        },
        "training_s": span([round(training.seconds) for training in trainings]),
        "evaluation_s": span([round(run.seconds) for run in runs]),
    }


def _shared_tasks(runs: Sequence[AblationRun]) -> list[str]:
    return [task_id for task_id in runs[0].tasks if all(task_id in run.tasks for run in runs)]


def _difference(pairs: Sequence[tuple[AblationRun, AblationRun]], seed: int) -> dict[str, float | int] | None:
    """Interval of the first's pass@1 minus the second's, paired by training and task."""
    if not pairs:
        return None
    tasks = _shared_tasks([run for pair in pairs for run in pair])
    rates = np.stack([pass_rates(first, tasks) - pass_rates(second, tasks) for first, second in pairs])
    found = crossed_bootstrap(rates, seed)
    return found and found.as_dict()


def _student(values: Sequence[float]) -> dict[str, float | int] | None:
    found = student_interval(values)
    return found and found.as_dict()


def _estimate(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean of the trainings with Student's interval; without `low` and `high` for a single training."""
    return _student(values) or ({"mean": values[0], "tasks": 1} if values else None)


def decided(rows: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """The variants whose interval excludes zero."""
    return [row for row in rows if row[key] and not row[key]["low"] <= 0 <= row[key]["high"]]


def findings(figures: Mapping[str, Any]) -> dict[str, str]:
    """Difference -> the variants whose interval excludes zero."""
    found = {}
    for title, (key, form) in DIFFERENCES.items():
        compared = [row for row in figures["variants"] if row[key]]
        names = [f"{row['variant']} {form(row[key])}" for row in decided(compared, key)]
        if compared:
            found[title] = f"{', '.join(names) or 'none'} of {len(compared)} variants"
    return found


# --- Tables ---


def tables(figures: Mapping[str, Any]) -> list[Table]:
    """Success in the browser, rewards on held-out prompts, and the work that was done."""
    rows = figures["variants"]
    return [_browser(figures), _held_out(rows), _work(rows)]


def document(figures: Mapping[str, Any], panels: Mapping[str, str], command: str) -> Document:
    """The page of one run of the study; `panels` are SVG texts by variant."""
    missing = [f"Not run yet: {', '.join(figures['missing'])}."] if figures["missing"] else []
    found = [f"Interval excludes zero, {title}: {names}." for title, names in findings(figures).items()]
    plots = [
        PlotFile(f"Training dynamics of {variant}", VARIANTS[variant], f"{variant}.svg", svg)
        for variant, svg in panels.items()
    ]
    notes = [*missing, *found, *NOTES, *([PANELS] if plots else [])]
    return Document("Ablations", tables(figures), plots, notes, command)


def render_panels(runs: Sequence[AblationRun]) -> dict[str, str]:
    """Variant -> its three panels as an SVG file; all variants share their scales."""
    trainings: dict[str, list[Any]] = {variant: [] for variant in VARIANTS}
    for run in sorted(runs, key=lambda run: run.seed):
        if run.training is not None:
            trainings[run.variant].append(run.training.rows())
    drawn = {variant: rows for variant, rows in trainings.items() if rows}
    scales = common_scales(list(drawn.values()))
    panels = {}
    for variant, rows in drawn.items():
        reference = [] if variant == FULL else trainings[FULL]
        panels[variant] = dynamics_plot(rows, variant, f"Training dynamics of {variant}", reference, scales)
    return {variant: standalone(svg) for variant, svg in panels.items() if svg}


def _browser(figures: Mapping[str, Any]) -> Table:
    rows = []
    if figures["sft_pass_at_1"] is not None:
        rows.append(("SFT policy", f"{100 * figures['sft_pass_at_1']:.1f}", "", "", "", ""))
    for row in figures["variants"]:
        rows.append(
            (
                row["variant"],
                percent(row["pass_at_1"]),
                _own(row, "pass_minus_full", points),
                points(row["pass_minus_sft"]),
                " / ".join(f"{100 * rate:.1f}" for rate in row["pass_by_seed"]),
                # A result outlives a variant that is no longer offered.
                VARIANTS.get(row["variant"], "(removed since)"),
            )
        )
    head = ("variant", "pass@1, %", "minus full, points", "minus SFT, points", "by seed, %", "change")
    return _table(
        "In the browser", f"{figures['tasks']} tasks of {figures['page_types']} page types.", head, rows
    )


def _held_out(variants: Sequence[Mapping[str, Any]]) -> Table:
    form = DIFFERENCES["held-out reward minus the full recipe's"][1]
    rows = [
        (
            row["variant"],
            f"{row['held_out_prompts']} ({row['corpus']})",
            NOT_REPORTED if row["reward_before"] is None else f"{row['reward_before']:.3f}",
            _mean(row["reward"]),
            _own(row, "reward_minus_full", form),
            _mean(row["exact"]),
        )
        for row in variants
        if row["reward"] is not None
    ]
    caption = (
        "Greedy replies to mined prompts of tasks that no training used, the same prompts for all variants, "
        "scored with the polarized reward of the full recipe; mean over prompts and seeds."
    )
    head = ("variant", "prompts (corpus)", "reward before", "after", "minus full", "exactly right after")
    return _table("Held-out prompts", caption, head, rows)


def _work(variants: Sequence[Mapping[str, Any]]) -> Table:
    names = ("prompts", "iterations", "optimizer_steps", "generation_batches", "training_s", "evaluation_s")
    rows = [
        (row["variant"], ", ".join(map(str, row["seeds"])), *(_span(row[name]) for name in names))
        for row in variants
    ]
    head = (
        "variant",
        "seeds",
        *(name.replace("_", " ") for name in names[:4]),
        "training, s",
        "evaluation, s",
    )
    return _table("Work done", "Lowest and highest over seeds.", head, rows)


def _table(title: str, caption: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, caption, tuple(map(Column, head)), tuple(TableRow(cells) for cells in rows))


def _own(row: Mapping[str, Any], key: str, form: Callable[[Mapping[str, Any]], str]) -> str:
    """A difference to the full recipe; empty in its own row."""
    if row["variant"] == FULL:
        return ""
    return NOT_REPORTED if row[key] is None else form(row[key])


def _mean(estimate: Mapping[str, Any] | None) -> str:
    if estimate is not None and "low" not in estimate:
        return f"{estimate['mean']:.3f}"
    return number(estimate, 3, NOT_REPORTED)


def _span(values: Sequence[float] | None) -> str:
    if values is None:
        return NOT_REPORTED
    low, high = values
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
