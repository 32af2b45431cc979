import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.rl.gates import FATES, contrast, salvage_ds
from tests.references import torch

LEVELS = (0.0, 0.3, 0.7, 1.0)

groups = st.lists(st.lists(st.sampled_from(LEVELS), min_size=8, max_size=8), min_size=1, max_size=6)


@settings(deadline=None)
@given(groups)
def test_matches_torch(rewards):
    ours = salvage_ds(np.asarray(rewards))
    r = torch.tensor(rewards, dtype=torch.float64)
    std, mean = r.std(1, unbiased=True), r.mean(1)
    keep = (std >= 0.10) & (r.max(1).values >= 0.55)
    expected = torch.where(keep[:, None], (r - mean[:, None]) / (std[:, None] + 1e-6), 0.0)
    np.testing.assert_allclose(ours.advantages, expected.numpy(), rtol=2e-5, atol=1e-5)
    assert (ours.fates == "accepted").tolist() == keep.tolist()


@settings(deadline=None)
@given(groups)
def test_a_group_that_is_not_accepted_has_no_advantages(rewards):
    for gate in (salvage_ds, contrast):
        gated = gate(np.asarray(rewards))
        assert set(gated.fates) <= set(FATES)
        assert (gated.advantages[gated.fates != "accepted"] == 0).all()
        np.testing.assert_allclose(gated.advantages.sum(1), 0, atol=1e-4)


ADJACENT = [(0.7, 1.0), (1.0, 0.7), (0.3, 0.7), (0.7, 0.3), (0.0, 0.7)]


@settings(deadline=None)
@given(st.permutations([0] * 7 + [1]), st.sampled_from(ADJACENT))
def test_seven_to_one_passes_when_someone_is_competent(split, levels):
    gated = salvage_ds(np.asarray([[levels[which] for which in split]]))
    assert gated.fates.tolist() == ["accepted"]


@settings(deadline=None)
@given(st.sampled_from(LEVELS))
def test_a_unanimous_group_never_passes(level):
    for gate in (salvage_ds, contrast):
        gated = gate(np.full((1, 8), level))
        assert not gated.advantages.any()
        assert gated.fates.tolist() == ["solved" if level >= 0.55 else "unsolved"]


@pytest.mark.parametrize("samples", [2, 4, 8, 9, 16])
def test_rounding_changes_no_verdict(samples):
    """Against exact arithmetic, over all groups of the four levels."""
    tenths = np.asarray([*itertools.combinations_with_replacement((0, 3, 7, 10), samples)])
    # K (K - 1) sigma^2 >= K (K - 1) 0.1^2, in hundredths.
    spread = samples * (tenths**2).sum(1) - tenths.sum(1) ** 2
    apart, competent = spread >= samples * (samples - 1), tenths.max(1) >= 6
    fates = salvage_ds(tenths / 10).fates
    assert ((fates == "accepted") == (apart & competent)).all()
    assert ((fates == "solved") == (~apart & competent)).all()
    assert ((fates == "incompetent") == (apart & ~competent)).all()
    assert ((fates == "unsolved") == (~apart & ~competent)).all()


def test_smallest_split_between_levels_has_the_papers_contrast():
    gated = salvage_ds(np.asarray([[1.0] * 7 + [0.7]]))
    assert gated.advantages[0, 7] == pytest.approx(-0.3 * 7 / 8 / (0.3 / np.sqrt(8)), rel=1e-4)


def test_contrast_needs_no_competent_sample():
    rewards = np.asarray([[0.0] * 4 + [0.3] * 4])
    assert salvage_ds(rewards).fates.tolist() == ["incompetent"]
    gated = contrast(rewards)
    assert gated.fates.tolist() == ["accepted"]
    assert (np.sign(gated.advantages[0]) == [-1] * 4 + [1] * 4).all()
