"""Report on several judges of one data set, as figures and as a Markdown page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from collection.judges.agreement import NAMES, Verdicts, against, compare
from collection.judges.cross_check import FALSE_NEGATIVES, FINDINGS
from collection.judges.judgements import Judgement

LABELS = "labels"
# Maximum number of unjudged runs per judge that are listed with the reason.
_MAX_LISTED = 20
_MAX_REASON_CHARS = 160


def agreement_report(
    judgements: Sequence[Judgement], labels: Mapping[str, bool], reference: str
) -> dict[str, Any]:
    """Computes all figures of the report.

    Args:
      labels: human verdicts by trajectory, treated as one more judge, `LABELS`; may be empty.
      reference: the judge that the others are compared with; empty for none.
    """
    tasks = {one.trajectory_id: one.task_id for one in judgements}
    by_judge: dict[str, list[Judgement]] = {}
    for one in judgements:
        by_judge.setdefault(one.judge, []).append(one)
    verdicts: dict[str, Verdicts] = {
        name: {one.trajectory_id: one.success for one in some} for name, some in by_judge.items()
    }
    if labels:
        verdicts[LABELS] = {run: verdict for run, verdict in labels.items() if run in tasks}
    return {
        "judges": {name: _summary(some) for name, some in by_judge.items()},
        "pairs": [
            {"first": first, "second": second, **compare(verdicts[first], verdicts[second], tasks)}
            for first, second in itertools.combinations(verdicts, 2)
        ],
        "reference": reference,
        "against_reference": {
            name: against(known, verdicts[reference])
            for name, known in verdicts.items()
            if reference and name != reference
        },
    }


def agreement_page(report: Mapping[str, Any]) -> str:
    """Renders the figures as Markdown tables."""
    judges, pairs = report["judges"], report["pairs"]
    parts = [
        f"# Judges of {report['data']}\n",
        f"{report['runs']} runs of {report['tasks']} tasks.\n",
        _table(
            ("judge", *NAMES, "of them asked", "mean score", "calls' cost, $"),
            [
                (
                    f"{name}: {one['name']}",
                    *(one[verdict] for verdict in NAMES),
                    one["asked"],
                    _figure(one["mean_score"]),
                    f"{one['cost_usd']:.4f}",
                )
                for name, one in judges.items()
            ],
        ),
        *(_pair(pair) for pair in pairs),
    ]
    if report["against_reference"]:
        columns = ("runs", "unjudged", "precision", "recall", "wrong_passed", "accuracy")
        rows = [
            (name, *(_figure(one[column]) for column in columns))
            for name, one in report["against_reference"].items()
        ]
        parts += [f"## Against {report['reference']}\n", _AGAINST, _table(("judge", *columns), rows)]
    if report["cross_check"]:
        parts += _cross_check(report["cross_check"])
    parts += _unjudged(judges)
    return "\n".join(parts)


_AGAINST = """\
Precision: share of the judge's passes that the reference passed. Recall: share of the reference's passes that
the judge passed; unjudged runs count as not passed. wrong_passed: share of the reference's failures that the
judge passed.
"""


def _summary(judgements: Sequence[Judgement]) -> dict[str, Any]:
    scores = [one.score for one in judgements if one.score is not None]
    undecided = [one for one in judgements if one.success is None]
    return {
        "passed": sum(one.success is True for one in judgements),
        "failed": sum(one.success is False for one in judgements),
        "unjudged": len(undecided),
        "asked": sum(bool(one.key) for one in judgements),
        "mean_score": sum(scores) / len(scores) if scores else None,
        "cost_usd": round(sum(one.usage.cost for one in judgements), 6),
        "unjudged_runs": [
            {"trajectory_id": one.trajectory_id, "reason": _reason(one.text)}
            for one in undecided[:_MAX_LISTED]
        ],
    }


def _reason(text: str) -> str:
    """Returns the last line, where the reason follows the judge's reply."""
    return " ".join(text.strip().rpartition("\n")[2].split())[:_MAX_REASON_CHARS]


def _pair(pair: Mapping[str, Any]) -> str:
    rows = [
        (f"**{pair['first']}** {name}", *counts)
        for name, counts in zip(NAMES, pair["confusion"], strict=True)
    ]
    kappa = pair["kappa"]
    kappa_text = (
        f"{kappa['mean']:.3f} (95 % over tasks: {kappa['low']:.3f} to {kappa['high']:.3f})"
        if kappa
        else "not defined"
    )
    return (
        f"## {pair['first']} and {pair['second']}\n\n"
        + _table(("", *(f"**{pair['second']}** {name}" for name in NAMES)), rows)
        + f"\nBoth judged {pair['both_judged']}; they agree on {_figure(pair['agreement'])} of those; "
        f"Cohen's kappa {kappa_text}.\n"
    )


def _cross_check(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            finding,
            found["findings"][finding],
            _figure(found["shares"][finding]) if finding in FALSE_NEGATIVES else "",
        )
        for finding in FINDINGS
    ]
    return [
        f"## Failures of {found['of']}, re-examined by {found['name']}\n",
        f"{found['checked']} failures: {found['false_negatives']} are false negatives, "
        f"{found['without_finding']} got no finding.\n",
        _table(("finding", "runs", "share of the false negatives"), rows),
    ]


def _unjudged(judges: Mapping[str, Any]) -> list[str]:
    rows = [
        (name, run["trajectory_id"], run["reason"].replace("|", "\\|"))
        for name, one in judges.items()
        for run in one["unjudged_runs"]
    ]
    if not rows:
        return []
    return [f"## Unjudged (at most {_MAX_LISTED} a judge)\n", _table(("judge", "run", "reason"), rows)]


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
