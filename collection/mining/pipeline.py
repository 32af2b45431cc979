"""From pools of runs to decisions, one a task."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable

from collection.mining.audit import to_audit, to_prompt, without_pair
from collection.mining.balance import BalanceConfig, balance
from collection.mining.labels import PAPER_SHARES
from collection.mining.pairs import by_task, run_pairs
from collection.mining.select import GATES, KEPT, Case, MiningConfig, best_case
from rmsweb_jax.records.schema import AuditPair, RlPrompt, Trajectory

DECISIONS = ("no_success", "no_contrast", *GATES, "runtime_gate", "obstruction_cap", "domain_cap", KEPT)
# Below this the recipe asks a second reader; the report counts such labels.
SURE = 0.70


@dataclasses.dataclass(frozen=True)
class Mined:
    """What mining found.

    Attributes:
      prompts: the RL corpus.
      audits: one record a task, kept or dropped.
      cases: of the kept prompts, in the same order.
    """

    prompts: list[RlPrompt]
    audits: list[AuditPair]
    cases: list[Case]


def mine(
    trajectories: Iterable[Trajectory],
    config: MiningConfig,
    balancing: BalanceConfig,
    on_task: Callable[[int, int], None] = lambda done, total: None,
) -> Mined:
    """Mines one divergence a task and balances the corpus.

    Args:
      on_task: called with the number of tasks done and of all.
    """
    tasks = by_task(trajectories)
    cases: list[Case] = []
    audits: dict[str, AuditPair] = {}
    for number, (task_id, runs) in enumerate(tasks.items(), start=1):
        case = best_case(run_pairs(runs), config)
        if case is None:
            audits[task_id] = without_pair(runs)
        elif case.decision == KEPT:
            cases.append(case)
        else:
            audits[task_id] = to_audit(case, case.decision)
        on_task(number, len(tasks))
    decisions = balance(cases, balancing)
    for case in cases:
        task_id = case.pair.success.run.task.task_id
        audits[task_id] = to_audit(case, decisions[task_id])
    kept = [case for case in cases if decisions[case.pair.success.run.task.task_id] == KEPT]
    return Mined([to_prompt(case) for case in kept], [audits[task_id] for task_id in tasks], kept)


def summarize(mined: Mined) -> dict:
    """Counts for the report: the funnel of decisions, categories beside the paper's, sites, pair kinds."""
    decisions = Counter(audit.decision for audit in mined.audits)
    categories = Counter(prompt.category for prompt in mined.prompts)
    total = max(len(mined.prompts), 1)
    labelled = [audit for audit in mined.audits if audit.category]
    return {
        "tasks": len(mined.audits),
        "prompts": len(mined.prompts),
        "decisions": {name: decisions[name] for name in DECISIONS},
        "categories": {
            name: {
                "prompts": categories[name],
                "share": round(100 * categories[name] / total, 2),
                "paper_share": share,
            }
            for name, share in PAPER_SHARES.items()
        },
        "pair_kinds": dict(sorted(Counter(case.pair.kind for case in mined.cases).items())),
        "localization_actors": dict(
            sorted(Counter(case.pair.localization.run.actor for case in mined.cases).items())
        ),
        "sites": dict(sorted(Counter(prompt.site for prompt in mined.prompts).items())),
        "label_sources": dict(sorted(Counter(audit.label_source for audit in labelled).items())),
        "unsure_labels": sum(audit.label_confidence < SURE for audit in labelled),
    }
