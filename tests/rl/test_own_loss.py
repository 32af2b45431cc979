"""The example of a loss of one's own, Dr. GRPO and GSPO, against numpy in float64; rows in any layout."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.examples import my_own_loss
from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.losses import VALUES, TokenBatch
from rmsweb_jax.rl.rollout import MiniBatch
from rmsweb_jax.rl.step import micro_batches, rl_steps, trees_of
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.step import adamw
from tests.rl.conftest import CONFIG
from tests.rl.test_step import MESH, Policy, packed
from tests.virtual_devices import device_environment

ROOT = Path(__file__).parents[2]
LOSSES = {"dr_grpo": my_own_loss.dr_grpo, "gspo": my_own_loss.gspo}
CLIPS = Objective(clip_low=0.1, clip_high=0.15)


class Sequence(NamedTuple):
    """A response in float64: log-probabilities under both policies, and its advantage."""

    new: np.ndarray
    old: np.ndarray
    advantage: float


def reference(name: str, responses: list[Sequence]) -> tuple[float, list[np.ndarray]]:
    """The papers' formulas, response by response: the loss, and its gradient by log-probability."""
    loss, gradients = 0.0, []
    for new, old, advantage in responses:
        if name == "dr_grpo":  # Each token's own ratio; the sum is divided by a constant.
            ratio, size = np.exp(new - old), 2048
        else:  # The geometric mean of the tokens' ratios, at each token.
            ratio, size = np.full(len(new), np.exp((new - old).mean())), len(new)
        plain, bounded = ratio * advantage, np.clip(ratio, 0.9, 1.15) * advantage
        loss -= np.minimum(plain, bounded).sum() / size / len(responses)
        gradients.append(-np.where(plain <= bounded, plain, 0) / size / len(responses))
    return loss, gradients


@pytest.fixture
def responses() -> list[Sequence]:
    """Nine of unlike lengths, some within the clip range and some beyond it on either side."""
    rng = np.random.default_rng(3)
    found = []
    for number, length in enumerate((1, 30, 7, 12, 3, 22, 5, 16, 2)):
        old = -np.exp(rng.normal(-1, 1, length))
        new = old + rng.normal((number % 3 - 1) * 0.15, 0.1, length)
        new, old = (array.astype(np.float32).astype(np.float64) for array in (new, old))
        found.append(Sequence(new, old, float(rng.normal())))
    return found


def laid_out(
    responses: list[Sequence], rows: list[list[int]], width: int = 64
) -> tuple[np.ndarray, TokenBatch, list[tuple[int, slice]]]:
    """Puts responses into rows, one behind the other, with other values in the padding.

    Returns:
      New log-probabilities, the batch, and the place of each response, in the order of `rows`.
    """
    values = {name: np.zeros((len(rows), width), np.float32) for name in VALUES}
    new, sequence = np.full((len(rows), width), -3.0, np.float32), np.zeros((len(rows), width), np.int32)
    places = []
    for row, numbers in enumerate(rows):
        at = 0
        for place, number in enumerate(numbers):
            one = responses[number]
            tokens = row, slice(at, at + len(one.new))
            new[tokens], values["old_log_probs"][tokens] = one.new, one.old
            values["advantages"][tokens], sequence[tokens] = one.advantage, place + 1
            values["pg_weight"][tokens] = 1 / len(one.new) / len(responses)
            at += len(one.new)
            places.append(tokens)
    return new, TokenBatch.of(sequence, values), places


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_numpy_in_any_rows(name, responses):
    expected, gradients = reference(name, responses)
    clipped = np.concatenate(gradients) == 0
    assert clipped.any() and not clipped.all()
    # Micro-batches of rows.
    for cut in ([[[number]] for number in range(9)], [[[4, 0, 1], [2, 3, 8]], [[7, 5], [6]]]):
        total = 0.0
        for rows in cut:
            new, batch, places = laid_out(responses, rows)
            found = jax.value_and_grad(lambda x, batch=batch: LOSSES[name](x, batch, CLIPS), has_aux=True)
            (loss, _), gradient = found(jnp.asarray(new))
            total += float(loss)
            numbers = [number for row in rows for number in row]
            for number, place in zip(numbers, places, strict=True):
                np.testing.assert_allclose(gradient[place], gradients[number], rtol=2e-6, atol=1e-10)
            assert not np.asarray(gradient)[batch.sequence == 0].any()
        # Terms of both signs nearly cancel.
        assert total == pytest.approx(expected, rel=1e-6, abs=3e-7 * np.abs(np.concatenate(gradients)).sum())


def test_advantages_of_dr_grpo_are_not_divided():
    rewards = np.asarray([[0.0, 0.3, 0.3, 1.0], [0.7] * 4])
    fates, advantages = my_own_loss.without_std(rewards)
    assert fates.tolist() == ["accepted", "solved"]
    np.testing.assert_allclose(advantages, [[-0.4, -0.1, -0.1, 0.6], [0] * 4], atol=1e-15)


@pytest.fixture(scope="module")
def groups(make_turn):
    groups = [make_turn(n, accepted=n < 3, length=10 + 3 * n, image=n != 1) for n in range(5)]
    return MiniBatch(tuple(groups[:3]), tuple(groups[3:]))


def policy_of(model: Any, loss: str) -> Policy:
    """A policy that has moved, trained by a loss of one's own."""
    graphdef, params, frozen = split_model(model, "lora")
    rng = np.random.default_rng(4)
    moved = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape, np.float32), params)
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    moved, frozen = (jax.device_put(part, param_shardings(part, MESH)) for part in (moved, frozen))
    objective = CLIPS.model_copy(update={"loss": loss})
    steps = rl_steps(graphdef, init_state(params, optimizer, MESH), optimizer, objective, MESH)
    return Policy(graphdef, moved, frozen, steps, optimizer)


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_of_packed_groups_has_the_loss_of_numpy(model, groups, name):
    """All groups in one row, and cut over rows and micro-batches."""
    policy, trees = policy_of(model, f"docs.examples.my_own_loss:{name}"), trees_of(groups, salvage=True)
    totals = []
    for rows, width in ((1, 512), (4, 48)):
        total, seen = policy.steps.zero(policy.params), []
        for micro in micro_batches(trees, Packer(RowShape(width, rows, images=8, window=8), CONFIG), CONFIG):
            new = policy.log_probs(policy.params, micro.batch)
            old = 0.9 * new - 0.05
            total = policy.add(total, policy.params, micro.batch, old_log_probs=old)
            for span in micro.spans:
                if span.tree < len(groups.accepted):
                    place = span.row, slice(span.start, span.stop)
                    advantage = groups.accepted[span.tree].advantages[span.branch]
                    own, before = (np.asarray(x, np.float64)[place] for x in (new, old))
                    seen.append(Sequence(own, before, float(advantage)))
        assert len(seen) == 24
        expected, _ = reference(name, seen)
        assert float(total.sums.loss) == pytest.approx(expected, rel=1e-5)
        totals.append(total)
    whole, cut = totals
    chex.assert_trees_all_close(cut.sums, whole.sums, rtol=1e-4, atol=1e-7)
    chex.assert_trees_all_close(cut.gradients, whole.gradients, rtol=1e-3, atol=1e-6)
    assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves(whole.gradients))


def weighted(log_probs, batch, objective):
    """A loss with the metric of a weighted mean, whose weights add up to a third."""
    weight = batch.pg_weight / 3
    return jnp.sum(log_probs * weight), {"mean": (jnp.sum(2 * weight), jnp.sum(weight))}


def test_a_pair_of_sums_is_reported_as_their_ratio(model, groups):
    policy = policy_of(model, f"{__name__}:weighted")
    for step, mean in ((groups, 2.0), (MiniBatch((), groups.salvaged), 0.0)):
        total = policy.steps.zero(policy.params)
        for micro in packed(step):
            total = policy.add(total, policy.params, micro)
        _, metrics = policy.steps.update(policy.fresh_state(), total)
        assert float(metrics["mean"]) == pytest.approx(mean, rel=1e-5)


def test_the_weights_of_a_mean_over_tokens_add_up_to_1(groups):
    total, count = 0.0, sum(len(part) for group in groups.accepted for part in group.responses)
    for micro in micro_batches(trees_of(groups, salvage=True), Packer(RowShape(96, 1, 8, 8), CONFIG), CONFIG):
        weight = micro.batch.scored.values["token_mean_weight"]
        np.testing.assert_allclose(weight[weight > 0], 1 / count, rtol=1e-6)
        np.testing.assert_array_equal(weight > 0, micro.batch.scored.values["pg_weight"] > 0)
        total += weight.sum()
    assert total == pytest.approx(1, rel=1e-5)


def test_rows_on_several_devices_give_the_same_update():
    """Two epochs of two steps of a moved policy: on four devices as on one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.rl.own_loss_sharded"],
        cwd=ROOT,
        env=device_environment(4),
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == LOSSES.keys()
    for name, (apart, moved, metrics) in found.items():
        assert apart < 1e-6 and moved > 1e-4 and metrics < 1e-5, (name, found[name])
