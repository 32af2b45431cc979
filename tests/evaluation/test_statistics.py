import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap, ttest_rel

from collection.evaluation import statistics
from collection.evaluation.statistics import Interval

_MATRICES = st.integers(1, 5).flatmap(
    lambda runs: st.lists(st.lists(st.booleans(), min_size=runs, max_size=runs), min_size=1, max_size=6)
)


@given(_MATRICES, st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(rows, data):
    successes = np.array(rows)
    k = data.draw(st.integers(1, successes.shape[1]))
    brute = [np.mean([any(subset) for subset in itertools.combinations(row, k)]) for row in rows]
    np.testing.assert_allclose(statistics.pass_at_k(successes, k), brute, atol=1e-12)


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_refuses_more_runs_than_there_are(k):
    with pytest.raises(ValueError, match="between 1 and 3"):
        statistics.pass_at_k(np.zeros((2, 3), bool), k)


RATES = st.integers(1, 4).flatmap(
    lambda runs: st.tuples(st.just(runs), st.lists(st.integers(0, runs), min_size=1, max_size=30))
)


def rate(successes, trials) -> Interval:
    interval = statistics.rate_interval(np.asarray(successes), np.asarray(trials))
    assert interval is not None
    return interval


@given(RATES)
def test_a_rate_is_inside_its_interval_and_the_interval_is_never_a_point(drawn):
    runs, successes = drawn
    interval = rate(successes, [runs] * len(successes))
    assert interval.mean == pytest.approx(sum(successes) / runs / len(successes))
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert interval.high - interval.low > 0.05
    assert interval.tasks == len(successes)


@given(RATES)
def test_failures_mirror_successes(drawn):
    runs, successes = drawn
    interval, mirrored = (
        rate(one, [runs] * len(successes)) for one in (successes, runs - np.array(successes))
    )
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_nothing_solved_of_36_runs_is_wilsons_interval_of_12_tasks():
    interval = rate(np.zeros(12), np.full(12, 3))
    assert (interval.mean, interval.low) == (0.0, 0.0)
    z = 1.959964
    assert interval.high == pytest.approx(z**2 / (12 + z**2), abs=1e-6)


def test_runs_that_end_alike_count_as_one_and_independent_runs_as_many():
    alike = rate([3, 0] * 50, np.full(100, 3))
    once = rate([1, 0] * 50, np.ones(100))
    assert (alike.low, alike.high) == pytest.approx((once.low, once.high))
    # Less variance than independent runs would have: counted as independent, not as more.
    steady = rate(np.full(100, 1), np.full(100, 2))
    independent = rate([1, 0] * 100, np.ones(200))
    assert steady.high - steady.low == pytest.approx(independent.high - independent.low, rel=0.01)


def test_bootstrap_is_scipys_bca():
    values = np.random.default_rng(1).exponential(size=40)
    interval = statistics.bootstrap_mean(values, seed=3)
    expected = bootstrap(
        (values,), np.mean, n_resamples=9999, rng=np.random.default_rng(3)
    ).confidence_interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_the_interval_of_a_mean_lies_within_the_values(values):
    interval = statistics.bootstrap_mean(np.array(values))
    assert interval is not None
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9


def test_no_tasks_give_no_interval():
    assert statistics.bootstrap_mean(np.zeros(0)) is None
    assert statistics.rate_interval(np.zeros(3), np.zeros(3)) is None
    assert statistics.paired_difference(np.zeros(0), np.zeros(0)) is None
    assert statistics.steps_on_solved(np.zeros((4, 3), bool), np.ones((4, 3))) is None


@given(RATES, st.randoms())
def test_a_difference_mirrors_and_is_never_a_point(drawn, random):
    runs, successes = drawn
    first = np.array(successes) / runs
    second = np.array(random.sample(successes, len(successes))) / runs
    one, other = (statistics.paired_difference(*pair, runs) for pair in ((first, second), (second, first)))
    assert one is not None and other is not None
    assert (one.low, one.mean, one.high) == pytest.approx((-other.high, -other.mean, -other.low), abs=1e-9)
    assert -1 <= one.low <= one.mean <= one.high <= 1


def test_two_policies_that_solve_nothing_may_still_differ():
    interval = statistics.paired_difference(np.zeros(20), np.zeros(20), 3)
    assert interval is not None
    assert -0.3 < interval.low < -0.1 and interval.mean == 0 and 0.1 < interval.high < 0.3


def test_paired_values_must_be_of_the_same_tasks():
    with pytest.raises(ValueError, match="same tasks"):
        statistics.paired_difference(np.zeros(2), np.zeros(3))


def test_steps_count_only_where_solved():
    successes = np.array([[1, 0], [1, 1], [0, 0]], bool)
    steps = np.array([[4, 99], [2, 3], [50, 50]])
    interval = statistics.steps_on_solved(successes, steps)
    assert interval is not None
    assert interval.mean == pytest.approx(3.0)
    assert interval.tasks == 2


def test_step_reduction_looks_at_tasks_both_solved():
    mine, my_steps = np.array([[1, 1], [1, 0], [0, 0]], bool), np.array([[2, 4], [3, 9], [9, 9]])
    theirs, their_steps = np.array([[1, 0], [0, 0], [1, 1]], bool), np.array([[6, 1], [9, 9], [1, 1]])
    interval = statistics.step_reduction(mine, my_steps, theirs, their_steps)
    assert interval is not None
    assert interval.mean == pytest.approx(1 - 3 / 6)
    assert interval.tasks == 1


def test_steps_saved_are_those_of_the_means_of_each():
    mine, my_steps = np.array([[1, 1], [0, 0]], bool), np.array([[2, 4], [9, 9]])
    theirs, their_steps = np.array([[1, 0], [1, 0]], bool), np.array([[6, 1], [10, 1]])
    interval = statistics.steps_saved(mine, my_steps, theirs, their_steps)
    assert interval is not None
    assert interval.mean == pytest.approx(1 - 3 / 8)
    assert interval.tasks == 2
    assert statistics.steps_saved(mine, my_steps, np.zeros((2, 2), bool), their_steps) is None


def test_steps_of_one_task_or_of_equal_tasks_have_no_spread():
    one = statistics.bootstrap_ratio(np.array([7.0, 0.0]), np.array([2.0, 0.0]))
    assert one == Interval(3.5, 3.5, 3.5, 1)
    assert statistics.bootstrap_mean(np.full(5, 4.0)) == Interval(4.0, 4.0, 4.0, 5)


class Simulated:
    """Two policies on 60 tasks, three runs each, drawn anew 800 times from known chances.

    Tasks differ widely in how hard they are; the second policy is better where tasks are hard, and takes
    more steps. Chances are uniform in a task's level u, so that the truth is an integral.
    """

    def __init__(self, seed: int, sets: int = 800, tasks: int = 60, runs: int = 3):
        rng = np.random.default_rng(seed)
        level = rng.random((sets, tasks, 1))
        draws = rng.random((2, sets, tasks, runs))
        self.first = draws[0] < self.chance(level)[0]
        self.second = draws[1] < self.chance(level)[1]
        self.first_steps, self.second_steps = (
            (4 + extra + 6 * (1 - level) + rng.integers(0, 4, (sets, tasks, runs))).astype(int)
            for extra in (0, 2)
        )
        self.has_result = rng.random((sets, tasks, runs)) < 0.8

    @staticmethod
    def chance(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return level, np.sqrt(level)


SIMULATED = Simulated(0)
_LEVEL = (np.arange(200_000) + 0.5) / 200_000
_FIRST, _SECOND = Simulated.chance(_LEVEL)


def coverage(intervals, truth: float) -> float:
    return float(np.mean([one is not None and one.low <= truth <= one.high for one in intervals]))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_intervals_of_runs_with_a_result_hold_the_truth_in_19_of_20_cases(k):
    truth = (1 - (1 - _FIRST) ** k).mean()
    intervals = [
        statistics.pass_rate(won, has_result, k)
        for won, has_result in zip(SIMULATED.first, SIMULATED.has_result, strict=True)
    ]
    assert coverage(intervals, truth) == pytest.approx(0.95, abs=0.025)


def test_intervals_of_differences_hold_the_truth_where_runs_are_missing():
    intervals = [
        statistics.pass_difference(second, first, has_second, np.flip(has_second), 1)
        for first, second, has_second in zip(
            SIMULATED.first, SIMULATED.second, SIMULATED.has_result, strict=True
        )
    ]
    assert coverage(intervals, (_SECOND - _FIRST).mean()) == pytest.approx(0.95, abs=0.025)


def test_where_hard_tasks_miss_more_runs_the_rate_is_still_that_of_the_tasks():
    """Each task weighs the same: the share of all runs with a result would lean to the easy tasks."""
    level = np.linspace(0, 1, 4000)[:, None]
    rng = np.random.default_rng(0)
    won, has_result = rng.random((4000, 3)) < level, rng.random((4000, 3)) < 0.4 + 0.6 * level
    rate = statistics.pass_rate(won, has_result, 1)
    assert rate is not None
    there = has_result.any(axis=1)
    assert rate.mean == pytest.approx(level[there].mean(), abs=0.01)
    assert won[has_result].mean() > level[there].mean() + 0.05
    assert rate.least < 0.5 < rate.most


def test_intervals_of_steps_saved_hold_the_truth_in_19_of_20_cases(monkeypatch):
    # Steps are cut to whole numbers: their means at a level are taken from the draws' own form.
    first, second = (
        np.mean([(4 + extra + 6 * (1 - _LEVEL) + more).astype(int) for more in range(4)], axis=0)
        for extra in (0, 2)
    )
    truth = 1 - (first * _FIRST).sum() / _FIRST.sum() / ((second * _SECOND).sum() / _SECOND.sum())
    data = zip(SIMULATED.first, SIMULATED.first_steps, SIMULATED.second, SIMULATED.second_steps, strict=True)
    # Fewer resamples than otherwise, for speed: they blur the limits by a tenth of their distance.
    monkeypatch.setattr(statistics, "RESAMPLES", 499)
    intervals = [statistics.steps_saved(*one) for one in data]
    assert coverage(intervals, truth) == pytest.approx(0.95, abs=0.025)


def outcomes(wins: int, losses: int) -> tuple[np.ndarray, np.ndarray]:
    """Two policies that also agree on a success and on a failure."""
    first = np.array([True] * wins + [False] * losses + [True, False])
    second = np.array([False] * wins + [True] * losses + [True, False])
    return first, second


def test_mcnemar_is_scipys_binomial_test_on_disagreements():
    for wins, losses in itertools.product(range(20), repeat=2):
        if wins + losses:
            expected = binomtest(wins, wins + losses, 0.5).pvalue
            assert statistics.mcnemar(*outcomes(wins, losses)) == pytest.approx(expected, rel=1e-9)
    assert statistics.mcnemar(*outcomes(0, 0)) == 1.0
    assert statistics.mcnemar(*outcomes(700, 500)) == pytest.approx(binomtest(700, 1200).pvalue, rel=1e-6)


DIFFERENCES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=10)


def runs_of(successes: list[int]) -> np.ndarray:
    return np.arange(3) < np.array(successes)[:, None]


@given(DIFFERENCES)
def test_the_permutation_test_goes_through_all_signs(pairs):
    first, second = (list(one) for one in zip(*pairs, strict=True))
    differences = np.subtract(first, second)
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(pairs))]
    p = np.mean(np.array(sums) >= abs(differences.sum()))
    assert statistics.permutation_p(runs_of(first), runs_of(second)) == pytest.approx(p)


def test_the_permutation_test_of_many_tasks_repeats_and_is_close_to_the_t_test():
    rng = np.random.default_rng(0)
    first, second = rng.random((80, 3)) < 0.6, rng.random((80, 3)) < 0.5
    p = statistics.permutation_p(first, second, seed=1)
    assert p == statistics.permutation_p(first, second, seed=1)
    t = ttest_rel(first.mean(axis=1), second.mean(axis=1)).pvalue
    assert p == pytest.approx(t, rel=0.3)


def test_the_permutation_test_is_of_pass_at_1_not_of_pass_at_k():
    """One solves each task once, the other always: equal in "solved at least once", far apart in pass@1."""
    first, second = runs_of([3] * 12), runs_of([1] * 12)
    assert statistics.mcnemar(first.any(axis=1), second.any(axis=1)) == 1.0
    assert statistics.permutation_p(first, second) == pytest.approx(2 / 2**12)


# statsmodels collects garbage at every call, which takes long where jax is loaded.
@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_is_closed_testing_with_bonferroni(p_values):
    """The oracle goes through every set of hypotheses: p is the worst of the sets that hold its own."""
    places = range(len(p_values))
    sets = [chosen for size in places for chosen in itertools.combinations(places, size + 1)]
    worst = {chosen: min(1.0, len(chosen) * min(p_values[one] for one in chosen)) for chosen in sets}
    expected = [max(worst[chosen] for chosen in sets if place in chosen) for place in places]
    assert statistics.holm(p_values) == pytest.approx(expected)
