"""Builds the document around one of the paper's tables: details, differences, groups, cost plots, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection.evaluation.statistics import CONFIDENCE, RESAMPLES
from collection.report.comparison import Difference, differences
from collection.report.corrected import corrected_figures, corrected_table
from collection.report.evaluations import Evaluation
from collection.report.paper_tables import details_table, differences_table, groups_table, paper_table
from collection.report.plots import Plot, checkpoints_plot, cost_plots
from collection.report.published import STEPS_SAVED, TABLES
from collection.report.tables import Document, Table, latex_head, table_latex, to_markdown
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic

NOTES = (
    f"Intervals are of {CONFIDENCE:.0%} and over tasks, since the runs of one task share page and "
    "goal. Rates: Wilson's at the effective sample size; differences of rates: Newcombe's for "
    f"pairs; steps and cost: BCa bootstrap ({RESAMPLES:,} resamples). They do not cover variance between "
    "trainings of one policy.",
    "pass@1 is the mean over all runs of all tasks; pass@k the unbiased estimate of success in at least one "
    "of k runs.",
    "A run counts as a success when the agent declared completion and the judge (or the page) passed it. "
    "Never done: a limit of steps, failures or time ended the run, which is a failure.",
    "A run has no result if the site refused the agent or asked for a captcha (blocked), the start page did "
    "not open (unreachable), browser or machine were lost (crashed), or no verdict came (unjudged). They "
    "are in no rate. Every task weighs the same; pass@k leaves out tasks with fewer than k results. A "
    "difference is of the runs that have a result on both sides. In brackets: the figure over all runs, if "
    "those without a result had made it as small and as large as can be (of a rate: all failed, all solved). "
    "A rate for k > 1 and a difference may lie outside, since they leave out more runs than these. A policy "
    "that gives up at a refusal loses the run instead of failing it; the lower figure counts it as failed.",
    "C_1 is the mean cost of one run: the tokens of the agent's steps and page reads, without judging. "
    "k runs cost C_k = k C_1, without early stopping.",
    "The paper's figures were measured by its authors, on other days and partly with other judges: they are "
    "shown for orientation only and are part of no difference.",
)


def build_document(
    name: str,
    evaluations: Sequence[Evaluation],
    command: str,
    across_judges: bool = False,
    published: bool = False,
    columns: Sequence[str] = (),
) -> tuple[Document, dict[str, Any], list[Plot]]:
    """Builds the tables around one of `published.TABLES`, the same figures as JSON, and plots.

    Args:
      columns: titles of the columns that a table keeps, if it has any of them; empty for all.

    Raises:
      UserError: two policies to compare have no task in common, or other judges (unless `across_judges`); or
        no table has a column of that title.
    """
    compared = differences(name, evaluations, across_judges)
    tables: list[Table] = [paper_table(name, evaluations, compared, published), details_table(evaluations)]
    tables += [
        table
        for table in (differences_table(evaluations, compared), groups_table(evaluations, compared))
        if table.rows
    ]
    corrected = corrected_figures(evaluations, compared)
    tables += [corrected_table(corrected)] if corrected else []
    titles = {one.title: None for table in tables for one in table.columns}
    if unknown := [one for one in columns if one not in titles]:
        raise UserError(f"config.columns has {unknown[0]!r}: use titles of columns: {', '.join(titles)}")
    tables = [
        table.select(columns) if any(one.title in columns for one in table.columns) else table
        for table in tables
    ]
    plots = [*checkpoints_plot(evaluations), *cost_plots(evaluations)]
    document = Document(
        title=TABLES[name].title,
        tables=tables,
        plots=[(plot.title, f"{plot.name}.png") for plot in plots],
        notes=NOTES,
        command=command,
    )
    return document, {**_figures(name, evaluations, compared), "corrected": corrected}, plots


def write_document(document: Document, plots: Sequence[Plot], folder: Path) -> None:
    """Writes `table.md`, a LaTeX file for each table, and the plots."""
    texts = {f"{table.name}.tex": latex_head(document) + table_latex(table) for table in document.tables}
    for file, text in {"table.md": to_markdown(document), **texts}.items():
        write_atomic(folder / file, text.encode())
    for plot in plots:
        plot.write(folder)


def _figures(name: str, evaluations: Sequence[Evaluation], compared: Sequence[Difference]) -> dict[str, Any]:
    table = TABLES[name]
    measured: dict[str, dict[str, Any]] = {}
    for one in evaluations:
        measured.setdefault(one.label, {})[one.benchmark] = {**one.score, "left_out": one.left_out}
    return {
        "table": name,
        "measured": measured,
        "differences": [
            {
                "first": one.first,
                "second": one.second,
                "benchmark": one.benchmark,
                "same_tasks": one.same_tasks,
                "holm_p": one.holm_p,
                **one.figures,
            }
            for one in compared
        ],
        "paper": {
            "source": table.source,
            "rows": [
                {"label": row.label, "title": row.title, "rates": dict(row.rates), "steps": dict(row.steps)}
                for row in table.rows
            ],
            "steps_saved": STEPS_SAVED if name == "reflection" else {},
        },
    }
