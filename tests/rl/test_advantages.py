import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.rl.losses import gated_advantages
from tests.references import torch

LEVELS = (0.0, 0.3, 0.7, 1.0)

groups = st.lists(st.lists(st.sampled_from(LEVELS), min_size=8, max_size=8), min_size=1, max_size=6)


@settings(deadline=None)
@given(groups)
def test_matches_torch(rewards):
    ours = gated_advantages(np.asarray(rewards))
    r = torch.tensor(rewards, dtype=torch.float64)
    std, mean = r.std(1, unbiased=True), r.mean(1)
    keep = (std >= 0.10) & (r.max(1).values >= 0.55)
    expected = torch.where(keep[:, None], (r - mean[:, None]) / (std[:, None] + 1e-6), 0.0)
    np.testing.assert_allclose(ours.advantages, expected.numpy(), rtol=2e-5, atol=1e-5)
    assert ours.accepted.tolist() == keep.tolist()


@settings(deadline=None)
@given(groups)
def test_every_group_has_one_fate(rewards):
    gates = gated_advantages(np.asarray(rewards))
    fates = np.stack([gates.accepted, gates.solved, gates.unsolved, gates.incompetent])
    assert (fates.sum(0) == 1).all()
    assert (gates.advantages[~gates.accepted] == 0).all()
    np.testing.assert_allclose(gates.advantages.sum(1), 0, atol=1e-4)


ADJACENT = [(0.7, 1.0), (1.0, 0.7), (0.3, 0.7), (0.7, 0.3), (0.0, 0.7)]


@settings(deadline=None)
@given(st.permutations([0] * 7 + [1]), st.sampled_from(ADJACENT))
def test_seven_to_one_passes_when_someone_is_competent(split, levels):
    gates = gated_advantages(np.asarray([[levels[which] for which in split]]))
    assert gates.accepted.all()


@settings(deadline=None)
@given(st.sampled_from(LEVELS))
def test_a_unanimous_group_never_passes(level):
    for competence_gate in (True, False):
        gates = gated_advantages(np.full((1, 8), level), competence_gate)
        assert not gates.accepted.any() and not gates.advantages.any()
        assert gates.solved[0] == (level >= 0.55)


@pytest.mark.parametrize("samples", [2, 4, 8, 9, 16])
def test_rounding_changes_no_verdict(samples):
    """Against exact arithmetic, over all groups of the four levels."""
    tenths = np.asarray([*itertools.combinations_with_replacement((0, 3, 7, 10), samples)])
    # K (K - 1) sigma^2 >= K (K - 1) 0.1^2, in hundredths.
    spread = samples * (tenths**2).sum(1) - tenths.sum(1) ** 2
    contrast, competent = spread >= samples * (samples - 1), tenths.max(1) >= 6
    gates = gated_advantages(tenths / 10)
    assert (gates.accepted == (contrast & competent)).all()
    assert (gates.solved == (~contrast & competent)).all()
    assert (gates.incompetent == (contrast & ~competent)).all()


def test_smallest_split_between_levels_has_the_papers_contrast():
    gates = gated_advantages(np.asarray([[1.0] * 7 + [0.7]]))
    assert gates.advantages[0, 7] == pytest.approx(-0.3 * 7 / 8 / (0.3 / np.sqrt(8)), rel=1e-4)


def test_competence_gate_can_be_left_open():
    rewards = np.asarray([[0.0] * 4 + [0.3] * 4])
    assert gated_advantages(rewards).incompetent.all()
    open_gate = gated_advantages(rewards, competence_gate=False)
    assert open_gate.accepted.all() and not open_gate.incompetent.any()
    assert (np.sign(open_gate.advantages[0]) == [-1] * 4 + [1] * 4).all()
