"""Agreement between judges on the same runs, and with people: figures, and the sheet that shows them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collection.evaluation.judge_error import JudgeError
from collection.evaluation.judged_by import UNKNOWN, count_verdicts, judge_line
from collection.evaluation.statistics import CONFIDENCE, Interval, rate_interval
from collection.judges.base import WITHOUT_A_CALL
from collection.judges.cross_check import FALSE_NEGATIVES
from collection.judges.judgements import Judgement, RunFacts
from collection.report.paper_tables import FEW_TASKS, number, percent
from collection.report.tables import NOT_REPORTED, Column, Document, Table, TableRow

if TYPE_CHECKING:
    import pandas

LABELS = "labels"
PASSED, FAILED, UNJUDGED = NAMES = ("passed", "failed", "unjudged")
_NAME = {True: PASSED, False: FAILED, None: UNJUDGED}
# Each is a call of statsmodels. The standard error of a 2.5 % tail estimated from this many is 0.35 points.
RESAMPLES = 2_000
# Name of a count -> outcomes of runs that were not played to their end.
APART = {
    "blocked": ("blocked", "captcha"),
    "unreachable": ("unreachable", "crashed"),
    "timed_out": ("timeout",),
}
_ENDED = tuple(itertools.chain.from_iterable(APART.values()))
ALL = "all"
_SHARES = ("precision", "recall", "wrong_passed", "accuracy")
# Maximum number of unjudged runs per judge that are listed with the reason.
_MAX_LISTED, _MAX_REASON_CHARS = 20, 160


def verdict_table(
    judgements: Sequence[Judgement], labels: Mapping[str, bool | None] | None = None
) -> pandas.DataFrame:
    """Returns the verdicts as `NAMES`, a run a row, a judge a column; NaN where there is no judgement.

    Args:
      labels: people's verdicts by run, one more column, `LABELS`, if there are any.
    """
    # Imported here and below: pandas and statsmodels take a second to load.
    import pandas

    columns: dict[str, dict[str, str]] = {}
    for one in judgements:
        columns.setdefault(one.judge, {})[one.trajectory_id] = _NAME[one.success]
    if labels:
        known = {one.trajectory_id for one in judgements}
        columns[LABELS] = {run: _NAME[verdict] for run, verdict in labels.items() if run in known}
    return pandas.DataFrame({name: pandas.Series(column, dtype=object) for name, column in columns.items()})


def confusion(first: pandas.Series, second: pandas.Series) -> np.ndarray:
    """Counts verdicts over the runs that both judged, [3, 3]; rows are the first judge's, by `NAMES`."""
    import pandas

    table = pandas.crosstab(first, second)
    return table.reindex(index=NAMES, columns=NAMES, fill_value=0).to_numpy(int)


def cohens_kappa(table: np.ndarray) -> float:
    """Agreement beyond chance, (p_o - p_e) / (1 - p_e) (Cohen 1960), of [K, K] counts.

    Returns:
      NaN where it is undefined: without runs, or when both judges give one constant verdict.
    """
    from statsmodels.stats import inter_rater

    if np.count_nonzero(table.sum(0) + table.sum(1)) < 2:
        return np.nan
    kappa: Any = inter_rater.cohens_kappa(table, return_results=False)
    return float(kappa)


def kappa_interval(
    first: pandas.Series,
    second: pandas.Series,
    tasks: Mapping[str, str],
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Cohen's kappa over the runs that both judged, with a percentile bootstrap over tasks.

    Args:
      tasks: task of each run; the runs of a task are resampled together.

    Returns:
      None if kappa is undefined.
    """
    by_task: dict[str, np.ndarray] = {}
    for run in sorted(first.index):
        one, other = str(first[run]), str(second[run])
        # Kappa is over two categories; runs that a judge left undecided are in the confusion table only.
        if one in (PASSED, FAILED) and other in (PASSED, FAILED):
            counts = by_task.setdefault(tasks[run], np.zeros((2, 2)))
            counts[int(one == PASSED), int(other == PASSED)] += 1
    if not by_task:
        return None
    counts = np.stack(list(by_task.values()))
    kappa = cohens_kappa(counts.sum(0))
    if np.isnan(kappa):
        return None
    # Drawing n tasks with replacement is a multinomial draw of how often each occurs.
    even = np.full(len(counts), 1 / len(counts))
    draws = np.random.default_rng(seed).multinomial(len(counts), even, size=resamples)
    estimates = [cohens_kappa(table) for table in np.tensordot(draws, counts, axes=1)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(estimates, [tail, 1 - tail])
    return Interval(kappa, float(low), float(high), len(counts))


def compare(first: pandas.Series, second: pandas.Series, tasks: Mapping[str, str]) -> dict[str, Any]:
    """Compares two judges on the runs that both judged: confusion table, agreement and kappa."""
    table, kappa = confusion(first, second), kappa_interval(first, second, tasks)
    both = int(table[:2, :2].sum())
    return {
        "confusion": table.tolist(),
        "both_judged": both,
        "agreement": _share(int(table[0, 0] + table[1, 1]), both),
        "kappa": kappa and kappa.as_dict(),
    }


def against(judge: pandas.Series, reference: pandas.Series) -> dict[str, Any]:
    """Compares a judge with a reference over the runs that the reference decided.

    Unjudged runs count as not passed, so they lower the recall. A share with an empty denominator is None.

    Returns:
      Counts, `precision` (share of the judge's passes that the reference passed), `recall` (share of the
      reference's passes that the judge passed), `wrong_passed` (share of the reference's failures that the
      judge passed), `accuracy` (share of the judge's verdicts that equal the reference's).
    """
    table = confusion(judge, reference)[:, :2]
    right, wrong = map(int, table[0])
    return {
        "runs": int(table.sum()),
        "unjudged": int(table[2].sum()),
        "precision": _share(right, right + wrong),
        "recall": _share(right, int(table[:, 0].sum())),
        "wrong_passed": _share(wrong, int(table[:, 1].sum())),
        "accuracy": _share(right + int(table[1, 1]), int(table[:2].sum())),
    }


def judge_errors(
    runs: Sequence[RunFacts], judgements: Sequence[Judgement], truth: Mapping[str, bool], reference: str
) -> dict[str, JudgeError]:
    """Counts the errors of each judge but the reference, on runs that were done; the others need no judge.

    Args:
      truth: verdicts of the reference by run.
    """
    done = {run.trajectory_id: run.task_id for run in runs if run.outcome == "done"}
    verdicts: dict[str, list[tuple[str, bool, bool]]] = {}
    for one in judgements:
        name = one.trajectory_id
        if one.judge != reference and one.success is not None and name in done and name in truth:
            verdicts.setdefault(one.judge, []).append((done[name], truth[name], one.success))
    return {judge: JudgeError.of(judge, some) for judge, some in verdicts.items()}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def agreement_figures(
    runs: Sequence[RunFacts],
    judgements: Sequence[Judgement],
    labels: Mapping[str, bool],
    reference: str,
    by: str,
) -> dict[str, Any]:
    """Computes all figures of the sheet.

    Args:
      labels: people's verdicts by trajectory, treated as one more judge, `LABELS`; may be empty.
      reference: the judge that the others are compared with; empty for none.
      by: what a row is: a field of `RunFacts` (`policy`, `site` or `kind`).

    Returns:
      `rows`: of each group of runs, and of all if there are several, `runs`, `tasks`, the counts of `APART`,
      and in `judges` of each judge the counts of `NAMES` and the `share` passed, with its interval over
      tasks. These are of the runs that were played to their end; the share is of those decided.
      `judges`: counts over all runs, mean score, cost, unjudged runs, and a line on each version of the judge
      with the number of verdicts that it was asked for and gave. `errors`: as `JudgeError.report`. `pairs`,
      `against_reference`: as `compare` and `against`.
    """
    verdicts: Any = verdict_table(judgements, labels)
    truth = {
        one.trajectory_id: one.success
        for one in judgements
        if one.judge == reference and one.success is not None
    }
    truth = labels if reference == LABELS else truth
    errors = judge_errors(runs, judgements, truth, reference)
    tasks = {one.trajectory_id: one.task_id for one in runs}
    by_judge: dict[str, list[Judgement]] = {}
    for one in judgements:
        by_judge.setdefault(one.judge, []).append(one)
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(getattr(run, by) or NOT_REPORTED, []).append(run)
    if len(groups) > 1:
        groups[ALL] = list(runs)
    return {
        "by": by,
        "rows": [{"row": name, **_row(some, verdicts)} for name, some in groups.items()],
        "judges": {name: _summary(some) for name, some in by_judge.items()},
        "pairs": [
            {"first": first, "second": second, **compare(verdicts[first], verdicts[second], tasks)}
            for first, second in itertools.combinations(verdicts, 2)
        ],
        "reference": reference,
        "errors": {name: one.report() for name, one in errors.items()},
        "against_reference": {
            name: against(verdicts[name], verdicts[reference])
            for name in verdicts
            if reference and name != reference
        },
    }


def _row(runs: Sequence[RunFacts], verdicts: pandas.DataFrame) -> dict[str, Any]:
    import pandas

    played = [run for run in runs if run.outcome not in _ENDED]
    judges = {}
    for name in verdicts:
        said: Any = verdicts[name].reindex([run.trajectory_id for run in played])
        by_task = pandas.crosstab([run.task_id for run in played], said.to_numpy())
        counts: Any = by_task.reindex(columns=NAMES, fill_value=0).to_numpy(int)
        passed, trials = counts[:, 0], counts[:, :2].sum(1)
        share = rate_interval(passed[trials > 0], trials[trials > 0])
        sums = dict(zip(NAMES, map(int, counts.sum(0)), strict=True))
        judges[name] = {**sums, "share": share and share.as_dict()}
    return {
        "runs": len(runs),
        "tasks": len({run.task_id for run in runs}),
        **{name: sum(run.outcome in outcomes for run in runs) for name, outcomes in APART.items()},
        "judges": judges,
    }


def _summary(judgements: Sequence[Judgement]) -> dict[str, Any]:
    scores = [one.score for one in judgements if one.score is not None]
    undecided = [one for one in judgements if one.success is None]
    gave = (
        (one.fingerprint, one.success is not None and one.text not in WITHOUT_A_CALL) for one in judgements
    )
    return {
        **{name: sum(_NAME[one.success] == name for one in judgements) for name in NAMES},
        "asked": sum(bool(one.key) for one in judgements),
        "mean_score": sum(scores) / len(scores) if scores else None,
        "cost_usd": round(sum(one.usage.cost for one in judgements), 6),
        "versions": [f"{judge_line(one)}, {count} verdicts" for one, count in count_verdicts(gave)]
        or [UNKNOWN],
        # The reason is the last line, behind the judge's reply.
        "unjudged_runs": [
            {
                "trajectory_id": one.trajectory_id,
                "reason": " ".join(one.text.strip().rpartition("\n")[2].split())[:_MAX_REASON_CHARS],
            }
            for one in undecided[:_MAX_LISTED]
        ],
    }


def agreement_sheet(report: Mapping[str, Any], command: str) -> Document:
    """Builds the tables of a report of `experiments.judge`."""
    tables = [_passed(report), _judges(report)]
    if report["errors"]:
        tables.append(_errors(report))
    if report["pairs"]:
        tables.append(_agreement(report["pairs"]))
    if found := report["cross_check"]:
        caption = (
            f"{found['checked']} failures: {found['false_negatives']} are false negatives, "
            f"{found['without_finding']} got no finding."
        )
        shares = {name: _figure(found["shares"][name]) for name in FALSE_NEGATIVES}
        rows = [(name, str(count), shares.get(name, "")) for name, count in found["findings"].items()]
        title = f"Failures of {found['of']}, re-examined by {found['name']}"
        tables.append(_table(title, caption, ("finding", "runs", "share of the false negatives"), rows))
    unjudged = [
        (name, run["trajectory_id"], run["reason"])
        for name, one in report["judges"].items()
        for run in one["unjudged_runs"]
    ]
    if unjudged:
        tables.append(
            _table("Unjudged", f"At most {_MAX_LISTED} a judge.", ("judge", "run", "reason"), unjudged)
        )
    return Document(f"Judges of {report['data']}", tables, (), (), command)


def _passed(report: Mapping[str, Any]) -> Table:
    judges = list(report["rows"][0]["judges"]) if report["rows"] else []
    columns = (report["by"], "runs (tasks)", *(name.replace("_", " ") for name in APART))
    rows = [
        (
            row["row"],
            f"{row['runs']} ({row['tasks']}{', few' if row['tasks'] < FEW_TASKS else ''})",
            *(str(row[name]) for name in APART),
            *(_cell(row["judges"][name]) for name in judges),
        )
        for row in report["rows"]
    ]
    return Table(
        "Passed runs by judge",
        "Share passed in percent, with its 95 % interval over tasks (Wilson's at the effective sample size), "
        "of the runs that the judge decided. Apart from those: runs that the site blocked (refusal, "
        "captcha), that were unreachable (start page, lost browser) or timed out, and unjudged ones. Few: "
        f"fewer than {FEW_TASKS} tasks.",
        (*map(Column, columns), *(Column(name, "passed, % of") for name in judges)),
        tuple(TableRow(row) for row in rows),
        (f"{LABELS}: {report['labels']}.",) if report["labels"] else (),
    )


def _cell(one: Mapping[str, Any]) -> str:
    text = f"{percent(one['share'])} of {one[PASSED] + one[FAILED]}" if one["share"] else "none decided"
    return text + (f", {one[UNJUDGED]} unjudged" if one[UNJUDGED] else "")


def _judges(report: Mapping[str, Any]) -> Table:
    """All runs by judge, and each judge against the reference."""
    compared, reference = report["against_reference"], report["reference"]
    rows = []
    for name in {**report["judges"], **compared}:
        one, shares = report["judges"].get(name), compared.get(name)
        counts = (str(one[key]) for key in (*NAMES, "asked")) if one else [NOT_REPORTED] * 4
        score, cost = (_figure(one["mean_score"]), f"{one['cost_usd']:.4f}") if one else [NOT_REPORTED] * 2
        figures = (_figure(shares[key]) if shares else NOT_REPORTED for key in ("runs", *_SHARES))
        rows.append((name, *counts, score, cost, *(figures if reference else ())))
    caption = "Verdicts on all runs, for how many of them a model was asked, and what that cost."
    if reference:
        caption += (
            f" Against {reference}, over the runs that it decided: precision is the share of the judge's "
            "passes that the reference passed; recall the share of the reference's passes that the judge "
            "passed, where unjudged runs count as not passed; wrong passed the share of the reference's "
            "failures that the judge passed; accuracy the share of equal verdicts."
        )
    columns = [*map(Column, ("judge", *NAMES, "asked", "mean score", "cost, $"))]
    if reference:
        columns += [Column(one.replace("_", " "), f"against {reference}") for one in ("runs", *_SHARES)]
    notes = [f"{name}: {line}." for name, one in report["judges"].items() for line in one["versions"]]
    return Table("Verdicts by judge", caption, tuple(columns), tuple(map(TableRow, rows)), tuple(notes))


def _errors(report: Mapping[str, Any]) -> Table:
    rows = []
    for name, one in report["errors"].items():
        passed, failed, wrong, right = map(str, np.sum(one["counts"], axis=0, dtype=int))
        shares = (percent(one["sensitivity"]), percent(one["specificity"]))
        rows.append((name, str(len(one["counts"])), passed, failed, wrong, right, *shares))
    caption = (
        f"Runs in which the agent declared success, by {report['reference']} and judge, with 95 % intervals "
        "over tasks. Sensitivity is the share of the successes that the judge passed, specificity the share "
        "of the failures that it failed."
    )
    counts = ("successes passed", "successes failed", "failures passed", "failures failed")
    columns = ("judge", "tasks", *counts, "sensitivity, %", "specificity, %")
    return _table(f"Errors against {report['reference']}", caption, columns, rows)


def _agreement(pairs: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for pair in pairs:
        (both, first, _), (second, neither, _), _ = pair["confusion"]
        agree = NOT_REPORTED if pair["agreement"] is None else f"{100 * pair['agreement']:.1f}"
        counts = map(str, (pair["both_judged"], both, first, second, neither))
        kappa = number(pair["kappa"], 3, "not defined")
        rows.append((f"{pair['first']} and {pair['second']}", *counts, agree, kappa))
    caption = (
        "Of the runs that both decided, those that both, one and neither passed. Cohen's kappa is agreement "
        "beyond chance, with a 95 % interval over tasks; not defined where both give one constant verdict."
    )
    passed = ("both passed", "only the first", "only the second", "neither")
    return _table("Agreement", caption, ("pair", "both decided", *passed, "agree, %", "kappa"), rows)


def _table(title: str, caption: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title, caption, tuple(map(Column, columns)), tuple(map(TableRow, rows)))


def _figure(value: float | None) -> str:
    return NOT_REPORTED if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
