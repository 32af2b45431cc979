"""The kernel in the Pallas interpreter against XLA's attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.decoding.attention import KeySpan, attend_ring, merge
from rmsweb_jax.decoding.quantized import swap_last_axes, to_cache
from rmsweb_jax.qwen.attention import AttentionConfig

DIM, PLACES, HEADS = 128, 1024, 8
# Start and count: a whole ring, padding on either side, within a stretch, over the ring's end, all of it from
# the middle of a stretch, nothing.
SPANS = [(0, 1024), (300, 500), (0, 1), (130, 20), (1000, 100), (700, 1024), (17, 0)]


def arrays(lead, queries, dtype, seed=0):
    rng = np.random.default_rng(seed)
    q = jnp.asarray(rng.standard_normal((*lead, HEADS, queries, DIM)), jnp.float32) * DIM**-0.5
    keys, values = (
        to_cache(jnp.asarray(3 * rng.standard_normal((*lead, HEADS, PLACES, DIM)), jnp.float32), dtype)
        for _ in range(2)
    )
    return q, keys, values


# float8 takes the way of int8. 512 queries, as of a prompt's chunk, are read in two parts.
@pytest.mark.parametrize(
    ("dtype", "queries"), [("model", 4), ("int8", 4), pytest.param("model", 512, marks=pytest.mark.slow)]
)
def test_the_kernel_equals_xla(dtype, queries):
    span = KeySpan(*jnp.asarray(SPANS, jnp.int32).T)
    q, keys, values = arrays((len(SPANS),), queries, dtype)
    compute = jax.jit(attend_ring, static_argnums=4)
    found = compute(q, keys, values, span, AttentionConfig("pallas", interpret=True))
    expected = compute(q, swap_last_axes(keys), values, span, AttentionConfig("dense"))
    # Sums of values about 3, in another order.
    np.testing.assert_allclose(merge(found)[:-1], merge(expected)[:-1], atol=2e-5)
    log_total = expected.top + jnp.log(expected.total)
    np.testing.assert_allclose(found.top[:-1], log_total[:-1], atol=1e-5)
    # A part without keys has no weight in the merge.
    assert not found.mixed[-1].any() and (found.top[-1] < -1e29).all()
