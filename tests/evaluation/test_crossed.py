"""The bootstrap over trainings and tasks against the exact distribution, and the plain one."""

import itertools

import numpy as np
import pytest

from collection.evaluation.statistics import bootstrap_mean
from tests.proofs.bootstrap import crossed_bootstrap


def test_crossed_bootstrap_matches_the_exact_distribution_of_two_trainings_and_two_tasks():
    values = np.array([[0.0, 1.0], [4.0, 13.0]])
    draws = list(itertools.product(range(2), repeat=2))
    exact = [values[np.ix_(rows, columns)].mean() for rows in draws for columns in draws]
    interval = crossed_bootstrap(values, resamples=20_000, confidence=0.6)
    assert interval is not None
    assert interval.mean == pytest.approx(4.5)
    assert interval.low == pytest.approx(np.quantile(exact, 0.2))
    assert interval.high == pytest.approx(np.quantile(exact, 0.8))
    assert interval.tasks == 2


def test_one_training_leaves_the_bootstrap_over_tasks():
    values = np.random.default_rng(0).normal(size=80)
    crossed, plain = crossed_bootstrap(values[None]), bootstrap_mean(values)
    assert crossed is not None
    assert plain is not None
    assert crossed.mean == pytest.approx(plain.mean)
    assert crossed.high - crossed.low == pytest.approx(plain.high - plain.low, rel=0.05)


def test_identical_trainings_add_no_tasks():
    values = np.random.default_rng(0).normal(size=80)
    one, many = (crossed_bootstrap(np.tile(values, (count, 1))) for count in (1, 9))
    assert one is not None
    assert many is not None
    assert many.high - many.low == pytest.approx(one.high - one.low, rel=0.05)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_crossed_bootstrap_of_nothing(shape):
    assert crossed_bootstrap(np.zeros(shape)) is None
