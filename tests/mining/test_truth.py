"""How the miner's choices are counted against the truth by replay."""

from collection.mining.score import KEPT
from rmsweb_jax.records.schema import AuditPair
from tests.mining.truth.runs import Truth
from tests.mining.truth.score import Scored, totals


def scored(number: int, step: int | None, decision: str, found: str) -> Scored:
    task = f"miniwob/a/{number}"
    truth = Truth(f"{task}#sft-1", task, "a", "sft", {}, step, ())
    audit = AuditPair(
        task_id=task,
        site="a",
        success_id="",
        localization_id="",
        category="",
        label_confidence=0.0,
        label_source="rule",
        decision=decision,
    )
    return Scored(truth, audit, found)


def test_precision_is_of_all_that_was_kept_runs_without_a_critical_step_too():
    figures = totals(
        [
            scored(1, 3, KEPT, "critical"),
            scored(2, 3, KEPT, "remedy"),
            scored(3, 3, "category_score", "category_score"),
            scored(4, None, KEPT, "wrong"),
            scored(5, None, "no_progress", "no_progress"),
        ]
    )
    assert (figures["critical"], figures["kept"], figures["nothing"]) == (3, 3, 2)
    assert (figures["precision"], figures["precision_remedy"]) == (0.3333, 0.6667)
    assert (figures["recall"], figures["false_kept"]) == (0.3333, 0.5)
