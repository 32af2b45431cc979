import dataclasses
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rmsweb_jax.qwen3_vl.inputs import RowLayout
from rmsweb_jax.qwen3_vl.sharding import param_shardings
from rmsweb_jax.rl.batching import Plan, RowShape, RowShapes, collate_rows, make_rows, micro_batches, slots_of
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.losses import Objective, low_var_kl, salvage_ds_objective
from rmsweb_jax.rl.step import Steps, make_steps, on_mesh, scored_log_probs
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.optimizer import adamw

# A large KL weight, so that every term shows in the gradient.
OBJECTIVE = Objective(kl_coef=0.1)
MESH = make_mesh()


def shapes(widths=(96,), tokens=192) -> RowShapes:
    rows = tuple(RowShape(width, width - 10) for width in widths)
    return RowShapes(rows, micro_batch_tokens=tokens, devices=1, images=1, window=8)


class Fixed(RowShapes):
    """Shapes whose micro-batches have one number of rows, however few of them there are."""

    def row_counts(self, shape: RowShape) -> tuple[int, ...]:
        return super().row_counts(shape)[-1:]


class Policy(NamedTuple):
    """A policy that has moved away from its reference, and its programs, compiled once for all tests."""

    graphdef: Any
    params: Any
    frozen: Any
    steps: Steps
    optimizer: Any

    def fresh_state(self):
        # An update donates the state, so each test gets copies.
        return init_state(jax.tree.map(jnp.copy, self.params), self.optimizer, MESH)

    def log_probs(self, params, micro):
        return self.steps.log_probs(params, self.frozen, *on_mesh(micro, MESH))

    def add(self, total, params, micro, **log_probs):
        inputs, targets = on_mesh(micro, MESH)
        return self.steps.add(total, params, self.frozen, inputs, targets.replace(**log_probs))

    def reference(self, micro):
        return self.log_probs(self.steps.zero(self.params).gradients, micro)


@pytest.fixture(scope="module")
def batch(make_group):
    groups = [make_group(n, accepted=n < 2, length=10 + 3 * n, image=n != 1) for n in range(4)]
    return MiniBatch(tuple(groups[:2]), tuple(groups[2:]))


@pytest.fixture(scope="module")
def policy(model):
    graphdef, params, frozen = split_model(model, "lora")
    keys = iter(jax.random.split(jax.random.key(5), len(jax.tree.leaves(params))))
    moved = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    moved, frozen = (jax.device_put(part, param_shardings(part, MESH)) for part in (moved, frozen))
    steps = make_steps(graphdef, init_state(params, optimizer, MESH), optimizer, OBJECTIVE, MESH)
    return Policy(graphdef, moved, frozen, steps, optimizer)


def total_gradient(policy, micros):
    """Against old log-probabilities that are a little off the current ones."""
    total = policy.steps.zero(policy.params)
    for micro in micros:
        old = 0.9 * policy.log_probs(policy.params, micro) - 0.05
        ref = policy.reference(micro)
        total = policy.add(total, policy.params, micro, old_log_probs=old, ref_log_probs=ref)
    return total


def assert_same(a, b):
    chex.assert_trees_all_close(a.sums, b.sums, rtol=2e-4, atol=1e-6)
    chex.assert_trees_all_close(a.gradients, b.gradients, rtol=1e-3, atol=2e-6)


def test_a_shared_prompt_row_equals_a_row_for_each_response(policy, batch, config):
    shared = micro_batches(batch, shapes(), config, salvage=True)
    single = shapes((32,), 64)
    rows = []
    slots = slots_of(batch, salvage=True)
    for group, own in zip((*batch.accepted, *batch.salvaged), slots, strict=True):
        for slot in own:
            rows += make_rows([group.prompt.example], [[slot]], single)
    separate = [
        collate_rows(Plan(single.shapes[0], 2, tuple(rows[at : at + 2])), single, config, range(2))
        for at in range(0, len(rows), 2)
    ]
    assert len(shared) == 2 and len(separate) == 17
    assert_same(total_gradient(policy, shared), total_gradient(policy, separate))


def test_micro_batches_of_any_size_give_the_same_update(policy, make_group, config):
    """1, 2, 4 or 8 rows at once, and as many as a token budget holds: loss and gradients within 1e-6."""
    groups = [make_group(n, accepted=n < 4, length=10 + 3 * n, image=n != 1) for n in range(8)]
    batch = MiniBatch(tuple(groups[:4]), tuple(groups[4:]))
    totals = {}
    for count in (1, 2, 4, 8):
        rows = Fixed(shapes().shapes, micro_batch_tokens=96 * count, devices=1, images=1, window=8)
        micros = micro_batches(batch, rows, config, salvage=True)
        assert {micro.inputs.tokens.shape for micro in micros} == {(count, 96)}
        totals[count] = total_gradient(policy, micros)
    micros = micro_batches(batch, shapes((40, 64), 64), config, salvage=True)
    assert len({micro.inputs.tokens.shape for micro in micros}) > 1
    totals["dynamic"] = total_gradient(policy, micros)
    expected = totals.pop(1)
    assert float(expected.sums.kl_loss) > 0 and float(expected.sums.salvage_loss) > 0
    assert float(optax.global_norm(expected.gradients)) > 0.1
    for total in totals.values():
        chex.assert_trees_all_close(total.sums.loss, expected.sums.loss, rtol=0, atol=1e-6)
        chex.assert_trees_all_close(total.gradients, expected.gradients, rtol=0, atol=1e-6)


def test_slots_at_fixed_places_give_the_same_gradient(policy, batch, config):
    fixed = dataclasses.replace(shapes(), shapes=(RowShape(104, 80, RowLayout(24, 8)),))
    assert_same(
        total_gradient(policy, micro_batches(batch, fixed, config, salvage=True)),
        total_gradient(policy, micro_batches(batch, shapes(), config, salvage=True)),
    )


def test_fresh_adapters_are_the_reference_to_the_last_bit(policy, model, batch, config):
    _, fresh, _ = split_model(model, "lora")
    fresh = jax.device_put(fresh, param_shardings(fresh, MESH))
    for micro in micro_batches(batch, shapes(), config, salvage=True):
        new, ref = policy.log_probs(fresh, micro), policy.reference(micro)
        assert (np.asarray(new) == np.asarray(ref)).all() and not low_var_kl(new, ref).any()
        np.testing.assert_allclose(ref, without_adapters(model, micro.inputs, micro.targets), atol=2e-5)


@nnx.jit
def without_adapters(model, inputs, targets):
    hidden = model(inputs, adapters=False)
    hidden = jnp.take_along_axis(hidden, jnp.asarray(targets.index)[..., None], axis=1)
    log_probs = jax.nn.log_softmax(model.logits(hidden))
    return jnp.take_along_axis(log_probs, jnp.asarray(targets.tokens)[..., None], axis=-1)[..., 0]


def test_first_update_has_ratio_one_to_the_last_bit(policy, batch, config):
    """Old log-probabilities come from the program that computes gradients: no bit differs."""
    state = policy.fresh_state()
    for _ in range(2):
        total = policy.steps.zero(state.params)
        for micro in micro_batches(batch, shapes((40, 64), 64), config, salvage=True):
            old = policy.log_probs(state.params, micro)
            total = policy.add(total, state.params, micro, old_log_probs=old, ref_log_probs=old)
        assert float(total.sums.log_ratio) == 0.0 and float(total.sums.kl_loss) == 0.0
        assert float(total.sums.clipped_lower + total.sums.clipped_upper) == 0
        assert float(total.sums.tokens) > 0
        state, metrics = policy.steps.update(state, total)
        assert float(metrics["ppo_kl"]) == 0.0 and float(metrics["norm/gradient"]) > 0
    # After an update the same old log-probabilities are off-policy.
    assert (np.asarray(policy.log_probs(state.params, micro)) != np.asarray(old)).any()


def test_reference_does_not_move(policy, batch, config):
    state = policy.fresh_state()
    (micro, *_) = micro_batches(batch, shapes(), config, salvage=True)
    before = np.asarray(policy.reference(micro))
    total = policy.add(policy.steps.zero(state.params), state.params, micro)
    policy.steps.update(state, total)
    assert (before == np.asarray(policy.reference(micro))).all()


def test_chunked_scoring_is_the_same(policy, batch, config):
    (micro, *_) = micro_batches(batch, shapes(), config, salvage=True)

    def loss(params, max_logits):
        model = nnx.merge(policy.graphdef, params, policy.frozen)
        log_probs = scored_log_probs(model, micro.inputs, micro.targets, max_logits)
        return salvage_ds_objective(log_probs, micro.targets, OBJECTIVE).loss

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    whole, chunked = gradient(policy.params, 2**26), gradient(policy.params, 64 * 7)
    chex.assert_trees_all_close(whole, chunked, rtol=1e-4, atol=1e-6)
