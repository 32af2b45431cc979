"""The paper's three tables with measured and published figures, and the tables with their details."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collection.evaluation.judged_by import UNKNOWN, judge_line
from collection.evaluation.results import GROUPINGS, MIN_GROUP_TASKS, missing_runs
from collection.report.comparison import Difference
from collection.report.evaluations import Evaluation, benchmark_title
from collection.report.published import BENCHMARKS, REFLECTION, STEPS_SAVED, TABLES, PaperRow, PaperTable
from collection.report.tables import NO_PRICE, NOT_REPORTED, NOT_RUN, Column, Table, TableRow

PAPER, MEASURED = "paper", "measured"
# Behind a difference between evaluations by different judges.
ACROSS_JUDGES = " §"
# Behind a figure from which runs without a result are missing, and behind a difference of which one side
# misses more than the other.
MISSING, UNEVEN = " ¶", " ≠"
# Fewer tasks than this are said to be few: 95 % intervals of rates near 50 % are wider than 25 points.
FEW_TASKS = 50
_OTHERS = "Measured, not in the paper"
_GROUP_NAMES = {"by_site": "site", "by_kind": "type", "by_level": "level"}
_HEAD = {
    "main": ("System", "Size / access", "Tasks (paper)"),
    "ablation": ("Variant", "Change"),
    "reflection": ("SFT data",),
}
Found = Mapping[tuple[str, str], Evaluation]


def paper_table(
    name: str, evaluations: Sequence[Evaluation], compared: Sequence[Difference], published: bool = False
) -> Table:
    """Builds one of `published.TABLES`, with separate columns for published and measured figures.

    Policies and benchmarks that the paper does not have are added at the bottom and on the right.

    Args:
      published: show the paper's rows and benchmarks that were not measured, too.
    """
    table = TABLES[name]
    found = {(one.label, one.benchmark): one for one in evaluations}
    played, labels = ({getattr(one, field) for one in evaluations} for field in ("benchmark", "label"))
    benchmarks = [
        *(one for one in BENCHMARKS if published or one in played),
        *dict.fromkeys(one.benchmark for one in evaluations if one.benchmark not in BENCHMARKS),
    ]
    known = {row.label for row in table.rows}
    others = [
        PaperRow(label, label, {}, section=_OTHERS)
        for label in dict.fromkeys(one.label for one in evaluations)
        if label not in known
    ]
    steps = name == REFLECTION.name
    columns = [Column(title) for title in _HEAD[name]]
    for benchmark in benchmarks:
        columns += _columns(benchmark, steps, table.source)
    shown = [row for row in table.rows if published or row.label in labels]
    rows = [
        TableRow(
            (
                *_head(table, row),
                *(cell for benchmark in benchmarks for cell in _cells(row, benchmark, found, steps)),
            ),
            row.section,
        )
        for row in (*shown, *others)
    ]
    if steps and len(shown) == len(table.rows):
        rows.insert(len(shown), _saved_row(benchmarks, compared))
    caption = f"Success in percent. {table.marks if published else ''}".strip()
    notes = table_notes(evaluations, compared if steps else ())
    return Table(table.title, caption, tuple(columns), tuple(rows), notes, table.name)


def details_table(evaluations: Sequence[Evaluation]) -> Table:
    """Builds a table of all measurements of each policy: what a rate includes and what it leaves out."""
    rows = [
        {
            "Policy": one.label,
            "Benchmark": benchmark_title(one.benchmark),
            "Tasks × runs": f"{one.score['tasks']} × {one.score['runs']}",
            "Tasks left out": NOT_REPORTED if one.left_out is None else str(one.left_out),
            **{f"pass@{k} (%)": percent(one.score.get(f"pass_at_{k}")) for k in (1, 2, 3)},
            "Runs without a result": missing_runs(one.score),
            "Runs never done": str(one.score["never_done"]),
            "Steps when solved": number(one.score["mean_steps_solved"], 2, "none solved"),
            "C_1 (US$)": number(one.score["cost"]["usd"], 4, NO_PRICE),
            "Tokens a run": _tokens(one.score["cost"]),
        }
        for one in evaluations
    ]
    caption = "Each policy on each benchmark, with 95 % intervals."
    return make_table("measurements", "Measurements", caption, rows, table_notes(evaluations))


def make_table(
    label: str,
    title: str,
    caption: str,
    rows: Sequence[Mapping[str, str]],
    notes: tuple[str, ...] = (),
    about: Mapping[str, str] = MappingProxyType({}),
    sections: Sequence[str] = (),
) -> Table:
    """Builds a table of rows by title of the column, the first two of which say what a row is."""
    columns = tuple(Column(one, about=about.get(one, "")) for one in (rows[0] if rows else ()))
    cells = zip(rows, sections or [""] * len(rows), strict=True)
    lines = tuple(TableRow(tuple(row.values()), section) for row, section in cells)
    return Table(title, caption, columns, lines, notes, label, keys=2)


def table_notes(evaluations: Sequence[Evaluation], compared: Sequence[Difference] = ()) -> tuple[str, ...]:
    """Returns the lines under a table: one a judge, with what it judged, and one on each mark."""
    judged: dict[str, list[str]] = {}
    for one in evaluations:
        name = f"{one.label} on {benchmark_title(one.benchmark)}"
        for judge, count in one.results.judges:
            judged.setdefault(judge_line(judge), []).append(f"{name} ({count} verdicts)")
        if not one.results.judges:
            judged.setdefault(UNKNOWN, []).append(name)
    notes = [f"Judged by {line}: {'; '.join(names)}." for line, names in judged.items()]
    missing = [
        f"{missing_runs(one.score)} of {one.label} on {benchmark_title(one.benchmark)}"
        for one in evaluations
        if one.results.missing
    ]
    if missing:
        notes.append(
            f"{MISSING.strip()} Runs without a result are left out: {'; '.join(missing)}. In brackets: the "
            "figure over all runs, if these had made it as small and as large as can be (of a rate: all "
            "failed, all solved)."
        )
    notes += [
        f"{UNEVEN.strip()} Uneven, so the difference may be one of what is missing: {one.first} misses "
        f"{one.figures['missing'][0]} runs, {one.second} {one.figures['missing'][1]} on "
        f"{benchmark_title(one.benchmark)} (sign test over tasks, p {p_value(one.figures['missing_p'])})."
        for one in compared
        if one.figures["uneven"]
    ]
    notes += [
        f"{ACROSS_JUDGES.strip()} Different judges, so the difference is not of the policies alone: "
        f"{one.first} and {one.second} on {benchmark_title(one.benchmark)}: {one.figures['across_judges']}."
        for one in compared
        if one.figures["across_judges"]
    ]
    return tuple(notes)


def differences_table(evaluations: Sequence[Evaluation], compared: Sequence[Difference]) -> Table:
    """Builds a table of paired differences, with the number of tasks that both policies played."""
    rows = [
        {
            "First − second": f"{one.first} − {one.second}",
            "Benchmark": benchmark_title(one.benchmark),
            "Shared tasks (of first / of second)": f"{figures['tasks']} ({figures['first_tasks']}, "
            f"{figures['second_tasks']}){'' if one.same_tasks else ', other prompts'}",
            "pass@1 (points)": points(figures["pass_at_1"]) + _mark(one),
            "Permutation p": p_value(figures["permutation_p"]),
            "Holm p": p_value(one.holm_p),
            "pass@3 (points)": points(figures.get("pass_at_3")) + _mark(one),
            "Fewer steps where both solve (%)": percent(figures["step_reduction"]) + _mark(one),
            "Solved by one alone": f"{figures['only_first']} / {figures['only_second']}",
            "McNemar p": p_value(figures["mcnemar_p"]),
        }
        for one in compared
        for figures in (one.figures,)
    ]
    once = "of tasks solved at least once in as many runs as both have."
    about = {
        "Permutation p": "The permutation test is of the difference in pass@1.",
        "Holm p": "Holm corrects the p-values of pass@1 over this table.",
        "Solved by one alone": f"Solved by one alone: {once}",
        "McNemar p": f"McNemar's test is {once}",
    }
    caption = "Paired by task, with 95 % intervals."
    if any(len({one.figures[n] for n in ("tasks", "first_tasks", "second_tasks")}) > 1 for one in compared):
        caption += " Tasks that only one of the two played are left out."
    if not all(one.same_tasks for one in compared):
        caption += (
            " Other prompts: the two were started with different lists of tasks and texts (one played a "
            "part, or dates were refreshed on another day)."
        )
    if any(sum(one.figures["missing"]) for one in compared):
        caption += " Runs count that have a result on both sides."
    notes = table_notes(evaluations, compared)
    return make_table("differences", "Differences on the same tasks", caption, rows, notes, about)


def groups_table(evaluations: Sequence[Evaluation], compared: Sequence[Difference]) -> Table:
    """Builds a table of pass@1 and differences by site, type and level, for groups that are large enough."""
    rates = [
        (
            one.benchmark,
            grouping,
            name,
            one.label,
            group["tasks"],
            percent(group["pass_at_1"]),
            "",
            "",
            f" × {one.results.runs}",
            f", {group['missing']} without a result",
        )
        for one in evaluations
        for grouping in GROUPINGS
        for name, group in one.score[grouping].items()
        if group["tasks"] >= MIN_GROUP_TASKS
    ]
    differences = [
        (
            one.benchmark,
            grouping,
            name,
            f"{one.first} − {one.second}",
            group["tasks"],
            points(group["pass_at_1"]) + _mark(one),
            p_value(group["permutation_p"]),
            p_value(group["holm_p"]),
            " shared",
            "",
        )
        for one in compared
        for grouping in GROUPINGS
        for name, group in one.figures[grouping].items()
    ]
    rows = [
        (
            f"{benchmark_title(benchmark)}, by {_GROUP_NAMES[grouping]}",
            {
                "Group": name,
                "Policy or difference": who,
                "Tasks × runs": f"{tasks}{runs}{', few tasks' if tasks < FEW_TASKS else ''}{missing}",
                "pass@1": figure,
                "Permutation p": p,
                "Holm p": holm,
            },
        )
        for benchmark, grouping, name, who, tasks, figure, p, holm, runs, missing in (*rates, *differences)
    ]
    rows.sort(key=lambda row: (row[0], row[1]["Group"]))
    caption = f"pass@1 in percent, with 95 % intervals; groups of {MIN_GROUP_TASKS} tasks or more."
    if any("few tasks" in row["Tasks × runs"] for _, row in rows):
        caption += f" Few tasks: fewer than {FEW_TASKS}, so that only large differences can be seen."
    about = {
        "Permutation p": "Differences in points; the permutation test is of pass@1.",
        "Holm p": "Holm corrects it over the groups of one grouping.",
    }
    sections, lines = zip(*rows, strict=True) if rows else ((), ())
    notes = table_notes(evaluations, compared)
    return make_table("groups", "By site, type and level", caption, lines, notes, about, sections)


def percent(interval: Mapping[str, Any] | None) -> str:
    """Formats a share with its interval, in percent; with bounds and a mark if runs are missing."""
    return number(interval, 1, NOT_REPORTED, 100) + _bounds(interval)


def points(interval: Mapping[str, Any] | None) -> str:
    """Formats a difference of shares as `percent`, in points, signed."""
    return number(interval, 1, NOT_REPORTED, 100, "+") + _bounds(interval, "+")


def number(
    interval: Mapping[str, Any] | None, digits: int, missing: str, scale: float = 1, sign: str = ""
) -> str:
    """Formats an interval as `mean (low to high)`."""
    if interval is None:
        return missing
    mean, low, high = (_rounded(scale * interval[key], digits, sign) for key in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _rounded(value: float, digits: int, sign: str) -> str:
    # A difference that rounds to zero gets no sign.
    return re.sub(r"^[+-](0\.?0*)$", r"\1", f"{value:{sign}.{digits}f}").replace("-", "−")


def _bounds(interval: Mapping[str, Any] | None, sign: str = "") -> str:
    if interval is None or interval.get("least") == interval.get("most"):
        return ""
    least, most = (_rounded(100 * interval[key], 1, sign) for key in ("least", "most"))
    return f" [{least} to {most}]{MISSING}"


def p_value(p: float) -> str:
    """Formats a p-value with four decimals; its ends are bounds."""
    return "< 0.001" if p < 0.001 else "> 0.999" if p > 0.999 else f"{p:.4f}"


def _head(table: PaperTable, row: PaperRow) -> tuple[str, ...]:
    texts = (row.title, row.note or NOT_REPORTED, row.tasks or NOT_REPORTED)
    return texts[: len(_HEAD[table.name])]


def _columns(benchmark: str, steps: bool, source: str) -> list[Column]:
    titles = [PAPER, MEASURED, "tasks × runs"]
    titles[2:2] = [f"steps ({PAPER})", f"steps ({MEASURED})"] if steps else []
    about = {
        PAPER: f"Columns marked {PAPER}: as printed in RMSWeb, {source}.",
        MEASURED: f"Columns marked {MEASURED}: mean over tasks and runs, with 95 % intervals.",
    }
    return [Column(title, benchmark_title(benchmark), about.get(title, "")) for title in titles]


def _cells(row: PaperRow, benchmark: str, found: Found, steps: bool) -> list[str]:
    one = found.get((row.label, benchmark))
    cells = [
        row.rates.get(benchmark, NOT_REPORTED),
        NOT_RUN if one is None else percent(one.score["pass_at_1"]),
    ]
    if steps:
        cells += [
            row.steps.get(benchmark, NOT_REPORTED),
            NOT_RUN if one is None else number(one.score["mean_steps_solved"], 2, "none solved"),
        ]
    return [*cells, NOT_RUN if one is None else _size(one)]


def _size(one: Evaluation) -> str:
    """Formats the tasks and runs of a rate, tasks left out of the benchmark, and runs without a result."""
    parts = [f"{len(one.results.tasks)} × {one.results.runs}"]
    if one.left_out is not None:
        parts.append(f"{one.left_out} tasks left out")
    return ", ".join([*parts, f"{one.score['missing']} runs without a result"])


def _saved_row(benchmarks: Sequence[str], compared: Sequence[Difference]) -> TableRow:
    """Builds the row `1 - steps with / steps without`, from the two policies' means on shared tasks."""
    by_benchmark = {
        one.benchmark: one
        for one in compared
        if (one.first, one.second) == tuple(row.label for row in REFLECTION.rows)
    }
    cells = ["Steps saved, %"]
    for benchmark in benchmarks:
        one = by_benchmark.get(benchmark)
        cells += [
            *("", "", STEPS_SAVED.get(benchmark, NOT_REPORTED)),
            NOT_RUN if one is None else percent(one.figures["steps_saved"]) + _mark(one),
            NOT_RUN if one is None else f"{one.figures['tasks']} shared tasks",
        ]
    return TableRow(tuple(cells))


def _mark(one: Difference) -> str:
    uneven = UNEVEN if one.figures["uneven"] else ""
    return uneven + (ACROSS_JUDGES if one.figures["across_judges"] else "")


def _tokens(cost: Mapping[str, Any]) -> str:
    if cost["prompt_tokens"] is None:
        return NOT_REPORTED
    prompt, response = (cost[name]["mean"] for name in ("prompt_tokens", "response_tokens"))
    return f"{prompt:,.0f} in, {response:,.0f} out"
