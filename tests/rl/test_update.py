import dataclasses
import os
import subprocess
import sys
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from rmsweb_jax.mesh import AXES, make_mesh, param_shardings
from rmsweb_jax.optimizers import adamw
from rmsweb_jax.rl.losses import Objective
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.shapes import RowShape, RowShapes
from rmsweb_jax.rl.step import Steps, make_steps
from rmsweb_jax.rl.update import Updated, update_policy
from rmsweb_jax.sft.step import init_state, split_model
from tests.qwen3_vl.test_sharded import ROOT, figures, free_port
from tests.rl.update_together import arrays_of, update

MESH = make_mesh()
SHAPES = RowShapes((RowShape(96, 64),), micro_batch_tokens=192, devices=1, images=1, window=8)
MOVING = ("time/update", "tokens_per_second/update", "padding", "skipped_steps")


class Policy(NamedTuple):
    """A fresh policy, which is its reference, and its programs, compiled once for all tests."""

    params: Any
    frozen: Any
    steps: Steps
    optimizer: Any
    config: Any

    def fresh_state(self):
        # An update donates the state, so each test gets copies.
        return init_state(jax.tree.map(jnp.copy, self.params), self.optimizer, MESH)

    def update(self, state, batches, version=0) -> Updated:
        return update_policy(
            self.steps,
            state,
            self.frozen,
            batches,
            SHAPES,
            self.config,
            MESH,
            salvage=True,
            version=version,
        )


@pytest.fixture(scope="module")
def policy(model, config):
    graphdef, params, frozen = split_model(model, "lora")
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    params, frozen = (jax.device_put(part, param_shardings(part, MESH)) for part in (params, frozen))
    steps = make_steps(graphdef, init_state(params, optimizer, MESH), optimizer, Objective(), MESH)
    return Policy(params, frozen, steps, optimizer, config)


@pytest.fixture(scope="module")
def batches(make_group):
    """Three optimizer steps over an accepted group with an image, and a salvaged one, every other without."""
    return [
        MiniBatch(
            (make_group(number, length=10 + number),),
            (make_group(number + 3, accepted=False, length=20 - number, image=number != 1),),
        )
        for number in range(3)
    ]


def drawn_by(batch, version):
    """The same groups, as another version of the policy would have drawn them."""
    parts = (batch.accepted, batch.salvaged)
    return MiniBatch(
        *(tuple(dataclasses.replace(group, version=version) for group in part) for part in parts)
    )


def test_an_iteration_begins_on_policy_and_the_run_on_its_reference(policy, batches):
    """To the last bit: ratio and reference are of the program that takes the gradient."""
    first = policy.update(policy.fresh_state(), batches[:1])
    assert first.metrics["ppo_kl"] == 0.0 and first.metrics["kl_ref"] == 0.0
    second = policy.update(first.state, [drawn_by(batches[1], 1)], version=1)
    assert second.metrics["ppo_kl"] == 0.0 and second.metrics["kl_ref"] > 0.0
    for updated in (first, second):
        assert updated.metrics["pg_clipfrac"] == 0.0 and updated.metrics["norm/gradient"] > 0
        assert updated.metrics["optimizer_steps"] == 1 and updated.skipped == (False,)
        assert not any(response.stale for response in updated.responses)


def test_the_ratio_of_stale_groups_is_to_what_drew_them(policy, batches):
    accepted = batches[0].accepted[0]
    rng = np.random.default_rng(0)
    sampled = tuple(rng.normal(-1, 0.5, len(part)).astype(np.float32) for part in accepted.responses)
    stale = dataclasses.replace(accepted, log_probs=sampled, version=1)
    fresh = dataclasses.replace(batches[1].accepted[0], version=2)
    updated = policy.update(policy.fresh_state(), [MiniBatch((stale, fresh), ())], version=2)
    own, other = ([part for part in updated.responses if part.stale is flag] for flag in (True, False))
    assert len(own) == len(other) == 8
    apart = sum(float((part.sampled - part.old).sum()) for part in own)
    tokens = sum(len(part.old) for part in updated.responses)
    assert abs(apart / tokens) > 0.1
    assert updated.metrics["ppo_kl"] == pytest.approx(apart / tokens, rel=1e-5)


def test_a_step_that_is_not_finite_is_skipped(policy, batches):
    (group,) = batches[1].accepted
    broken = dataclasses.replace(group, advantages=group.advantages * np.nan)
    broken_batch = MiniBatch((broken,), batches[1].salvaged)
    around = policy.update(policy.fresh_state(), [batches[0], broken_batch, batches[2]])
    without = policy.update(policy.fresh_state(), [batches[0], batches[2]])
    assert around.skipped == (False, True, False) and around.metrics["skipped_steps"] == 1
    assert without.skipped == (False, False) and without.metrics["skipped_steps"] == 0
    chex.assert_trees_all_equal(around.state, without.state)
    assert around.metrics.keys() == without.metrics.keys()
    for name in around.metrics.keys() - set(MOVING):
        assert around.metrics[name] == without.metrics[name], name

    nothing = policy.update(policy.fresh_state(), [broken_batch, broken_batch])
    assert nothing.skipped == (True, True)
    chex.assert_trees_all_equal(nothing.state, policy.fresh_state())
    assert nothing.metrics.keys() == {*MOVING, "optimizer_steps"}
    assert nothing.metrics["optimizer_steps"] == 0 and nothing.metrics["skipped_steps"] == 2


def test_nothing_to_train_on_is_no_step(policy):
    updated = policy.update(policy.fresh_state(), [])
    assert updated.responses == () and updated.skipped == ()
    assert updated.metrics["optimizer_steps"] == 0 and updated.metrics["padding"] == 0


def test_two_processes_with_eight_devices_update_as_one_device_does(tmp_path):
    arguments = [f"127.0.0.1:{free_port()}", "2"]
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.rl.update_together", *arguments, str(number), str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    alone = update(Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), AXES))
    expected = arrays_of(alone)
    assert len(alone.responses) == 32 and sum(part.stale for part in alone.responses) == 4
    for number, metrics in enumerate(figures(processes)):
        assert metrics.pop("skipped") == [False, False]
        found = np.load(tmp_path / f"{number}.npz")
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        for name in metrics.keys() - set(MOVING):
            assert metrics[name] == pytest.approx(alone.metrics[name], abs=1e-5), name
