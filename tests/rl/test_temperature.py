"""Sampler and trainer compare one distribution; `make proof-first-contact` has more temperatures."""

from tests.proofs.first_contact.objective import sampler_gaps


def test_the_trainer_scores_drawn_tokens_as_the_sampler_does(tmp_path):
    (gap,) = sampler_gaps(tmp_path, [0.6])
    assert gap.tokens > 100 and gap.mean <= 1e-4
    # The two distributions that were compared before are apart.
    assert gap.mean_at_1 > 1e-2
