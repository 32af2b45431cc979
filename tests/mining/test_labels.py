"""The rule prior beside the labels that people gave, and its features."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Sequence

import pytest

from collection.mining.branch import Branch, branch
from collection.mining.features import FEATURES, pair_features
from collection.mining.labels import Label, rule_label
from collection.mining.taxonomy import TAXONOMY
from tests.mining.labelled import CASES, HELD_OUT, PAPER_CASES, Case
from tests.mining.planted import CATEGORIES, planted_pair, unplanted_pair
from tests.mining.planted.unplanted import KINDS
from tests.mining.runs import WANDERS
from tests.mining.runs import pair_of as login_pair

WRITTEN = {"tuned": CASES, "held out": HELD_OUT}
each_part = pytest.mark.parametrize("cases", WRITTEN.values(), ids=WRITTEN)
# All kinds of stories are among the first seeds.
SEEDS = range(1000, 1006)


@functools.cache
def labels() -> dict[str, Label]:
    return {
        case.name: rule_label(branch(case.success), branch(case.localization)) for case in CASES + HELD_OUT
    }


@functools.cache
def all_pairs() -> tuple[tuple[Branch, Branch], ...]:
    """Written and planted pairs, pairs without a decision (lost records among them), an empty run, a form."""
    written = [(case.success, case.localization) for case in CASES + HELD_OUT + PAPER_CASES]
    planted = [planted_pair(category, seed) for category in CATEGORIES for seed in SEEDS]
    planted += [unplanted_pair(SEEDS[0] + number) for number in range(len(KINDS))]
    empty = CASES[0].localization.model_copy(update={"steps": (), "outcome": "crashed", "final_text": ""})
    runs = [*written, *((pair.success, pair.localization) for pair in planted), (CASES[0].success, empty)]
    form = login_pair(1, *WANDERS, outcome="max_steps")
    pairs = [(branch(success), branch(other)) for success, other in runs]
    return (*pairs, (form.success, form.localization))


def mistaken(cases: Sequence[Case]) -> dict[str, str]:
    found = {case.name: labels()[case.name].category for case in cases}
    return {case.name: found[case.name] for case in cases if found[case.name] != case.category}


@each_part
def test_the_first_guess_is_right_in_seven_of_ten_cases(cases):
    assert len(mistaken(cases)) <= 0.3 * len(cases), mistaken(cases)


@each_part
def test_no_category_is_lost(cases):
    written = collections.Counter(case.category for case in cases)
    assert set(written) == set(TAXONOMY)
    lost = collections.Counter(case.category for case in cases if case.name in mistaken(cases))
    assert all(lost[name] <= 0.7 * written[name] for name in TAXONOMY), lost


def test_labels_and_features_are_in_range():
    for success, localization in all_pairs():
        features = pair_features(success, localization)
        assert features.keys() == FEATURES.keys()
        assert all(0.0 <= value <= 1.0 for value in features.values()), (success.run.trajectory_id, features)
        found = rule_label(success, localization)
        # The best of eleven shares that sum to 1.
        assert 1 / len(TAXONOMY) - 1e-9 <= found.confidence <= 1.0 and found.category in TAXONOMY
        assert found.source == "rule" and found.features.keys() <= FEATURES.keys()


def test_every_feature_speaks_for_a_category_and_none_is_missing():
    used = {name for category in TAXONOMY.values() for name in category.features}
    assert used == set(FEATURES)
    weights = [weight for category in TAXONOMY.values() for weight in category.features.values()]
    assert all(weight > 0 and math.isfinite(weight) for weight in weights)


def test_every_feature_tells_some_pairs_apart():
    values = [pair_features(*pair) for pair in all_pairs()]
    assert not {name for name in FEATURES if len({value[name] for value in values}) < 2}
