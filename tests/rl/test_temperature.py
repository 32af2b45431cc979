"""Sampler and trainer compare one distribution, at any temperature."""

from tests.proofs.first_contact.objective import TEMPERATURES, sampler_gaps


def test_the_trainer_scores_drawn_tokens_as_the_sampler_does(tmp_path):
    gaps = sampler_gaps(tmp_path)
    assert [gap.temperature for gap in gaps] == list(TEMPERATURES)
    for gap in gaps:
        assert gap.tokens > 100 and gap.mean <= 1e-4
        # The two distributions that were compared before are apart.
        assert gap.temperature == 1 or gap.mean_at_1 > 1e-2
