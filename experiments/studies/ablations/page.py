"""The ablations as a Markdown page with the panels of each variant's training dynamics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jinja2

from collection.evaluation.statistics import CONFIDENCE, Interval
from collection.report.dynamics import common_scales, dynamics_plot
from collection.report.plots import standalone
from experiments.studies.ablations.figures import FULL, VARIANTS, VariantFigures, decided, pass_rates
from experiments.studies.ablations.records import SFT, AblationRun, Settings


def render_panels(figures: Sequence[VariantFigures]) -> dict[str, str]:
    """Variant -> its three panels as an SVG file, all on the same scales."""
    trainings = {one.variant: [run.training.rows() for run in one.runs if run.training] for one in figures}
    scales, reference = common_scales(list(trainings.values())), trainings.get(FULL, [])
    panels = {}
    for variant, rows in trainings.items():
        against = [] if variant == FULL else reference
        panels[variant] = dynamics_plot(rows, variant, f"Training dynamics of {variant}", against, scales)
    return {variant: standalone(svg) for variant, svg in panels.items() if svg}


def render_page(
    settings: Settings,
    runs: Sequence[AblationRun],
    figures: Sequence[VariantFigures],
    panels: Sequence[str],
    *,
    command: str,
    variants: Sequence[str],
    seeds: Sequence[int],
    folder: str,
) -> str:
    """The whole page.

    Args:
      figures: of `runs`.
      panels: variants that have a plot.
      command: that made the page.
      variants, seeds: what was asked for; what is missing of it is said.
      folder: of the plots and result files, from the page's folder.
    """
    tasks = {task_id for run in runs for task_id in run.tasks}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection", "report"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    return environment.get_template("ablations.md.j2").render(
        command=command,
        config=settings.config,
        corpus=settings.corpus,
        variants=variants,
        seeds=seeds,
        tasks=len(tasks),
        pages=len({task_id.split("/")[1] for task_id in tasks}),
        folder=folder,
        missing=_missing(runs, variants, seeds),
        findings=_findings(figures),
        browser=_browser(figures, next((run for run in runs if run.variant == SFT), None)),
        held_out=_held_out(figures),
        work=_work(figures),
        panels=panels,
        changes=VARIANTS,
        percent=round(100 * CONFIDENCE),
    )


def _missing(runs: Sequence[AblationRun], variants: Sequence[str], seeds: Sequence[int]) -> list[str]:
    there = {(run.variant, run.seed) for run in runs}
    wanted = [(SFT, 0), *((variant, seed) for seed in seeds for variant in variants)]
    return [
        "the SFT policy's evaluation" if variant == SFT else f"{variant} {seed}"
        for variant, seed in wanted
        if (variant, seed) not in there
    ]


def _findings(figures: Sequence[VariantFigures]) -> list[str]:
    questions = (
        ("pass@1 less that of the full recipe, in points", lambda one: one.pass_minus_full, _points),
        ("pass@1 less that of the SFT policy, in points", lambda one: one.pass_minus_sft, _points),
        ("Held-out reward less that of the full recipe", lambda one: one.reward_minus_full, _signed),
    )
    return [
        f"{what}: {_sentence(figures, interval, form)}"
        for what, interval, form in questions
        if any(interval(one) for one in figures)
    ]


def _sentence(
    figures: Sequence[VariantFigures],
    interval: Callable[[VariantFigures], Interval | None],
    form: Callable[[Interval | None], str],
) -> str:
    found = decided(figures, interval)
    if not found:
        return "no interval leaves out zero."
    parts = [f"{one.variant} {form(interval(one))}" for one in found]
    rest = [one.variant for one in figures if interval(one) and one not in found]
    tail = f"; not told from zero: {', '.join(rest)}" if rest else ""
    return f"the interval leaves out zero for {', '.join(parts)}{tail}."


def _browser(figures: Sequence[VariantFigures], sft: AblationRun | None) -> str:
    rows = []
    if sft is not None:
        own = pass_rates(sft, list(sft.tasks))
        rows.append(["SFT policy", f"{100 * own.mean():.1f}", "", "", ""])
    for one in figures:
        by_seed = [f"{100 * pass_rates(run, list(run.tasks)).mean():.1f}" for run in one.runs]
        rows.append(
            [
                one.variant,
                _rate(one.pass_at_1),
                _points(one.pass_minus_full) if one.variant != FULL else "",
                _points(one.pass_minus_sft),
                " / ".join(by_seed),
            ]
        )
    head = ["variant", "pass@1, %", "less full recipe, points", "less SFT, points", "by seed, %"]
    return _table(head, rows)


def _held_out(figures: Sequence[VariantFigures]) -> str:
    rows = []
    for one in figures:
        training = one.runs[0].training
        if training is None or not one.rewards:
            continue
        rows.append(
            [
                one.variant,
                f"{training.held_out_prompts} ({training.corpus})",
                "–" if one.reward_before is None else f"{one.reward_before:.3f}",
                _plain(one.rewards, one.reward),
                _signed(one.reward_minus_full) if one.variant != FULL else "",
                _plain(one.exacts, one.exact),
            ]
        )
    if not rows:
        return "No prompts are held out."
    head = [
        "variant",
        "prompts (corpus)",
        "reward before",
        "after",
        "less full recipe",
        "exactly right after",
    ]
    return _table(head, rows)


def _work(figures: Sequence[VariantFigures]) -> str:
    rows = []
    for one in figures:
        trainings = [run.training for run in one.runs if run.training]
        rows.append(
            [
                one.variant,
                ", ".join(str(run.seed) for run in one.runs),
                _range([training.prompts for training in trainings]),
                _range([training.iterations for training in trainings]),
                _range([training.optimizer_steps for training in trainings]),
                _range([training.generation_batches for training in trainings]),
                _range([round(training.seconds) for training in trainings]),
                _range([round(run.seconds) for run in one.runs]),
            ]
        )
    head = [
        "variant",
        "seeds",
        "prompts",
        "iterations",
        "optimizer steps",
        "generation batches",
        "training, s",
        "evaluation, s",
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rate(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _plain(values: Sequence[float], interval: Interval | None) -> str:
    """The mean, with its interval where there is one."""
    mean = f"{sum(values) / len(values):.3f}"
    return mean if interval is None else f"{mean} ({interval.low:.3f} to {interval.high:.3f})"


def _points(interval: Interval | None) -> str:
    return _difference(interval, 100, 1)


def _signed(interval: Interval | None) -> str:
    return _difference(interval, 1, 3)


def _difference(interval: Interval | None, scale: float, digits: int) -> str:
    if interval is None:
        return "–"
    values = (interval.mean, interval.low, interval.high)
    mean, low, high = (f"{scale * value:+.{digits}f}".replace("-", "−") for value in values)
    return f"{mean} ({low} to {high})"


def _range(values: Sequence[Any]) -> str:
    if not values:
        return "–"
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"
