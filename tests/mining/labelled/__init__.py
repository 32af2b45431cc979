"""Pairs of runs written by hand, each with the failure mode a person gives it.

`CASES` are for writing rules by, `HELD_OUT` for nothing but counting how often the rules are right on
cases nobody looked at, `PAPER_CASES` the four contrasts told in RMSWeb's table. The labels follow the
explanations of RMSWeb's failure-mode taxonomy; `Case.why` gives the reason of each.
"""

from tests.mining.labelled import (
    access_obstruction,
    constraint_mismatch,
    datetime_availability,
    endpoint_incomplete,
    extraction_omission,
    filter_context,
    held_out,
    login_payment_boundary,
    paper,
    runtime_evaluation,
    target_discovery,
    ui_navigation,
    unverifiable_evidence,
)
from tests.mining.labelled.expanding import Case

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
HELD_OUT: tuple[Case, ...] = held_out.CASES
PAPER_CASES: tuple[Case, ...] = paper.CASES

__all__ = ["CASES", "HELD_OUT", "PAPER_CASES", "Case"]
