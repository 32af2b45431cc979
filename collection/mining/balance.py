"""The mix of the mined corpus: stricter gates and shares, independent of the input's order."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

from rmsweb_jax.records.schema import AuditPair


@dataclasses.dataclass(frozen=True)
class BalanceConfig:
    """The figures of RMSWeb, section 3.3; the gates for runtime failures are this project's.

    Attributes:
      max_domain_share: of the final corpus, for each site. A corpus of so few sites that this is
        impossible may hold equal shares of each.
      max_obstruction_share: of the final corpus.
    """

    max_domain_share: float = 0.30
    max_obstruction_share: float = 0.10
    runtime_min_confidence: float = 0.85
    runtime_min_category: float = 0.60


def balance(cases: Sequence[AuditPair], config: BalanceConfig) -> dict[str, str]:
    """Decides which kept cases stay.

    Args:
      cases: one a task, of those that passed every gate before.

    Returns:
      task id -> `kept`, `runtime_gate`, `obstruction_cap` or `domain_cap`.
    """
    decisions = {
        case.task_id: "kept" if passes_runtime_gate(case, config) else "runtime_gate" for case in cases
    }
    ordered = _by_category(sorted(cases, key=lambda case: case.task_id))
    left = [case for case in ordered if decisions[case.task_id] == "kept"]
    while True:
        kept = _capped(left, config, decisions)
        if len(kept) == len(left):
            return decisions
        left = kept


def passes_runtime_gate(case: AuditPair, config: BalanceConfig) -> bool:
    """Runtime and evaluation failures say little about decisions: only the clearest are kept."""
    if case.category != "runtime_evaluation":
        return True
    return (
        case.label_confidence >= config.runtime_min_confidence
        and case.scores["category"] >= config.runtime_min_category
    )


def _capped(cases: list[AuditPair], config: BalanceConfig, decisions: dict[str, str]) -> list[AuditPair]:
    """One round of both caps, as shares of what there is now; the caller repeats until nothing changes."""
    obstruction_cap = int(config.max_obstruction_share * len(cases))
    kept = _take(
        cases,
        lambda case: case.category == "access_obstruction",
        {True: obstruction_cap},
        "obstruction_cap",
        decisions,
    )
    sites = {case.site for case in kept}
    share = max(config.max_domain_share, 1 / max(len(sites), 1))
    # The small addition keeps 0.3 * 10 at 3.
    domain_cap = max(1, int(share * len(kept) + 1e-9))
    return _take(kept, lambda case: case.site, dict.fromkeys(sites, domain_cap), "domain_cap", decisions)


def _take(
    cases: list[AuditPair],
    group: Callable[[AuditPair], Hashable],
    caps: dict,
    reason: str,
    decisions: dict[str, str],
) -> list[AuditPair]:
    taken: Counter[Hashable] = Counter()
    kept = []
    for case in cases:
        name = group(case)
        taken[name] += 1
        if taken[name] > caps.get(name, len(cases)):
            decisions[case.task_id] = reason
        else:
            kept.append(case)
    return kept


def _by_category(cases: Sequence[AuditPair]) -> list[AuditPair]:
    """Best cases first, taking turns between the categories of a site, so that caps cut none of them off."""
    ranks: dict[str, int] = {}
    groups: dict[tuple[str, str], list[AuditPair]] = defaultdict(list)
    for case in cases:
        groups[case.site, case.category].append(case)
    for group in groups.values():
        group.sort(key=lambda case: (-case.scores["total"], _chance(case)))
        ranks |= {case.task_id: rank for rank, case in enumerate(group)}
    return sorted(cases, key=lambda case: (ranks[case.task_id], -case.scores["total"], _chance(case)))


def _chance(case: AuditPair) -> str:
    """A fixed order that has nothing to do with names."""
    return hashlib.sha256(case.task_id.encode()).hexdigest()
