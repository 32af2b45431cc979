import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.mesh import make_mesh
from rmsweb_jax.optimizers import adamw
from rmsweb_jax.rl.batching import RowShapes, collate_rows, make_rows, micro_batches, slots_of
from rmsweb_jax.rl.losses import Objective, low_var_kl, salvage_ds_objective
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.step import make_steps, scored_log_probs
from rmsweb_jax.sft.step import init_state, split_model

# A large KL weight, so that every term shows in the gradient.
OBJECTIVE = Objective(kl_coef=0.1)


def shapes(widths=(96,), tokens=192) -> RowShapes:
    return RowShapes(widths, shortest_prompt=10, micro_batch_tokens=tokens, devices=1, images=1, window=8)


@pytest.fixture
def batch(make_group):
    groups = [make_group(n, accepted=n < 2, length=10 + 3 * n, image=n != 1) for n in range(4)]
    return MiniBatch(tuple(groups[:2]), tuple(groups[2:]))


@pytest.fixture
def trained(model):
    """A policy that has moved away from its reference, split for training."""
    graphdef, params, frozen = split_model(model, "lora")
    keys = iter(jax.random.split(jax.random.key(5), len(jax.tree.leaves(params))))
    moved = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)
    return graphdef, moved, frozen


def fill_log_probs(steps, params, frozen, micros):
    """Micro-batches with reference log-probabilities, and old ones a little off the current."""
    filled = []
    for micro in micros:
        ref = steps.log_probs(steps.zero(params).gradients, frozen, micro.inputs, micro.targets)
        old = 0.9 * steps.log_probs(params, frozen, micro.inputs, micro.targets) - 0.05
        filled.append(micro.targets.replace(old_log_probs=old, ref_log_probs=ref))
    return filled


def steps_for(graphdef, params, objective=OBJECTIVE):
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    mesh = make_mesh()
    # The state is donated by an update; the fixtures' parameters are not.
    state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
    return make_steps(graphdef, state, optimizer, objective, mesh), state


def total_gradient(trained, micros):
    graphdef, params, frozen = trained
    steps, _ = steps_for(graphdef, params)
    total = steps.zero(params)
    for micro, targets in zip(micros, fill_log_probs(steps, params, frozen, micros), strict=True):
        total = steps.add(total, params, frozen, micro.inputs, targets)
    return total


def assert_same(a, b):
    chex.assert_trees_all_close(a.sums, b.sums, rtol=2e-4, atol=1e-6)
    chex.assert_trees_all_close(a.gradients, b.gradients, rtol=1e-3, atol=2e-6)


def test_a_shared_prompt_row_equals_a_row_for_each_response(trained, batch, config):
    shared = micro_batches(batch, shapes(), config, salvage=True)
    single = shapes((32,), 64)
    rows = []
    slots = slots_of(batch, salvage=True)
    for group, own in zip((*batch.accepted, *batch.salvaged), slots, strict=True):
        for slot in own:
            rows += make_rows([group.prompt.example], [[slot]], 32)
    separate = [collate_rows(rows[at : at + 2], 32, single, config) for at in range(0, len(rows), 2)]
    assert len(shared) == 2 and len(separate) == 17
    assert_same(total_gradient(trained, shared), total_gradient(trained, separate))


@pytest.mark.parametrize(
    "plan", [shapes((96,), 96), shapes((40, 64), 64), shapes((128,), 512), shapes((64,), 192)]
)
def test_any_micro_batching_gives_the_same_gradient(trained, batch, config, plan):
    expected = total_gradient(trained, micro_batches(batch, shapes(), config, salvage=True))
    assert float(jnp.abs(expected.sums.kl_loss)) > 0 and float(expected.sums.salvage_loss) > 0
    assert_same(total_gradient(trained, micro_batches(batch, plan, config, salvage=True)), expected)


def test_fresh_adapters_are_the_reference_to_the_last_bit(model, batch, config):
    graphdef, params, frozen = split_model(model, "lora")
    steps, _ = steps_for(graphdef, params)
    for micro in micro_batches(batch, shapes(), config, salvage=True):
        new = steps.log_probs(params, frozen, micro.inputs, micro.targets)
        ref = steps.log_probs(steps.zero(params).gradients, frozen, micro.inputs, micro.targets)
        off = scored_log_probs_without_adapters(graphdef, params, frozen, micro)
        assert (np.asarray(new) == np.asarray(ref)).all() and not low_var_kl(new, ref).any()
        np.testing.assert_allclose(ref, off, atol=2e-5)


def scored_log_probs_without_adapters(graphdef, params, frozen, micro):
    model = nnx.merge(graphdef, params, frozen)
    hidden = model(micro.inputs, adapters=False)
    hidden = jnp.take_along_axis(hidden, jnp.asarray(micro.targets.index)[..., None], axis=1)
    logits = model.logits(hidden)
    chosen = jnp.take_along_axis(logits, jnp.asarray(micro.targets.tokens)[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def test_first_update_has_ratio_one_to_the_last_bit(trained, batch, config):
    """Old log-probabilities come from the program that computes gradients: no bit differs."""
    graphdef, params, frozen = trained
    steps, state = steps_for(graphdef, params)
    for _ in range(2):
        total = steps.zero(state.params)
        for micro in micro_batches(batch, shapes((40, 96), 96), config, salvage=True):
            old = steps.log_probs(state.params, frozen, micro.inputs, micro.targets)
            targets = micro.targets.replace(old_log_probs=old, ref_log_probs=old)
            total = steps.add(total, state.params, frozen, micro.inputs, targets)
        assert float(total.sums.log_ratio) == 0.0 and float(total.sums.kl_loss) == 0.0
        assert float(total.sums.clipped_lower + total.sums.clipped_upper) == 0
        assert float(total.sums.tokens) > 0
        state, metrics = steps.update(state, total)
        assert float(metrics["ppo_kl"]) == 0.0 and float(metrics["norm/gradient"]) > 0
    # After an update the same old log-probabilities are off-policy.
    new = steps.log_probs(state.params, frozen, micro.inputs, targets)
    assert (np.asarray(new) != np.asarray(old)).any()


def test_reference_does_not_move(trained, batch, config):
    graphdef, params, frozen = trained
    steps, state = steps_for(graphdef, params)
    (micro, *_) = micro_batches(batch, shapes(), config, salvage=True)
    before = np.asarray(
        steps.log_probs(steps.zero(state.params).gradients, frozen, micro.inputs, micro.targets)
    )
    total = steps.add(steps.zero(state.params), state.params, frozen, micro.inputs, micro.targets)
    state, _ = steps.update(state, total)
    after = np.asarray(
        steps.log_probs(steps.zero(state.params).gradients, frozen, micro.inputs, micro.targets)
    )
    assert (before == after).all()


def test_chunked_scoring_is_the_same(trained, batch, config):
    graphdef, params, frozen = trained
    (micro, *_) = micro_batches(batch, shapes(), config, salvage=True)

    def loss(params, max_logits):
        model = nnx.merge(graphdef, params, frozen)
        log_probs = scored_log_probs(model, micro.inputs, micro.targets, max_logits)
        return salvage_ds_objective(log_probs, micro.targets, OBJECTIVE).loss

    whole = jax.value_and_grad(loss)(params, 2**26)
    chunked = jax.value_and_grad(loss)(params, 64 * 7)
    chex.assert_trees_all_close(whole, chunked, rtol=1e-4, atol=1e-6)
