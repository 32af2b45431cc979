"""Figures, checks and tables of the miner against the truth by replay, for `make proof-mining`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from collection.mining.divergence import MiningConfig
from tests.mining.truth.runs import read
from tests.mining.truth.score import by, mine, mine_with, score, totals
from tests.proofs.page import Check, named, table

# The code before actions were compared one by one and S_category had its present terms.
BEFORE = "234f612"
MIN_RECALL, MIN_PRECISION, MAX_FALSE = 0.85, 0.90, 0.03
# Each setting that RMSWeb does not have, switched off; and one that it has.
_OFF = {
    "reached": {"category": {"reached": 0.0}},
    "apart": {"category": {"apart": 0.0}},
    "general": {"category": {"general": 0.0}},
    "last_on_page": {"last_on_page": False},
    "taken (the paper's)": {"category": {"taken": 0.0}},
}
_OURS = ("reached", "apart", "general", "last_on_page")


def without(*names: str) -> MiningConfig:
    config = MiningConfig()
    for name in names:
        for key, value in _OFF[name].items():
            if isinstance(value, dict):
                value = dataclasses.replace(getattr(config, key), **value)
            config = dataclasses.replace(config, **{key: value})
    return config


def by_replay() -> dict[str, Any]:
    """The miner's choices in the frozen runs against what replay shows."""
    work, report = read("work"), read("report")
    scored = score(report, mine(report, MiningConfig()))
    switched = {"as it is": (), "the paper's terms alone": _OURS}
    switched |= {f"without {name}": (name,) for name in _OFF}
    return {
        "failed_runs": len(work.truths) + len(report.truths),
        "pages": len({truth.page for part in (work, report) for truth in part.truths}),
        "report": totals(scored),
        "before": totals(score(report, mine_with(BEFORE, "report"))),
        "by_actor": by(scored, "actor"),
        "by_page": by(scored, "page"),
        "causes": dict(Counter(one.found for one in scored).most_common()),
        "work": {name: totals(score(work, mine(work, without(*off)))) for name, off in switched.items()},
    }


def replay_checks(figures: dict[str, Any]) -> list[Check]:
    report, before = figures["report"], figures["before"]
    return [
        (
            f"by replay: at least {MIN_RECALL:.0%} of the critical steps are found",
            f"{report['recall']:.1%} of {report['critical']}; before {before['recall']:.1%}",
            report["recall"] >= MIN_RECALL,
        ),
        (
            f"by replay: at least {MIN_PRECISION:.0%} of all decisions kept there are critical",
            f"{report['precision']:.1%} of {report['kept']}; before {before['precision']:.1%}",
            report["precision"] >= MIN_PRECISION,
        ),
        (
            f"by replay: of failed runs without a critical step at most {MAX_FALSE:.0%} are kept",
            f"{report['false_kept']:.1%} of {report['nothing']}; before {before['false_kept']:.1%}",
            report["false_kept"] <= MAX_FALSE,
        ),
    ]


def replay_tables(figures: dict[str, Any]) -> list[str]:
    causes = [
        {"not found in the report set": name, "runs": count} for name, count in figures["causes"].items()
    ]
    miners = {"this miner": figures["report"], "the miner before": figures["before"]}
    return [
        _REPLAY.format(**figures, before_commit=BEFORE).strip(),
        table(named(miners, "report set")),
        table(named(figures["by_actor"], "report set, by actor")),
        table(named(figures["by_page"], "report set, by page")),
        table(row for row in causes if "critical" not in row.values()),
        table(named(figures["work"], "work set, settings")),
    ]


_REPLAY = """\
{failed_runs} failed runs on {pages} MiniWoB++ pages, by the scripted teacher with a mistake, the demo's SFT
policy and one that was trained for a sixth as long, with the last critical step of each
(`tests/mining/truth`): a flawless teacher who takes over there succeeds, and one step later fails. Runs after
which it still succeeds have none. Pages are split by a checksum of their names into a set to work on and one
to report on; nothing was tuned on the latter. *Recall* and *precision* count decisions at the last critical
step whose act leads to success there. *Remedy* counts the act alone, since the prompt is the success's
side. *Kept* and the precisions are of all kept runs, those without a critical step too. The miner before is
the code at {before_commit}.
"""
