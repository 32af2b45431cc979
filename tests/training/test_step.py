"""The programs of a training step, of a loss with one parameter."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Steps, TrainState, adamw, make_steps

OPTIMIZER = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)


@struct.dataclass
class Sums:
    loss: jax.Array
    rows: jax.Array


def make_state(optimizer: optax.GradientTransformation = OPTIMIZER) -> TrainState:
    params = {"w": jnp.full(3, 0.5)}
    here = jax.sharding.NamedSharding(make_mesh(), jax.sharding.PartitionSpec())
    return jax.device_put(TrainState(params, optimizer.init(params)), here)


@pytest.fixture(scope="module", params=[True, False], ids=["one program", "two programs"])
def steps(request: pytest.FixtureRequest) -> Steps:
    def loss(params: Any, frozen: Any, batch: Any, key: Any) -> Any:
        log_probs = jax.nn.log_sigmoid(batch["x"] * params["w"] + frozen)
        # `offset` changes the loss, and not its gradient.
        value = batch["offset"] - log_probs.sum()
        return value, (Sums(value, jnp.asarray(len(log_probs), jnp.float32)), log_probs)

    zero = Sums(jnp.zeros(()), jnp.zeros(()))
    one = request.param
    return make_steps(
        loss, zero, lambda sums: vars(sums), make_state(), OPTIMIZER, make_mesh(), one_program=one
    )


def make_batch(offset: float = 0.0, scale: float = 1.0) -> dict[str, Any]:
    return {"x": scale * jnp.linspace(-1, 1, 6).reshape(2, 3), "offset": jnp.asarray(offset)}


def test_micro_batches_add_up(steps):
    state = make_state()
    log_probs = steps.log_probs(state.params, 0.1, make_batch())
    total = steps.zero(state.params)
    for offset in (0.0, 2.0):
        total = steps.add(total, state.params, 0.1, make_batch(offset))
    np.testing.assert_allclose(total.sums.loss, 2 - 2 * log_probs.sum(), rtol=1e-6)
    expected = -2 * (make_batch()["x"] * (1 - jnp.exp(log_probs))).sum(0)
    np.testing.assert_allclose(total.gradients["w"], expected, rtol=1e-5)
    after, metrics = steps.update(state, total)
    assert float(metrics["rows"]) == 4 and float(metrics["norm/update"]) > 0
    assert (np.asarray(after.params["w"]) != 0.5).all()


@pytest.mark.parametrize(("offset", "scale"), [(np.nan, 1.0), (np.inf, 1.0), (0.0, np.nan), (0.0, 1e30)])
def test_a_loss_gradient_or_norm_that_is_not_finite_changes_nothing(steps, offset, scale):
    state, batch = make_state(), make_batch(offset, scale)
    total = steps.add(steps.zero(state.params), state.params, 0.0, batch)
    assert np.isfinite(total.gradients["w"]).all() == (not np.isnan(scale))
    state, metrics = steps.update(state, total)
    assert int(metrics["skipped_in_a_row"]) == int(metrics["skipped_steps"]) == 1
    assert float(metrics["norm/update"]) == 0
    before = make_state()
    chex.assert_trees_all_equal(state.params, before.params)
    chex.assert_trees_all_equal(state.opt_state.inner_state, before.opt_state.inner_state)
    state, metrics = steps.update(state, steps.add(steps.zero(state.params), state.params, 0.0, make_batch()))
    assert int(metrics["skipped_in_a_row"]) == 0 and int(metrics["skipped_steps"]) == 1


def test_a_checkpoint_of_another_optimizer_is_one_clear_line(tmp_path):
    """Checkpoints of earlier versions lack the counts of skipped steps."""
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(optax.adamw(1e-2)), {})
        with pytest.raises(UserError, match="does not fit the run"):
            checkpoints.restore(1, make_state())
