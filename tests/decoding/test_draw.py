import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.decoding.draw import sample_tokens


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
