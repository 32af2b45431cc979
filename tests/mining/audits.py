"""Audit records of cases that passed every gate before the corpus is balanced."""

from rmsweb_jax.records.schema import AuditPair


def passed_audit(
    task_id: str,
    site: str,
    category: str = "endpoint_incomplete",
    confidence: float = 0.9,
    in_category: float = 0.7,
    total: float = 0.7,
) -> AuditPair:
    return AuditPair(
        task_id=task_id,
        site=site,
        success_id="good",
        localization_id="bad",
        category=category,
        label_confidence=confidence,
        label_source="rule",
        decision="kept",
        scores={"total": total, "category": in_category},
    )
