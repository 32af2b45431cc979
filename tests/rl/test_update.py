import dataclasses
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from rmsweb_jax.data.packing import Packer, RowShape, useful_work
from rmsweb_jax.qwen.flops import Work, forward_flops, training_flops
from rmsweb_jax.rl.rollout import MiniBatch
from rmsweb_jax.rl.step import micro_batches, trees_of
from rmsweb_jax.training.mesh import AXES
from rmsweb_jax.training.performance import PEAKS, Peak
from tests.qwen.sharded_steps import make_turn
from tests.qwen.test_sharded import ROOT, figures, free_port
from tests.rl.update_together import CONFIG, PACKER, Policy, arrays_of, make_policy, update
from tests.virtual_devices import device_environment

MOVING = (
    "time/update",
    "tokens_per_second/update",
    "update/padding",
    "update/useful_flops",
    "skipped_steps",
    "skipped_in_a_row",
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return make_policy(Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1, 1), AXES))


@pytest.fixture(scope="module")
def batches() -> list[MiniBatch]:
    """Three optimizer steps over an accepted and a salvaged group, nearly all with an image."""
    return [MiniBatch((make_turn(n, True),), (make_turn(n + 3, False),)) for n in range(3)]


def drawn_by(batch, version):
    """The same groups, as another version of the policy would have drawn them."""
    parts = (batch.accepted, batch.salvaged)
    return MiniBatch(
        *(tuple(dataclasses.replace(group, version=version) for group in part) for part in parts)
    )


def test_an_iteration_begins_on_policy_and_the_run_on_its_reference(policy, batches):
    """To the last bit: ratio and reference are of the program that takes the gradient."""
    first = policy.update(policy.state(), batches[:1])
    assert first.metrics["ppo_kl"] == 0.0 and first.metrics["kl_ref"] == 0.0
    second = policy.update(first.state, [drawn_by(batches[1], 1)], version=1)
    assert second.metrics["ppo_kl"] == 0.0 and second.metrics["kl_ref"] > 0.0
    for updated in (first, second):
        assert updated.metrics["pg_clipfrac"] == 0.0 and updated.metrics["norm/gradient"] > 0
        assert updated.metrics["optimizer_steps"] == 1 and updated.metrics["skipped_steps"] == 0
        assert not any(response.stale for response in updated.responses)


def test_the_ratio_of_stale_groups_is_to_the_policy_before_the_update(policy, batches):
    accepted = batches[0].accepted[0]
    rng = np.random.default_rng(0)
    sampled = tuple(rng.normal(-1, 0.5, len(part)).astype(np.float32) for part in accepted.responses)
    stale = dataclasses.replace(accepted, log_probs=sampled, version=1)
    fresh = dataclasses.replace(batches[1].accepted[0], version=2)
    updated = policy.update(policy.state(), [MiniBatch((stale, fresh), ())], version=2)
    own, other = ([part for part in updated.responses if part.stale is flag] for flag in (True, False))
    assert len(own) == len(other) == 4
    # What drew them weighs tokens only where training is off policy.
    assert updated.metrics["ppo_kl"] == 0.0 and updated.metrics["importance/mean"] == 1.0


def test_another_epoch_is_relative_to_the_policy_before_the_first(policy, batches):
    once = policy.update(policy.state(), batches[:2])
    twice = policy.update(policy.state(), batches[:2], epochs=2)
    assert once.metrics["optimizer_steps"] == 2 and twice.metrics["optimizer_steps"] == 4
    # The first step has a ratio of 1, those of the second epoch have not.
    assert twice.metrics["ppo_kl"] != once.metrics["ppo_kl"] != 0.0
    for first, second in zip(once.responses, twice.responses, strict=True):
        np.testing.assert_array_equal(first.old, second.old)


def kept(state):
    """What a skipped step does not change: parameters, moments and the count of updates."""
    return state.params, state.opt_state.inner_state


def test_a_step_that_is_not_finite_is_skipped(policy, batches):
    (group,) = batches[1].accepted
    broken = dataclasses.replace(group, advantages=group.advantages * np.nan)
    broken_batch = MiniBatch((broken,), batches[1].salvaged)
    around = policy.update(policy.state(), [batches[0], broken_batch, batches[2]])
    without = policy.update(policy.state(), [batches[0], batches[2]])
    assert around.metrics["skipped_steps"] == around.metrics["skipped_in_a_row"] == 1
    assert without.metrics["skipped_steps"] == without.metrics["skipped_in_a_row"] == 0
    chex.assert_trees_all_equal(kept(around.state), kept(without.state))
    assert around.metrics.keys() == without.metrics.keys()
    for name in around.metrics.keys() - set(MOVING):
        assert around.metrics[name] == without.metrics[name], name

    nothing = policy.update(policy.state(), [broken_batch, broken_batch])
    chex.assert_trees_all_equal(kept(nothing.state), kept(policy.state()))
    assert nothing.metrics.keys() == {*MOVING, "optimizer_steps"}
    assert nothing.metrics["optimizer_steps"] == 0 and nothing.metrics["skipped_steps"] == 2
    # The state carries the count into the next iteration, also after it is restored.
    again = policy.update(nothing.state, [broken_batch, batches[0]])
    assert again.metrics["skipped_steps"] == 1 and again.metrics["skipped_in_a_row"] == 3


def test_useful_operations_are_a_gradient_and_two_forward_passes(policy, batches, monkeypatch):
    state, (batch, *_) = policy.state(), batches
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    assert "mfu/update" not in policy.update(state, [batch]).metrics
    monkeypatch.setitem(PEAKS, "cpu", Peak(1e-3))
    metrics = policy.update(policy.state(), [batch]).metrics
    trees = trees_of(batch, salvage=True)
    work = useful_work([tree.size for tree in trees])
    executed = sum((micro.executed for micro in micro_batches(trees, PACKER, CONFIG)), start=Work(0, 0, 0))

    def flops(work):
        return training_flops(CONFIG, work, count, "none").useful + 2 * forward_flops(CONFIG, work)

    assert metrics["mfu/update"] * metrics["time/update"] * 1e9 == pytest.approx(flops(work))
    assert metrics["tokens_per_second/update"] * metrics["time/update"] == pytest.approx(work.tokens)
    assert metrics["update/padding"] == pytest.approx(1 - work.tokens / executed.tokens)
    assert metrics["update/useful_flops"] == pytest.approx(flops(work) / flops(executed))
    assert executed.tokens % (4 * 64) == 0 and 0 < metrics["update/useful_flops"] < 1


def test_nothing_to_train_on_is_no_step(policy):
    updated = policy.update(policy.state(), [])
    assert updated.responses == () and updated.metrics["skipped_steps"] == 0
    assert updated.metrics["optimizer_steps"] == 0 and updated.metrics["update/padding"] == 0


@pytest.mark.parametrize(("rows", "width"), [(1, 40), (2, 160)])
def test_rows_do_not_change_an_iteration(policy, rows, width):
    """Groups that are cut, or that share rows, on one shard or two: what four rows of 64 tokens give."""
    packer = Packer(RowShape(width, rows, images=4, window=PACKER.shape.window), CONFIG)
    expected, found = update(policy), update(policy, packer)
    chex.assert_trees_all_close(found.state, expected.state, rtol=0, atol=1e-5)
    for name in found.metrics.keys() - set(MOVING):
        assert found.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-5), name
    # In the order of their rows, which is another one.
    scored, known = (
        sorted((part.sampled.size, part.reward, part.old.tolist()) for part in updated.responses)
        for updated in (found, expected)
    )
    assert len(scored) == len(known) == 32
    for one, other in zip(scored, known, strict=True):
        assert one[:2] == other[:2]
        np.testing.assert_allclose(one[2], other[2], atol=1e-5)


@pytest.mark.slow
def test_two_processes_with_eight_devices_update_as_one_device_does(policy, tmp_path):
    arguments = [f"127.0.0.1:{free_port()}", "2"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.rl.update_together", *arguments, str(number), str(tmp_path)],
            cwd=ROOT,
            env=device_environment(4),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    alone = update(policy)
    expected = arrays_of(alone)
    assert len(alone.responses) == 32 and sum(part.stale for part in alone.responses) == 4
    for number, metrics in enumerate(figures(processes)):
        assert metrics["skipped_steps"] == 0
        found = np.load(tmp_path / f"{number}.npz")
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
        for name in metrics.keys() - set(MOVING):
            assert metrics[name] == pytest.approx(alone.metrics[name], abs=1e-5), name
