import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.losses import TokenBatch, low_var_kl, policy_loss, salvage_ds, token_weights
from tests.references import torch

PAPER = Objective()
CLIPS = {"clip_low": 0.2, "clip_high": 0.32, "dual_clip": 3.0}


def random_log_probs(seed: int, shape=(6, 40), spread: float = 1.0):
    rng = np.random.default_rng(seed)
    old = rng.normal(-1, 0.5, shape).astype(np.float32)
    return old, (old + rng.normal(0, spread, shape)).astype(np.float32), rng


def torch_objective(log_probs, old, ref, advantages, mask, accepted, targets, span):
    """The definition, sequence by sequence: verl's formulas in their own words."""
    pg, kl, salvage = [], [], []
    for row in range(len(log_probs)):
        lp, m = log_probs[row], mask[row]
        ratio = (lp - old[row]).clamp(-20, 20).exp()
        a = advantages[row]
        surrogate = torch.minimum(ratio * a, ratio.clamp(0.8, 1.32) * a)
        if a < 0:
            surrogate = torch.maximum(surrogate, 3.0 * a)
        x = (ref[row] - lp).clamp(-20, 20)
        k3 = (x.exp() - x - 1).clamp(-10, 10)
        if targets[row]:
            salvage.append(-(lp * span[row]).sum() / span[row].sum())
            continue
        kl.append((k3 * m).sum() / m.sum())
        if accepted[row]:
            pg.append(-(surrogate * m).sum() / m.sum())
    pg, kl, salvage = (sum(part) / len(part) for part in (pg, kl, salvage))
    return pg + 0.10 * salvage + 1e-3 * kl


@pytest.fixture
def problem():
    """Three accepted responses, two of a salvaged group and its target, of unlike lengths."""
    old, new, rng = random_log_probs(0)
    ref = (old + rng.normal(0, 0.3, old.shape)).astype(np.float32)
    lengths = [40, 17, 5, 30, 1, 22]
    mask = np.arange(40) < np.asarray(lengths)[:, None]
    accepted = np.asarray([1, 1, 1, 0, 0, 0], bool)
    targets = np.asarray([0, 0, 0, 0, 0, 1], bool)
    span = mask & (np.arange(40) >= 9)
    advantages = np.asarray([1.5, -0.4, -2.0, 0.0, 0.0, 0.0], np.float32)
    return old, new, ref, mask, accepted, targets, span, advantages


def token_batch(problem) -> TokenBatch:
    old, _, ref, mask, accepted, targets, span, advantages = problem
    none = np.zeros(40, np.float32)

    def weights(rows, masks):
        return np.stack([token_weights(masks[i], rows.sum()) if rows[i] else none for i in range(len(rows))])

    values = {
        "advantages": np.broadcast_to(advantages[:, None], old.shape),
        "pg_weight": weights(accepted, mask),
        "kl_weight": weights(~targets, mask),
        "salvage_weight": weights(targets, span),
        "token_mean_weight": np.zeros_like(old),
        "replay_weight": np.zeros_like(old),
        "old_log_probs": old,
        "ref_log_probs": ref,
        "behaviour_log_probs": np.zeros_like(old),
    }
    return TokenBatch.of(mask.astype(np.int32), values)


def test_objective_and_gradient_match_torch(problem):
    old, new, ref, mask, accepted, targets, span, advantages = problem
    log_probs = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    tensors = [torch.tensor(value, dtype=torch.float64) for value in (old, ref, advantages, mask)]
    expected = torch_objective(log_probs, *tensors, accepted, targets, torch.tensor(span))
    expected.backward()
    batch = token_batch(problem)
    loss, gradient = jax.value_and_grad(lambda lp: salvage_ds(lp, batch, PAPER)[0])(jnp.asarray(new))
    assert float(loss) == pytest.approx(expected.item(), rel=2e-5)
    np.testing.assert_allclose(gradient, log_probs.grad.numpy(), rtol=1e-4, atol=1e-7)


def test_parts_add_up_whatever_the_cut(problem):
    new, batch = problem[1], token_batch(problem)

    def part(rows):
        cut = jax.tree.map(lambda x: x[rows], batch)
        return salvage_ds(jnp.asarray(new[rows]), cut, PAPER)

    loss, metrics = part(np.arange(6))
    for cuts in ([[0], [1], [2], [3], [4], [5]], [[5, 0], [4, 1, 2, 3]], [[3, 2, 1], [0, 4, 5]]):
        total = jax.tree.map(lambda *x: sum(x), *[part(np.asarray(rows)) for rows in cuts])
        assert float(total[0]) == pytest.approx(float(loss), rel=1e-5)
        for name, value in metrics.items():
            np.testing.assert_allclose(total[1][name], value, rtol=1e-5, err_msg=name)


def test_clipping_is_asymmetric_and_dual():
    ratios = np.asarray([0.5, 0.79, 0.81, 1.0, 1.31, 1.33, 2.9, 3.1, 10.0], np.float32)
    zero = jnp.zeros(len(ratios))
    up = policy_loss(jnp.log(ratios), zero, zero + 2.0, **CLIPS)
    np.testing.assert_allclose(up.loss, -2 * np.minimum(ratios, 1.32), rtol=1e-6)
    assert up.clipped_upper.tolist() == (ratios > 1.32).tolist()
    assert not up.clipped_lower.any() and not up.clipped_dual.any()
    down = policy_loss(jnp.log(ratios), zero, zero - 2.0, **CLIPS)
    np.testing.assert_allclose(down.loss, 2 * np.clip(ratios, 0.8, 3.0), rtol=1e-6)
    assert down.clipped_lower.tolist() == (ratios < 0.8).tolist()
    assert down.clipped_dual.tolist() == (ratios > 3.0).tolist()
    assert not down.clipped_upper.any()


def test_gradient_vanishes_exactly_where_clipping_decided():
    ratios = np.asarray([0.5, 1.0, 1.31, 1.33, 3.1], np.float32)

    def gradient(advantage):
        total = lambda lp: policy_loss(lp, jnp.zeros(5), jnp.full(5, advantage), **CLIPS).loss.sum()  # noqa: E731
        return np.asarray(jax.grad(total)(jnp.log(ratios)))

    assert (gradient(1.0) != 0).tolist() == [True, True, True, False, False]
    assert (gradient(-1.0) != 0).tolist() == [False, True, True, True, False]


def test_extreme_log_ratios_stay_finite():
    old = jnp.asarray([-200.0, -0.1])
    new = jnp.asarray([-0.1, -200.0])
    for advantage in (1.0, -1.0):
        loss = lambda lp, a=advantage: policy_loss(lp, old, jnp.full(2, a), **CLIPS).loss.sum()  # noqa: E731
        value, gradient = jax.value_and_grad(loss)(new)
        assert np.isfinite(value) and np.isfinite(gradient).all()
    kl = low_var_kl(new, old)
    assert np.isfinite(kl).all() and float(kl[1]) == 10.0 and float(kl[0]) == 10.0


def test_kl_is_zero_only_on_agreement():
    _, new, _ = random_log_probs(1)
    assert not low_var_kl(jnp.asarray(new), jnp.asarray(new)).any()
    assert (low_var_kl(jnp.asarray(new), jnp.asarray(new) + 0.1) > 0).all()


def test_metrics_read_accepted_tokens_only(problem):
    old, new, _, mask, accepted, *_ = problem
    _, metrics = salvage_ds(jnp.asarray(new), token_batch(problem), PAPER)
    chosen = mask & accepted[:, None]
    ratio, advantages = np.exp(new - old), problem[-1][:, None]
    clipped = -advantages * np.clip(ratio, 0.8, 1.32) > -advantages * ratio
    tokens = chosen.sum()
    np.testing.assert_allclose(metrics["ppo_kl"], ((old - new)[chosen].sum(), tokens), rtol=1e-4)
    assert metrics["pg_clipfrac"] == ((clipped & chosen).sum(), tokens)
    assert metrics["pg_clipfrac_dual"] == (((ratio > 3) & (advantages < 0) & chosen).sum(), tokens)


def test_tokens_of_earlier_policies_are_weighed():
    """The decoupled weight against numpy, and its gradient: none through the weight."""
    rng = np.random.default_rng(3)
    shape = (3, 7)
    new, old, behaviour, advantages = (rng.normal(-1, 0.7, shape).astype(np.float32) for _ in range(4))
    weight = rng.uniform(0, 1, shape).astype(np.float32)
    zero = np.zeros(shape, np.float32)
    values = {"advantages": advantages, "pg_weight": weight, "old_log_probs": old}
    values |= {"behaviour_log_probs": behaviour, "ref_log_probs": zero, "token_mean_weight": zero}
    values |= {"kl_weight": zero, "salvage_weight": zero, "replay_weight": zero}
    sequence = np.ones(shape, np.int32)
    batch = TokenBatch.of(sequence, values, off_policy=True)
    objective = Objective(kl_coef=0.0)

    def loss(log_probs):
        return salvage_ds(log_probs, batch, objective)[0]

    ratio = np.exp(new.astype(np.float64) - old)
    plain, clipped = -advantages * ratio, -advantages * np.clip(ratio, 0.8, 1.32)
    pg = np.maximum(plain, clipped)
    dual = (advantages < 0) & (pg > -3.0 * advantages)
    pg = np.where(dual, -3.0 * advantages, pg)
    importance = np.minimum(np.exp(old.astype(np.float64) - behaviour), 2.0)
    assert (importance == 2.0).any() and (importance < 1).any()
    value, gradient = jax.value_and_grad(loss)(new)
    np.testing.assert_allclose(value, (weight * importance * pg).sum(), rtol=1e-5)
    moves = (plain >= clipped) & ~dual
    np.testing.assert_allclose(gradient, np.where(moves, weight * importance * plain, 0), atol=1e-6)
    same = TokenBatch.of(sequence, values | {"behaviour_log_probs": old}, off_policy=True)
    on_policy, metrics = salvage_ds(new, TokenBatch.of(sequence, values), objective)
    assert on_policy == salvage_ds(new, same, objective)[0]
    tokens = (weight > 0).sum()
    assert metrics["importance/mean"] == (tokens, tokens) and metrics["importance/capped"] == (0, tokens)
