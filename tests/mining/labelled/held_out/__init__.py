"""Three cases of each failure mode that no rule is written or tuned by."""

from tests.mining.labelled.expanding import Case
from tests.mining.labelled.held_out import (
    access_obstruction,
    constraint_mismatch,
    datetime_availability,
    endpoint_incomplete,
    extraction_omission,
    filter_context,
    login_payment_boundary,
    runtime_evaluation,
    target_discovery,
    ui_navigation,
    unverifiable_evidence,
)

CASES: tuple[Case, ...] = (
    *unverifiable_evidence.CASES,
    *endpoint_incomplete.CASES,
    *access_obstruction.CASES,
    *ui_navigation.CASES,
    *runtime_evaluation.CASES,
    *constraint_mismatch.CASES,
    *filter_context.CASES,
    *datetime_availability.CASES,
    *target_discovery.CASES,
    *extraction_omission.CASES,
    *login_payment_boundary.CASES,
)
