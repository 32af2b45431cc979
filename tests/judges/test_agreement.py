"""Confusion tables, Cohen's kappa and shares: figures worked out by hand, and their definitions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.judges.agreement import NAMES, against, cohens_kappa, compare, confusion, kappa_interval

VERDICT = st.sampled_from([True, False, None])
BOTH = st.dictionaries(st.integers(0, 30).map(str), st.tuples(VERDICT, VERDICT), max_size=25)


def verdicts(both):
    return {run: one for run, (one, _) in both.items()}, {run: other for run, (_, other) in both.items()}


def by_definition(pairs):
    """(p_o - p_e) / (1 - p_e) over pairs of truth values, exactly; None where it is not defined."""
    count = len(pairs)
    if not count:
        return None
    agreed = Fraction(sum(one == other for one, other in pairs), count)
    first, second = (Fraction(sum(column), count) for column in zip(*pairs, strict=True))
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else float((agreed - chance) / (1 - chance))


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        # Worked by hand: p_o = 35/50, p_e = (25*30 + 25*20)/2500.
        ([[20, 5], [10, 15]], 0.4),
        # Two tables of equal agreement (0.6) of which chance explains more and less.
        ([[45, 15], [25, 15]], 6 / 46),
        ([[25, 35], [5, 35]], 14 / 54),
        ([[5, 0], [0, 5]], 1.0),
        ([[0, 5], [5, 0]], -1.0),
        ([[1, 1], [1, 1]], 0.0),
        ([[7, 0], [0, 0]], math.nan),
        ([[0, 0], [0, 0]], math.nan),
    ],
)
def test_kappa_of_known_tables(table, kappa):
    assert cohens_kappa(np.array(table)) == pytest.approx(kappa, nan_ok=True)


@given(BOTH)
def test_tables_and_kappa_by_their_definitions(both):
    first, second = verdicts(both)
    table = confusion(first, second)
    for row, one in enumerate((True, False, None)):
        for column, other in enumerate((True, False, None)):
            assert table[row, column] == sum(pair == (one, other) for pair in both.values())
    assert (confusion(second, first) == table.T).all() and len(NAMES) == 3
    tasks = {run: f"task {int(run) // 3}" for run in both}
    decided = [pair for pair in both.values() if None not in pair]
    interval, wanted = kappa_interval(first, second, tasks, resamples=50), by_definition(decided)
    if wanted is None:
        assert interval is None
    else:
        assert interval is not None and interval.mean == pytest.approx(wanted)
        assert -1 <= interval.low <= interval.high <= 1
        drawn = {tasks[run] for run, pair in both.items() if None not in pair}
        assert interval.tasks == len(drawn)
    pair = compare(first, second, tasks)
    assert pair["both_judged"] == len(decided)
    assert pair["agreement"] == (
        pytest.approx(sum(one == other for one, other in decided) / len(decided)) if decided else None
    )


def test_only_runs_that_both_know_count():
    assert confusion({"a": True, "b": False}, {"b": None, "c": True}).tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]


def test_the_interval_is_over_tasks_and_repeats():
    # Ten tasks of three equal runs: resampling runs would pretend to 30 independent ones.
    first = {f"{task}/{run}": task % 2 == 0 for task in range(10) for run in range(3)}
    second = {run: verdict if int(run[0]) < 8 else not verdict for run, verdict in first.items()}
    tasks = {run: run[0] for run in first}
    one, again = (kappa_interval(first, second, tasks, seed=7) for _ in range(2))
    assert one == again and one is not None and one.tasks == 10
    assert one.mean == pytest.approx(0.6) and one.low < 0.25 and one.high == 1.0
    each = kappa_interval(first, second, {run: run for run in first}, seed=7)
    assert each is not None and each.high - each.low < one.high - one.low


def test_shares_against_a_reference():
    reference = {"a": True, "b": True, "c": True, "d": False, "e": False, "f": None}
    judge = {"a": True, "b": False, "c": None, "d": True, "e": False, "f": True, "g": True}
    assert against(judge, reference) == {
        "runs": 5,
        "unjudged": 1,
        "precision": 1 / 2,
        # The unjudged one is missing.
        "recall": 1 / 3,
        "wrong_passed": 1 / 2,
        "accuracy": 2 / 4,
    }
    nothing = against({}, reference)
    assert nothing["runs"] == 0 and nothing["precision"] is None and nothing["recall"] is None


@given(BOTH)
def test_shares_are_shares(both):
    judge, reference = verdicts(both)
    found = against(judge, reference)
    assert all(found[name] is None or 0 <= found[name] <= 1 for name in list(found)[2:])
    assert found["runs"] == sum(other is not None for _, other in both.values())
