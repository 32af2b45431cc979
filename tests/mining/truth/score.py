"""Compares what a miner keeps with the truth by replay."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from collection.mining.balance import BalanceConfig
from collection.mining.mine import mine_runs
from collection.mining.runs import parse_run
from collection.mining.score import KEPT, MiningConfig
from rmsweb_jax.records.schema import AuditPair
from tests.mining.truth.runs import Frozen, Truth

# Keeps every case: what the miner finds, not what a corpus of some size would hold.
ALL = BalanceConfig(1.0, 1.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Scored:
    """A failed run and what the miner made of its task.

    Attributes:
      found: `critical`: the last critical step and an act that leads to success there; `remedy`: such an
        act, but against another step; `wrong`: anything else it kept; otherwise the gate.
    """

    truth: Truth
    audit: AuditPair
    found: str


def mine(frozen: Frozen, config: MiningConfig) -> list[AuditPair]:
    return mine_runs(frozen.runs, config, ALL).audits


def score(frozen: Frozen, audited: Iterable[AuditPair]) -> list[Scored]:
    """Compares a miner's audits with the truth about each failed run."""
    audits = {audit.task_id: audit for audit in audited}
    runs = {run.trajectory_id: run for run in frozen.runs}
    found = []
    for truth in frozen.truths:
        audit = audits[truth.task_id]
        found.append(Scored(truth, audit, audit.decision))
        if audit.decision == KEPT and audit.success_step:
            success = parse_run(runs[audit.success_id])
            right = tuple(sorted(success.acts[audit.success_step - 1])) in truth.right
            exact = right and audit.localization_step == truth.step
            name = "critical" if exact else "remedy" if right else "wrong"
            found[-1] = dataclasses.replace(found[-1], found=name)
    return found


def totals(scored: Iterable[Scored]) -> dict[str, float]:
    """Recall over runs with a critical step, precision of all kept runs, and the share kept of the others."""
    scored = list(scored)
    planted = [one for one in scored if one.truth.step is not None]
    others = [one for one in scored if one.truth.step is None]
    kept = [one for one in scored if one.audit.decision == KEPT]
    counts = Counter(one.found for one in planted)
    return {
        "runs": len(scored),
        "critical": len(planted),
        "kept": len(kept),
        "recall": _share(counts["critical"], len(planted)),
        "precision": _share(counts["critical"], len(kept)),
        "recall_remedy": _share(counts["critical"] + counts["remedy"], len(planted)),
        "precision_remedy": _share(counts["critical"] + counts["remedy"], len(kept)),
        "nothing": len(others),
        "false_kept": _share(sum(one.audit.decision == KEPT for one in others), len(others)),
    }


def by(scored: Sequence[Scored], key: str) -> dict[str, dict[str, float]]:
    """The totals of each `actor` or `page`."""
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        groups.setdefault(getattr(one.truth, key), []).append(one)
    return {name: totals(some) for name, some in sorted(groups.items())}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
