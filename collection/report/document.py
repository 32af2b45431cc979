"""Builds the document around one of the paper's tables: details, differences, groups, cost plots, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collection.evaluation.statistics import CONFIDENCE, RESAMPLES
from collection.report.comparison import Difference, differences
from collection.report.evaluations import Evaluation, benchmark_title
from collection.report.paper_tables import details_table, differences_table, groups_table, paper_table
from collection.report.plots import CostCurve, cost_plot, standalone
from collection.report.published import STEPS_SAVED, TABLES
from collection.report.tables import Document, PlotFile, Table, to_html, to_latex, to_markdown

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
) -> tuple[Document, dict[str, Any]]:
    """Builds the tables around one of `published.TABLES`, and the same figures as JSON.

    Raises:
      UserError: two policies to compare have no task in common, or other judges (unless `across_judges`).
    """
    compared = differences(name, evaluations, across_judges)
    tables: list[Table] = [paper_table(name, evaluations, compared, published), details_table(evaluations)]
    tables += [
        table
        for table in (differences_table(evaluations, compared), groups_table(evaluations, compared))
        if table.rows
    ]
    document = Document(
        title=f"{TABLES[name].title}: measured, and in the paper",
        tables=tables,
        plots=cost_plots(evaluations),
        notes=NOTES,
        command=command,
    )
    return document, _figures(name, evaluations, compared)


def document_files(document: Document) -> dict[str, str]:
    """Renders all files of a document except the JSON: file name -> text."""
    return {
        **{plot.file: standalone(plot.svg) for plot in document.plots},
        "table.md": to_markdown(document),
        "table.tex": to_latex(document),
        "table.html": to_html(document),
    }


def cost_plots(evaluations: Sequence[Evaluation]) -> list[PlotFile]:
    """Plots accuracy against cost by benchmark, in dollars if all policies have a price, else in tokens.

    Evaluations without recorded tokens or cost, or without any result, are left out.
    """
    plots = []
    for benchmark in dict.fromkeys(one.benchmark for one in evaluations):
        there = [one for one in evaluations if one.benchmark == benchmark and _rates(one)]
        dollars = [one for one in there if one.score["cost"]["usd"]]
        shown = dollars if len(dollars) == len(there) else [one for one in there if _tokens(one)]
        if not shown:
            continue
        unit = "US dollars a task" if shown is dollars else "tokens a task"
        cost = _dollars if shown is dollars else _tokens
        curves = [CostCurve(one.label, cost(one), _rates(one)) for one in shown]
        title = f"Accuracy and cost on {benchmark_title(benchmark)}"
        caption = f"pass@1, 2, 3 against {unit}, C_k = k C_1; bars are 95 % intervals of the rates."
        svg = cost_plot(curves, unit, f"cost-{benchmark}", title)
        plots.append(PlotFile(title, caption, f"cost-{benchmark}.svg", svg))
    return plots


def _rates(one: Evaluation) -> list[tuple[float, float, float]]:
    intervals = [one.score[f"pass_at_{k}"] for k in range(1, min(3, one.results.runs) + 1)]
    return [(interval["mean"], interval["low"], interval["high"]) for interval in intervals if interval]


def _dollars(one: Evaluation) -> float:
    return one.score["cost"]["usd"]["mean"]


def _tokens(one: Evaluation) -> float:
    cost = one.score["cost"]
    return sum(cost[name]["mean"] for name in ("prompt_tokens", "response_tokens") if cost[name])


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
