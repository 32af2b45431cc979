"""Figures, claims and tables of the miner against the truth by replay, for `make proof-mining`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from collection.mining.divergence import MiningConfig
from rmsweb_jax.settings import from_config
from tests.mining.truth.runs import read
from tests.mining.truth.score import by, mine, mine_with, score, totals
from tests.proofs.result import Claim, Figures, filled, table

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
_COUNTS, _SHARES = ("runs", "critical", "kept"), ("recall", "precision", "recall_remedy", "precision_remedy")
_HEADS = (
    *("failed runs", "with a critical step", "kept", "recall", "precision"),
    *("right prompt", "of those kept", "kept without a critical step"),
)


def without(*names: str) -> MiningConfig:
    config = dataclasses.asdict(MiningConfig())
    for name in names:
        for key, value in _OFF[name].items():
            config[key] = config[key] | value if isinstance(value, dict) else value
    return from_config(MiningConfig, config)


def by_replay() -> Figures:
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


def replay_claims(figures: Figures) -> list[Claim]:
    report, before = figures["report"], figures["before"]
    return [
        Claim(
            f"by replay: at least {MIN_RECALL:.0%} of the critical steps are found",
            f"{report['recall']:.1%} of {report['critical']}; before {before['recall']:.1%}",
            report["recall"] >= MIN_RECALL,
        ),
        Claim(
            f"by replay: at least {MIN_PRECISION:.0%} of all decisions kept there are critical",
            f"{report['precision']:.1%} of {report['kept']}; before {before['precision']:.1%}",
            report["precision"] >= MIN_PRECISION,
        ),
        Claim(
            f"by replay: of failed runs without a critical step at most {MAX_FALSE:.0%} are kept",
            f"{report['false_kept']:.1%} of {report['nothing']}; before {before['false_kept']:.1%}",
            report["false_kept"] <= MAX_FALSE,
        ),
    ]


def replay_tables(figures: Figures) -> str:
    causes = [(name, count) for name, count in figures["causes"].items() if name != "critical"]
    miners = {"this miner": figures["report"], "the miner before": figures["before"]}
    return "\n\n".join(
        [
            filled(_REPLAY.format(**figures, before_commit=BEFORE)),
            table(("report set", *_HEADS), _rows(miners)),
            table(("report set, by actor", *_HEADS), _rows(figures["by_actor"])),
            table(("report set, by page", *_HEADS), _rows(figures["by_page"])),
            table(("not found in the report set", "runs"), causes),
            table(("work set, settings", *_HEADS), _rows(figures["work"])),
        ]
    )


def _rows(some: Mapping[str, Mapping[str, float]]) -> list[tuple[Any, ...]]:
    return [
        (
            name,
            *(int(one[key]) for key in _COUNTS),
            *(f"{one[key]:.1%}" for key in _SHARES),
            f"{one['false_kept']:.1%} of {int(one['nothing'])}" if one["nothing"] else "-",
        )
        for name, one in some.items()
    ]


_REPLAY = """\
{failed_runs} failed runs on {pages} MiniWoB++ pages, by the scripted teacher with a mistake, the demo's SFT
policy and one that was trained for a sixth as long, with the last critical step of each
(`tests/mining/truth`): a flawless teacher who takes over there succeeds, and one step later fails. Runs after
which it still succeeds have none. Pages are split by a checksum of their names into a set to work on and one
to report on; nothing was tuned on the latter. *Recall* and *precision* count decisions at the last critical
step whose act leads to success there. *Right prompt* counts the act alone, since the prompt is the success's
side. *Kept*, *precision* and *of those kept* are of all kept runs, those without a critical step too. The
miner before is the code at {before_commit}.
"""
