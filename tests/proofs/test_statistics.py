"""The simulated evaluations of the proof have the rates and correlations that it says."""

import numpy as np
import pytest

from tests.proofs.statistics import RUNS, simulate, why


@pytest.mark.parametrize("correlation", [0.2, 0.7])
def test_simulated_runs_have_the_rates_and_the_correlation(correlation):
    wins, others, never = simulate((0.5, 0.97, 0.0), correlation, 400, 200, np.random.default_rng(0))
    assert wins.shape == (400, 200, RUNS)
    assert (wins.mean(), others.mean()) == pytest.approx((0.5, 0.97), abs=0.01)
    assert not never.any()
    for drawn in (wins, others):
        one, other = drawn[..., 0].ravel(), drawn[..., 1].ravel()
        assert np.corrcoef(one, other)[0, 1] == pytest.approx(correlation, abs=0.03)
    assert np.corrcoef(wins.mean(axis=2).ravel(), others.mean(axis=2).ravel())[0, 1] > 0.2


def test_only_cells_outside_the_limits_have_a_reason():
    assert why({"ours": 0.95, "rate": 0.03, "tasks": 10}) == ""
    assert why({"ours": 1.0, "rate": 0.0, "tasks": 10}).startswith("nothing is ever solved")
    assert "0.3 tasks" in why({"ours": 0.99, "rates": [0.03, 0.5], "tasks": 10})
    assert "one policy solves nothing" in why({"ours": 1.0, "rates": [0.0, 0.03], "tasks": 40})
    assert why({"ours": 0.9, "rate": 0.5, "tasks": 588}) == "chance, or a fault"
