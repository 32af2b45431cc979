"""The label of the cues, compared with labels that people gave, and with the paper's contrasts."""

from __future__ import annotations

import pytest

from collection.mining.runs import parse_run
from collection.mining.score import KEPT, MiningConfig, find_divergence
from collection.mining.taxonomy import TAXONOMY, rule_label
from tests.mining.case_files import Case, load_cases, pair_of
from tests.mining.login_runs import success
from tests.trajectories import TYPE, numbered, step, trajectory

CASES, HELD_OUT, PAPER_CASES = map(load_cases, ("tuned", "held_out", "paper"))
# The pages are this project's; the paper gives a line for each case.
TOLERANCE = 0.08


def guess(case: Case) -> str:
    return rule_label(parse_run(case.success), parse_run(case.localization)).category


@pytest.mark.parametrize("cases", [CASES, HELD_OUT], ids=["written", "held out"])
def test_half_of_the_cues_labels_are_the_writers(cases):
    """Without a model, labels only balance the corpus: what is mined hardly depends on them."""
    assert sum(guess(case) == case.category for case in cases) >= 0.48 * len(cases)


def test_cases_are_apart_and_do_not_show_their_label():
    """Figures count each case once, and a label in a record would be read."""
    cases = CASES + HELD_OUT + PAPER_CASES
    assert (
        len({case.name for case in cases})
        == len({case.success.task.objective for case in cases})
        == len(cases)
    )
    runs = [(case, run) for case in cases for run in (case.success, case.localization)]
    assert len({run.trajectory_id for _, run in runs}) == len(runs)
    assert not [case.name for case, run in runs if case.category in run.model_dump_json()]


def test_confident_cues_are_right():
    labels = [rule_label(parse_run(case.success), parse_run(case.localization)) for case in CASES + HELD_OUT]
    sure = [
        label.category == case.category
        for label, case in zip(labels, CASES + HELD_OUT, strict=True)
        if label.confidence >= 0.85
    ]
    assert all(sure) and len(sure) > 25
    assert all(label.source == "rule" and label.category in TAXONOMY for label in labels)


@pytest.mark.parametrize(
    ("localization", "category"),
    [
        (trajectory(*numbered(TYPE), success=False, outcome="crashed"), "runtime_evaluation"),
        (trajectory(success=False, outcome="unreachable"), "access_obstruction"),
        (
            trajectory(step(1, TYPE, page="Access denied"), success=False, outcome="max_steps"),
            "access_obstruction",
        ),
        (success(attempt=2), "target_discovery"),  # A detour.
    ],
)
def test_cues(localization, category):
    assert rule_label(parse_run(success()), parse_run(localization)).category == category


@pytest.mark.parametrize("case", PAPER_CASES, ids=lambda case: case.name)
def test_a_contrast_of_the_paper_is_mined_as_published(case: Case):
    found = find_divergence(pair_of(case), MiningConfig())
    assert case.divergence is not None and case.score is not None
    assert found.success_at is not None and found.localization_at is not None
    assert (found.decision, found.success_at + 1, found.localization_at + 1) == (KEPT, *case.divergence)
    assert found.scores["total"] == pytest.approx(case.score, abs=TOLERANCE)
