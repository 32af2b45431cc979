"""Rates that are corrected for a judge's errors; tests/proofs/judge_error.py counts how often they hold."""

import json

import numpy as np
import pytest

from collection.evaluation.judge_error import (
    Judged,
    JudgeError,
    corrected_difference,
    corrected_rate,
    read_error,
)
from rmsweb_jax.errors import UserError


def errors_of(*counts, tasks=50):
    return JudgeError("judge-1", np.tile(counts, (tasks, 1)))


def judged(*passed, asked=1.0):
    return Judged(np.asarray(passed, float), np.full(len(passed), asked))


def test_counts_are_by_task():
    verdicts = [
        ("b", True, True),
        ("a", True, False),
        ("b", False, True),
        ("b", False, False),
        ("b", True, True),
    ]
    error = JudgeError.of("judge-1", verdicts)
    assert error.counts.tolist() == [[0, 1, 0, 0], [2, 0, 1, 1]]
    assert (error.sensitivity.mean, error.specificity.mean) == (pytest.approx(2 / 3), 0.5)


def test_a_judge_without_errors_changes_nothing():
    found = corrected_rate(judged(1, 0, 0.5, 1), errors_of(5, 0, 0, 5))
    assert found.mean == pytest.approx(0.625) and found.low < 0.625 < found.high


def test_the_formula():
    """0.6 of the runs are successes; of those 0.9 pass, and 0.2 of the others: 0.62."""
    passed = judged(*[1] * 62, *[0] * 38)
    assert corrected_rate(passed, errors_of(9, 1, 2, 8)).mean == pytest.approx(0.6)
    # The judge was asked about the first 80 alone: 0.2 of their failures passed, and no other run.
    some = Judged(passed.passed, np.asarray([1.0] * 80 + [0.0] * 20))
    assert corrected_rate(some, errors_of(9, 1, 2, 8)).mean == pytest.approx((0.62 - 0.2 * 0.8) / 0.7)


def test_a_difference_between_policies_that_the_judge_sees_otherwise():
    """Both pass 0.62, the second by a judge that passes 0.3 of the failures."""
    both = judged(*[1] * 62, *[0] * 38)
    first, second = errors_of(9, 1, 2, 8), errors_of(9, 1, 3, 7)
    found = corrected_difference(both, both, (first, second))
    assert found.mean == pytest.approx(0.6 - 0.32 / 0.6) and found.low < found.mean < found.high
    same = corrected_difference(both, both, (first, first))
    assert (same.mean, same.low, same.high) == (0, 0, 0)


def test_unsure_errors_widen_the_interval():
    passed = judged(*[1] * 62, *[0] * 38)
    widths = [
        found.high - found.low
        for tasks in (500, 20)
        for found in [corrected_rate(passed, errors_of_tasks(tasks))]
    ]
    assert widths[1] > 1.5 * widths[0]


def errors_of_tasks(tasks):
    rng = np.random.default_rng(0)
    verdicts = [
        (f"{task}", truth, bool(rng.random() < (0.9 if truth else 0.2)))
        for task in range(tasks)
        for truth in (True, False)
    ]
    return JudgeError.of("judge-1", verdicts)


def test_errors_are_kept_and_a_judge_that_guesses_is_refused(tmp_path):
    path = tmp_path / "judge_errors.json"
    write(path, {"good": errors_of(9, 1, 2, 8), "guess": errors_of_guesses(), "one": errors_of(3, 1, 0, 0)})
    assert read_error(path, "good", "config.judge_errors").counts.sum() == 1_000
    for name in ("guess", "one"):
        with pytest.raises(UserError, match=r"config\.judge_errors: .*not shown to be better than chance"):
            read_error(path, name, "config.judge_errors")
    with pytest.raises(UserError, match="has no judge 'other': take one of good, guess, one"):
        read_error(path, "other", "config.judge_errors")
    path.write_text("[]")
    with pytest.raises(UserError, match=r"not the judge_errors\.json of experiments\.judge"):
        read_error(path, "good", "config.judge_errors")


def write(path, errors):
    path.write_text(json.dumps({name: one.report() for name, one in errors.items()}))


def errors_of_guesses():
    rng = np.random.default_rng(0)
    guesses = [(f"{task}", task % 2 == 0, bool(rng.random() < 0.7)) for task in range(100)]
    return JudgeError.of("judge-1", guesses)
