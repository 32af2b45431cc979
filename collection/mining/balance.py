"""Balances the mined corpus: a stricter gate for runtime failures, caps on sites and on obstructions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from rmsweb_jax.records.schema import AuditPair


@dataclasses.dataclass(frozen=True)
class BalanceConfig:
    """Maximum shares of the final corpus (RMSWeb, appendix) and the gate for runtime failures.

    Attributes:
      max_domain_share: share of one site. With so few sites that this is impossible, each may have an equal
        share.
      max_obstruction_share: share of access obstructions.
      runtime_min_confidence, runtime_min_category: RMSWeb asks for a stricter gate without figures; these are
        chosen by hand.
    """

    max_domain_share: float = 0.30
    max_obstruction_share: float = 0.10
    runtime_min_confidence: float = 0.85
    runtime_min_category: float = 0.60


def balance(cases: Sequence[AuditPair], config: BalanceConfig) -> dict[str, str]:
    """Decides which kept cases stay.

    Both caps are shares of the final corpus. The obstruction cap is lowered until it holds there, and the
    site cap is applied again to all cases each time: a case that gave way to an obstruction of its site
    comes back when that obstruction is dropped, so no site is lost to the caps.

    Args:
      cases: one for each task that passed every earlier gate.

    Returns:
      task id -> `kept`, `runtime_gate`, `obstruction_cap` or `domain_cap`.
    """
    passed = [case for case in _by_category(cases) if passes_runtime_gate(case, config)]
    # Upper bound: the final corpus is at most as large as `passed`.
    max_obstructions = int(config.max_obstruction_share * len(passed))
    while True:
        allowed = _cap_each(passed, _is_obstruction, {True: max_obstructions})
        kept = _cap_sites(allowed, config.max_domain_share)
        cap = int(config.max_obstruction_share * len(kept))
        if sum(map(_is_obstruction, kept)) <= cap:
            break
        max_obstructions = cap
    decisions = dict.fromkeys((case.task_id for case in cases), "runtime_gate")
    for reason, some in (("obstruction_cap", passed), ("domain_cap", allowed), ("kept", kept)):
        decisions |= dict.fromkeys((case.task_id for case in some), reason)
    return decisions


def passes_runtime_gate(case: AuditPair, config: BalanceConfig) -> bool:
    """Applies the stricter gate for runtime failures, whose cause is often no decision of the agent."""
    if case.category != "runtime_evaluation":
        return True
    return (
        case.label_confidence >= config.runtime_min_confidence
        and case.scores["category"] >= config.runtime_min_category
    )


def _is_obstruction(case: AuditPair) -> bool:
    return case.category == "access_obstruction"


def _cap_sites(cases: list[AuditPair], max_share: float) -> list[AuditPair]:
    """Drops the last cases of large sites until no site holds more than its share of those that are left."""
    sites = {case.site for case in cases}
    share = max(max_share, 1 / max(len(sites), 1))
    while True:
        # 1e-9 absorbs rounding: 0.3 * 10 must give 3. Each site keeps one case, so no site is lost.
        cap = max(1, int(share * len(cases) + 1e-9))
        kept = _cap_each(cases, lambda case: case.site, dict.fromkeys(sites, cap))
        if len(kept) == len(cases):
            return kept
        cases = kept


def _cap_each(
    cases: list[AuditPair], group: Callable[[AuditPair], Hashable], caps: Mapping[Hashable, int]
) -> list[AuditPair]:
    """Keeps the first cases of each group, up to its cap; groups without a cap stay complete."""
    taken: Counter[Hashable] = Counter()
    kept = []
    for case in cases:
        name = group(case)
        taken[name] += 1
        if taken[name] <= caps.get(name, len(cases)):
            kept.append(case)
    return kept


def _by_category(cases: Sequence[AuditPair]) -> list[AuditPair]:
    """Sorts cases so that caps keep the best ones of each category of each site."""
    ranks: dict[str, int] = {}
    groups: dict[tuple[str, str], list[AuditPair]] = defaultdict(list)
    for case in cases:
        groups[case.site, case.category].append(case)
    for group in groups.values():
        group.sort(key=lambda case: (-case.scores["total"], _tie_break(case)))
        ranks |= {case.task_id: rank for rank, case in enumerate(group)}
    return sorted(cases, key=lambda case: (ranks[case.task_id], -case.scores["total"], _tie_break(case)))


def _tie_break(case: AuditPair) -> str:
    """Breaks ties in a fixed order that does not favour any task ids."""
    return hashlib.sha256(case.task_id.encode()).hexdigest()
