import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmsweb_jax.training.step import adamw, warmup_cosine
from tests.references import torch, transformers


@pytest.mark.parametrize(("total", "ratio"), [(100, 0.03), (37, 0.1), (5, 0.0), (1, 0.1)])
def test_schedule_equals_the_reference(total, ratio):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1e-4)
    reference = transformers.get_cosine_schedule_with_warmup(optimizer, math.ceil(ratio * total), total)
    expected = []
    for _ in range(total):
        expected.append(reference.get_last_lr()[0])
        optimizer.step()
        reference.step()
    schedule = warmup_cosine(1e-4, total, ratio)
    np.testing.assert_allclose(
        [float(schedule(step)) for step in range(total)], expected, rtol=1e-5, atol=1e-10
    )


def test_schedule_starts_at_zero_and_ends_near_zero():
    schedule = warmup_cosine(1.0, 200, 0.03)
    assert float(schedule(0)) == 0.0
    assert float(schedule(6)) == 1.0
    assert float(schedule(200)) == pytest.approx(0.0, abs=1e-7)


def test_adamw_equals_torch_with_clipping_and_decay():
    values = np.linspace(-1, 1, 6).astype(np.float32)
    gradients = [values * 3, -values, values + 0.1]
    parameter = torch.nn.Parameter(torch.tensor(values))
    reference = torch.optim.AdamW([parameter], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    params = {"w": jnp.asarray(values)}
    state = optimizer.init(params)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        reference.step()
        updates, state = optimizer.update({"w": jnp.asarray(gradient)}, state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params["w"], parameter.detach().numpy(), atol=2e-6)


def test_gradients_that_are_not_finite_are_never_applied():
    params = {"w": jnp.ones(3), "b": jnp.ones(2)}
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    state = begin = optimizer.init(params)
    for number in range(1, 20):
        bad = {"w": jnp.ones(3), "b": jnp.asarray([1.0, np.inf])}
        updates, state = optimizer.update(bad, state, params)
        assert not any(leaf.any() for leaf in jax.tree.leaves(updates))
        chex.assert_trees_all_equal(state.inner_state, begin.inner_state)
        assert state.notfinite_count == state.total_notfinite == number
    _, state = optimizer.update(params, state, params)
    assert (int(state.notfinite_count), int(state.total_notfinite)) == (0, 19)
