"""A sheet of judges: what each judge makes of the same runs, how far they agree, and with people."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collection.evaluation.judged_by import UNKNOWN, count_verdicts, judge_line
from collection.evaluation.statistics import rate_interval
from collection.judges.agreement import NAMES, Verdicts
from collection.judges.base import WITHOUT_A_CALL
from collection.judges.judgements import Judgement, RunFacts
from collection.report.paper_tables import FEW_TASKS, number, percent
from collection.report.tables import NOT_REPORTED, Column, Document, Table, TableRow
from rmsweb_jax.records.schema import JudgeFingerprint

# Name of a count -> outcomes of runs that were not played to their end.
APART = {
    "blocked": ("blocked", "captcha"),
    "unreachable": ("unreachable", "crashed"),
    "timed_out": ("timeout",),
}
_ENDED = tuple(itertools.chain.from_iterable(APART.values()))
ALL = "all"


def sheet_figures(
    runs: Sequence[RunFacts], judgements: Sequence[Judgement], labels: Verdicts, by: str
) -> dict[str, Any]:
    """Computes the sheet.

    Args:
      labels: people's verdicts, one more column, if there are any.
      by: what a row is: a field of `RunFacts` (`policy`, `site` or `kind`).

    Returns:
      `rows`: of each group of runs, and of all if there are several, `runs`, `tasks`, the counts of `APART`,
      and in `judges` of each judge `passed`, `failed`, `unjudged` and the `share` passed, with its interval
      over tasks. These are of the runs that were played to their end; the share is of those decided.
      `judges`: a line on each version, with the number of verdicts that it was asked for and gave, by judge.
    """
    verdicts: dict[str, dict[str, bool | None]] = {}
    judged: dict[str, list[tuple[JudgeFingerprint | None, bool]]] = {}
    for one in judgements:
        verdicts.setdefault(one.judge, {})[one.trajectory_id] = one.success
        gave = one.success is not None and one.text not in WITHOUT_A_CALL
        judged.setdefault(one.judge, []).append((one.fingerprint, gave))
    if labels:
        verdicts["labels"] = dict(labels)
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(getattr(run, by) or NOT_REPORTED, []).append(run)
    if len(groups) > 1:
        groups[ALL] = list(runs)
    return {
        "by": by,
        "rows": [{"row": name, **_row(some, verdicts)} for name, some in groups.items()],
        "judges": {
            name: [f"{judge_line(one)}, {count} verdicts" for one, count in count_verdicts(found)]
            or [UNKNOWN]
            for name, found in judged.items()
        },
    }


def _row(runs: Sequence[RunFacts], verdicts: Mapping[str, Verdicts]) -> dict[str, Any]:
    played = [run for run in runs if run.outcome not in _ENDED]
    return {
        "runs": len(runs),
        "tasks": len({run.task_id for run in runs}),
        **{name: sum(run.outcome in outcomes for run in runs) for name, outcomes in APART.items()},
        "judges": {name: _share(played, known) for name, known in verdicts.items()},
    }


def _share(runs: Sequence[RunFacts], known: Verdicts) -> dict[str, Any]:
    found = [(run.task_id, known[run.trajectory_id]) for run in runs if run.trajectory_id in known]
    decided: dict[str, list[bool]] = {}
    for task, verdict in found:
        if verdict is not None:
            decided.setdefault(task, []).append(verdict)
    passed, trials = (np.array([count(one) for one in decided.values()]) for count in (sum, len))
    share = rate_interval(passed, trials)
    return {
        "passed": int(passed.sum()),
        "failed": int((trials - passed).sum()),
        "unjudged": sum(verdict is None for _, verdict in found),
        "share": share and share.as_dict(),
    }


def sheet_document(report: Mapping[str, Any], command: str) -> Document:
    """Builds the tables of a report of `experiments.judge`, which holds `sheet` and `pairs`."""
    tables = [_shares(report["sheet"], report["labels"])]
    if report["pairs"]:
        tables += [_agreement(report["pairs"]), _confusion(report["pairs"])]
    return Document(f"Judges of {report['data']}", tables, (), (), command)


def _shares(sheet: Mapping[str, Any], labels: str) -> Table:
    judges = list(sheet["rows"][0]["judges"]) if sheet["rows"] else []
    columns = (sheet["by"], "runs (tasks)", *(name.replace("_", " ") for name in APART))
    rows = [
        (
            row["row"],
            f"{row['runs']} ({row['tasks']}{', few' if row['tasks'] < FEW_TASKS else ''})",
            *(str(row[name]) for name in APART),
            *(_cell(row["judges"][name]) for name in judges),
        )
        for row in sheet["rows"]
    ]
    notes = [f"{name}: {line}." for name, lines in sheet["judges"].items() for line in lines]
    return Table(
        "Passed runs by judge",
        "Share passed in percent, with its 95 % interval over tasks (Wilson's at the effective sample size), "
        "of the runs that the judge decided. Apart from those: runs that the site blocked (refusal, "
        "captcha), that were unreachable (start page, lost browser) or timed out, and unjudged ones. Few: "
        f"fewer than {FEW_TASKS} tasks.",
        (*map(Column, columns), *(Column(name, "passed, % of") for name in judges)),
        tuple(TableRow(row) for row in rows),
        (*notes, *([f"labels: {labels}."] if labels else [])),
    )


def _cell(one: Mapping[str, Any]) -> str:
    text = percent(one["share"]) if one["share"] else "none decided"
    text += f" of {one['passed'] + one['failed']}" if one["share"] else ""
    return text + (f", {one['unjudged']} unjudged" if one["unjudged"] else "")


def _agreement(pairs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            f"{pair['first']} and {pair['second']}",
            str(pair["both_judged"]),
            NOT_REPORTED if pair["agreement"] is None else f"{100 * pair['agreement']:.1f}",
            number(pair["kappa"], 3, "not defined"),
        )
        for pair in pairs
    ]
    return Table(
        "Agreement",
        "Of the runs that both decided. Cohen's kappa is agreement beyond chance, with a 95 % interval over "
        "tasks; it is not defined where both give one constant verdict.",
        tuple(map(Column, ("pair", "both decided", "agree, %", "kappa"))),
        tuple(map(TableRow, rows)),
    )


def _confusion(pairs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        TableRow((f"{pair['first']} {name}", *map(str, counts)), f"{pair['first']} and {pair['second']}")
        for pair in pairs
        for name, counts in zip(NAMES, pair["confusion"], strict=True)
    ]
    columns = [Column("runs"), *(Column(name, "the second") for name in NAMES)]
    return Table("Confusion", "Numbers of runs by both verdicts.", tuple(columns), tuple(rows))
