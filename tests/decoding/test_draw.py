from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.decoding.draw import BANNED, Restrictions, first_true, restrict, sample_tokens
from tests.references import torch, transformers


def test_sampling_follows_the_distribution():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(300, 0.05)).astype(np.float64)
    scores = np.full(300, -1e30, np.float32)
    scores[probs > 1e-6] = np.log(probs[probs > 1e-6])
    count = 40_000
    keys = jax.random.split(jax.random.key(0), count)
    drawn = np.asarray(jax.jit(sample_tokens)(jnp.broadcast_to(scores, (count, 300)), keys))
    frequency = np.bincount(drawn, minlength=300) / count
    assert not frequency[scores < -1e29].any()
    error = np.abs(frequency - probs) / np.sqrt(probs / count + 1e-9)
    assert error.max() < 5


def test_a_row_without_restrictions_keeps_every_token():
    """Sums of many small probabilities reach 1 before the last; the other program draws from all of them."""
    logits = jnp.asarray(np.random.default_rng(0).normal(0, 0.01, (2, 50_000)), jnp.float32)
    words = -(-logits.shape[1] // 32)
    zeros, every = np.zeros(2, np.float32), np.full((2, words), -1, np.int32)
    limits = Restrictions(np.ones(2, np.float32), np.zeros(2, np.int32), zeros, zeros, every)
    np.testing.assert_array_equal(restrict(logits, limits), logits)


@pytest.mark.parametrize("top_p, top_k", [(0.9, 0), (0.05, 0), (1.0, 7), (1.0, 1), (0.5, 40), (0.8, 9)])
def test_restrictions_are_those_of_transformers(top_p, top_k):
    logits = np.random.default_rng(1).normal(0, 3, (4, 1000)).astype(np.float32)
    scores = torch.tensor(logits)
    warpers = [transformers.TopKLogitsWarper(top_k)] if top_k else []
    expected = np.ones(logits.shape, bool)
    for warper in [*warpers, transformers.TopPLogitsWarper(top_p)]:
        # Each on the whole distribution, as the server's settings say.
        expected &= np.isfinite(warper(cast(Any, None), cast(Any, scores)).numpy())
    zeros, every = np.zeros(4, np.float32), np.full((4, 32), -1, np.int32)
    limits = Restrictions(np.full(4, top_p, np.float32), np.full(4, top_k, np.int32), zeros, zeros, every)
    kept = np.asarray(jax.jit(restrict)(logits, limits)) > BANNED
    np.testing.assert_array_equal(kept, expected)


def test_the_first_true():
    masks = jnp.asarray([[False, True, True], [True, False, False], [False, False, False]])
    assert first_true(masks).tolist() == [1, 0, 2]
