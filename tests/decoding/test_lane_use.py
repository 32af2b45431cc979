"""The scheduler against lanes that any sequence may take."""

import pytest

from tests.decoding.lane_use import RUNAWAYS, ideal_steps, simulate


def test_ideal_steps_are_those_of_a_small_example():
    iterations = [[[3, 1], [2, 2]], [[1, 1], [1, 5]]]
    # Two lanes: 3 and 1 + 2, then 2; the second iteration waits for the first, or does not.
    assert ideal_steps(iterations, 2, staleness=0) == 5 + 6
    assert ideal_steps(iterations, 2, staleness=1) == 10
    assert ideal_steps(iterations, 8, staleness=0) == 3 + 5


@pytest.mark.parametrize(("shards", "staleness"), [(1, 0), (8, 0), (16, 1)])
def test_steps_are_near_those_of_ideal_lanes(shards, staleness):
    use = simulate(shards, 8, RUNAWAYS, staleness, iterations=4)
    assert use.ideal_steps <= 1.02 * use.steps and use.steps <= 1.1 * use.ideal_steps
