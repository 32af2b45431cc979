import dataclasses
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Batch, on_mesh
from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.losses import KL_BOUND, TokenBatch, low_var_kl, salvage_ds
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.rl.step import micro_batches, rl_steps, scored_log_probs, trees_of
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Steps, adamw
from tests.rl.conftest import CONFIG

# A large KL weight, so that every term shows in the gradient.
OBJECTIVE = Objective(kl_coef=0.1, replay_weight=0.5, replay_kl=0.3)
MESH = make_mesh()


def packed(batch: MiniBatch) -> list[Batch]:
    """The micro-batches of a step."""
    packer = Packer(RowShape(64, 2, images=2, window=8), CONFIG)
    return [micro.batch for micro in micro_batches(trees_of(batch, salvage=True), packer, CONFIG)]


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
        return self.steps.log_probs(params, self.frozen, on_mesh(micro, MESH))

    def add(self, total, params, micro, **log_probs):
        on_devices = on_mesh(micro, MESH)
        values = on_devices.scored.values | log_probs
        scored = dataclasses.replace(on_devices.scored, values=values)
        return self.steps.add(total, params, self.frozen, dataclasses.replace(on_devices, scored=scored))

    def reference(self, micro):
        return self.log_probs(self.steps.zero(self.params).gradients, micro)


@pytest.fixture(scope="module")
def batch(make_turn):
    groups = [make_turn(n, accepted=n < 2, length=10 + 3 * n, image=n != 1) for n in range(4)]
    return MiniBatch(tuple(groups[:2]), tuple(groups[2:]), (replayed(make_turn, 9),))


def replayed(make_turn, number: int) -> Turn:
    return Turn.of_target(make_turn(number, length=8, targets=3 + number % 4).prompt)


@pytest.fixture(scope="module")
def policy(model):
    graphdef, params, frozen = split_model(model, "lora")
    keys = iter(jax.random.split(jax.random.key(5), len(jax.tree.leaves(params))))
    moved = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    moved, frozen = (jax.device_put(part, param_shardings(part, MESH)) for part in (moved, frozen))
    steps = rl_steps(graphdef, init_state(params, optimizer, MESH), optimizer, OBJECTIVE, MESH)
    return Policy(graphdef, moved, frozen, steps, optimizer)


def test_fresh_adapters_are_the_reference_to_the_last_bit(policy, model, batch):
    _, fresh, _ = split_model(model, "lora")
    fresh = jax.device_put(fresh, param_shardings(fresh, MESH))
    for micro in packed(batch):
        new, ref = policy.log_probs(fresh, micro), policy.reference(micro)
        assert (np.asarray(new) == np.asarray(ref)).all() and not low_var_kl(new, ref).any()
        np.testing.assert_allclose(ref, without_adapters(model, micro.inputs, micro.scored), atol=2e-5)


@nnx.jit
def without_adapters(model, inputs, scored):
    hidden = model(inputs, adapters=False)
    hidden = jnp.take_along_axis(hidden, jnp.asarray(scored.index)[..., None], axis=1)
    log_probs = jax.nn.log_softmax(model.logits(hidden))
    return jnp.take_along_axis(log_probs, jnp.asarray(scored.tokens)[..., None], axis=-1)[..., 0]


def test_first_update_has_ratio_one_to_the_last_bit(policy, batch):
    """Old log-probabilities come from the program that computes gradients: no bit differs."""
    state = policy.fresh_state()
    for _ in range(2):
        total = policy.steps.zero(state.params)
        for micro in packed(batch):
            old = policy.log_probs(state.params, micro)
            total = policy.add(total, state.params, micro, old_log_probs=old, ref_log_probs=old)
        sums = jax.device_get(total.sums.metrics)
        (log_ratio, tokens), (clipped, _) = sums["ppo_kl"], sums["pg_clipfrac"]
        assert log_ratio == 0.0 and sums["kl_ref"] == 0.0 and clipped == 0 and tokens > 0
        state, metrics = policy.steps.update(state, total)
        assert float(metrics["ppo_kl"]) == 0.0 and float(metrics["norm/gradient"]) > 0
    # After an update the same old log-probabilities are off-policy.
    assert (np.asarray(policy.log_probs(state.params, micro)) != np.asarray(old)).any()


def test_replayed_replies_are_held_whole_and_each_weighs_the_same(policy, make_turn):
    turns = [replayed(make_turn, number) for number in range(5, 9)]
    total, means, apart = policy.steps.zero(policy.params), [], []
    for micro in packed(MiniBatch((), (), tuple(turns))):
        new, ref = policy.log_probs(policy.params, micro), policy.reference(micro)
        total = policy.add(total, policy.params, micro, old_log_probs=new, ref_log_probs=ref)
        for row, branches in enumerate(micro.scored.branch):
            for branch in set(branches.tolist()) - {0}:
                logs, x = (np.asarray(one[row], np.float64)[branches == branch] for one in (new, new - ref))
                means.append(-logs.mean())
                apart.append(
                    np.where(x > 0, np.minimum(np.exp(x) - x - 1, KL_BOUND), np.exp(x) - x - 1).mean()
                )
    assert len(means) == 4 and total.sums.metrics["pg_loss"] == total.sums.metrics["kl_ref"] == 0
    np.testing.assert_allclose(total.sums.metrics["replay/loss"], np.mean(means), rtol=1e-5)
    np.testing.assert_allclose(total.sums.metrics["replay/kl"], np.mean(apart), rtol=1e-4)
    np.testing.assert_allclose(total.sums.loss, 0.5 * np.mean(means) + 0.3 * np.mean(apart), rtol=1e-5)


def test_reference_does_not_move(policy, batch):
    state = policy.fresh_state()
    (micro, *_) = packed(batch)
    before = np.asarray(policy.reference(micro))
    total = policy.add(policy.steps.zero(state.params), state.params, micro)
    policy.steps.update(state, total)
    assert (before == np.asarray(policy.reference(micro))).all()


@pytest.mark.parametrize("max_logits", [2**26, 64 * 7])
def test_drawn_tokens_have_the_samplers_temperature_and_those_of_targets_1(policy, batch, max_logits):
    batch = dataclasses.replace(batch, accepted=(), salvaged=batch.salvaged[:1])  # One micro-batch.
    (micro, *_) = packed(batch)
    scored = micro.scored
    targets = [scored.values[name] > 0 for name in ("salvage_weight", "replay_weight")]
    anchored = targets[0] | targets[1]
    assert all(one.any() for one in targets) and (scored.values["kl_weight"] > 0).any()
    model = nnx.merge(policy.graphdef, policy.params, policy.frozen)
    hidden = jnp.take_along_axis(model(micro.inputs), jnp.asarray(scored.index)[..., None], axis=1)
    logits = model.head()(hidden) / np.where(anchored, 1.0, 0.6)[..., None]
    tokens = jnp.asarray(scored.tokens)[..., None]
    expected = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens, axis=-1)[..., 0]
    used = sum(scored.values[name] for name in ("pg_weight", "kl_weight")) + anchored > 0
    found = scored_log_probs(model, micro, max_logits, temperature=0.6)
    np.testing.assert_allclose(np.asarray(found)[used], np.asarray(expected)[used], atol=1e-5)


def test_chunked_scoring_is_the_same(policy, batch):
    (micro, *_) = packed(batch)

    def loss(params, max_logits):
        model = nnx.merge(policy.graphdef, params, policy.frozen)
        log_probs = scored_log_probs(model, micro, max_logits)
        return salvage_ds(log_probs, TokenBatch.of(micro.scored.branch, micro.scored.values), OBJECTIVE)[0]

    gradient = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    whole, chunked = gradient(policy.params, 2**26), gradient(policy.params, 64 * 7)
    chex.assert_trees_all_close(whole, chunked, rtol=1e-4, atol=1e-6)
