"""The four contrasts that RMSWeb tells: found where they are told, under their failure mode."""

from __future__ import annotations

import pytest

from collection.mining.select import KEPT, MiningConfig, divergence
from tests.mining.labelled import PAPER_CASES, Case
from tests.mining.measured import pair_of

each_contrast = pytest.mark.parametrize("told", PAPER_CASES, ids=lambda case: case.name)
# The pages are this project's; the paper gives no more of a case than a line.
TOLERANCE = 0.08


def test_all_four_are_here():
    assert {case.name: (case.category, case.score) for case in PAPER_CASES} == {
        "toyonaka-care-insurance": ("target_discovery", 0.84),
        "seek-submitted-application": ("endpoint_incomplete", 0.82),
        "carvana-selling-a-car": ("access_obstruction", 0.84),
        "youtube-premium-prices": ("constraint_mismatch", 0.76),
    }


@each_contrast
def test_a_told_contrast_is_mined_as_told(told: Case):
    found = divergence(pair_of(told.success, told.localization), MiningConfig())
    assert told.divergence is not None and told.score is not None
    assert found.decision == KEPT
    assert found.success_at is not None and found.localization_at is not None
    assert (found.success_at + 1, found.localization_at + 1) == told.divergence
    assert found.label.category == told.category
    assert found.scores["total"] == pytest.approx(told.score, abs=TOLERANCE)
