"""Balances the mined corpus: a stricter gate for runtime failures, caps on sites and on obstructions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from collection.mining.score import KEPT
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
      max_prompts: size of the corpus; each category gives one prompt a round, so rare ones stay whole.
        0 keeps all.
    """

    max_domain_share: float = 0.30
    max_obstruction_share: float = 0.10
    runtime_min_confidence: float = 0.85
    runtime_min_category: float = 0.60
    max_prompts: int = 0


# Why a case that passed every gate may not stay, in order of application.
REASONS = ("runtime_gate", "obstruction_cap", "domain_cap", "sampled_out")


def choose(tasks: Sequence[Sequence[AuditPair]], config: BalanceConfig) -> list[tuple[int, str]]:
    """Balances the corpus; a task whose best case may not stay is tried with its next one.

    Args:
      tasks: the cases of each task, at least one, best first.

    Returns:
      For each task the position of its case and the decision; if none may stay, the first and why it may not.
    """
    at, first = [0] * len(tasks), [""] * len(tasks)
    while True:
        decisions = balance([cases[place] for cases, place in zip(tasks, at, strict=True)], config)
        found = [decisions[cases[0].task_id] for cases in tasks]
        first = [before or (now if now != KEPT else "") for before, now in zip(first, found, strict=True)]
        # A draw says nothing against a case.
        fallen = [now not in (KEPT, "sampled_out") for now in found]
        further = [
            fell and place + 1 < len(cases) for fell, place, cases in zip(fallen, at, tasks, strict=True)
        ]
        if not any(further):
            break
        at = [place + moves for place, moves in zip(at, further, strict=True)]
    return [
        (place, now) if not fell else (0, reason)
        for place, now, fell, reason in zip(at, found, fallen, first, strict=True)
    ]


def balance(cases: Sequence[AuditPair], config: BalanceConfig) -> dict[str, str]:
    """Decides which kept cases stay.

    Both caps are shares of the final corpus. The obstruction cap is lowered until it holds there, and the
    site cap is applied again to all cases each time: a case that gave way to an obstruction of its site
    comes back when that obstruction is dropped, so no site is lost to the caps.

    Args:
      cases: one for each task that passed every earlier gate.

    Returns:
      task id -> `kept` or one of `REASONS`.
    """
    passed = [case for case in _by_category(cases) if passes_runtime_gate(case, config)]
    # Upper bound: the final corpus is at most as large as `passed`.
    max_obstructions = int(config.max_obstruction_share * len(passed))
    while True:
        allowed = _cap_each(passed, _is_obstruction, {True: max_obstructions})
        capped = _cap_sites(allowed, config.max_domain_share)
        kept = _sample(capped, config)
        cap = int(config.max_obstruction_share * len(kept))
        if sum(map(_is_obstruction, kept)) <= cap:
            break
        max_obstructions = cap
    decisions = dict.fromkeys((case.task_id for case in cases), "runtime_gate")
    for reason, some in zip((*REASONS[1:], KEPT), (passed, allowed, capped, kept), strict=True):
        decisions |= dict.fromkeys((case.task_id for case in some), reason)
    return decisions


def _sample(cases: list[AuditPair], config: BalanceConfig) -> list[AuditPair]:
    """Draws a corpus of the size asked for, one case of each category at a time, within the cap on sites."""
    if not 0 < config.max_prompts < len(cases):
        return cases
    turns: dict[str, int] = defaultdict(int)
    order = []
    for case in cases:
        order.append((turns[case.category], case))
        turns[case.category] += 1
    drawn = [case for _, case in sorted(order, key=lambda entry: entry[0])]
    return _cap_sites(drawn[: config.max_prompts], config.max_domain_share)


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
