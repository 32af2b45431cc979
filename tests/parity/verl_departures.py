"""Deliberate departures of the training semantics from verl: their size, and the change that removes them.

All in float64. Each departure gives ours, verl's as it is, and verl's (or ours) after the stated change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.gates import salvage_ds
from rmsweb_jax.rl.losses import policy_loss
from tests.parity.verl_cases import (
    PAPER,
    Case,
    make_case,
    metrics,
    objective,
    our_kl,
    our_policy,
    our_salvage,
    weights,
)
from tests.parity.verl_package import Graded, Verl


class Departure(NamedTuple):
    """One departure.

    Attributes:
      name, reason: what differs, and why.
      change: what makes both equal.
      pairs: (ours, verl's) as they are.
      changed: (ours, verl's) after the change.
    """

    name: str
    reason: str
    change: str
    pairs: list[tuple[Any, Any]]
    changed: list[tuple[Any, Any]]


def departures(verl: Verl) -> Iterator[Departure]:
    rng = np.random.default_rng(6)
    case = make_case(rng, (8, 40), 1.0, np.float64)
    yield _fixed_rows(verl, case)
    yield _empty_responses(verl, make_case(rng, (8, 40), 1.0, np.float64, empty=True))
    yield _kl_rows(verl, case)
    yield _salvage(verl, case)
    # Some prompts are mastered, some hopeless, and of some the best response is not good.
    right = rng.random((200, 8)) < rng.uniform(-0.5, 1.5, (200, 1))
    yield _gates(verl, np.where(right, rng.choice([0.3, 0.7, 1.0], (200, 1)), 0.0))
    yield _unanimous(verl)
    yield _unclipped_kl(verl, make_case(rng, (8, 40), 25.0, np.float64))
    yield _whole_step(verl, case)
    yield _at_a_bound(verl)


def flat(graded: Graded) -> np.ndarray:
    """Value and gradient as one vector."""
    return np.concatenate([np.ravel(graded.value), np.ravel(graded.gradient)])


def added(parts: list[Graded], scale: float = 1.0) -> Graded:
    """The sum of losses of micro-batches; their gradients belong to different rows."""
    return Graded(
        np.asarray(scale * sum(part.value for part in parts)),
        scale * np.concatenate([part.gradient for part in parts]),
    )


def _fixed_rows(verl: Verl, case: Case) -> Departure:
    cuts = [case.rows(slice(0, 3)), case.rows(slice(3, 8))]

    def losses(rows: int | None) -> list[Graded]:
        return [verl.policy(p.new, p.old, p.advantages, p.mask, PAPER, rows).loss for p in cuts]

    ours = flat(added([our_policy(part, PAPER, rows=8)[0] for part in cuts]))
    return Departure(
        "A mean is over a fixed number of rows",
        "`agg_loss` divides by the rows of its call: in micro-batches of 3 and 5 rows, each weighted 1/2, a "
        "row weighs by the accident of its micro-batch. Ours divides by the rows of the optimizer step",
        "verl with `global_batch_size` = 8 and the micro-batches added",
        [(ours, flat(added(losses(None), 0.5)))],
        [(ours, flat(added(losses(8))))],
    )


def _empty_responses(verl: Verl, case: Case) -> Departure:
    ours = flat(our_policy(case, PAPER)[0])
    terms = [verl.policy(case.new, case.old, case.advantages, case.mask, PAPER, rows) for rows in (None, 8)]
    return Departure(
        "A response without tokens counts as a row of loss 0",
        "follows from the fixed number; `agg_loss` by itself leaves such rows out of the count",
        "verl with `global_batch_size` = 8",
        [(ours, flat(terms[0].loss))],
        [(ours, flat(terms[1].loss))],
    )


def _kl_rows(verl: Verl, case: Case) -> Departure:
    accepted = slice(0, 5)
    everyone = np.where(np.arange(8)[:, None] < 5, case.advantages, 0.0)
    part = case.rows(accepted)
    ours = added([our_policy(part, PAPER)[0]])
    kl = our_kl(case)
    one_mask = verl.policy(case.new, case.old, everyone, case.mask, PAPER).loss
    own = verl.policy(part.new, part.old, part.advantages, part.mask, PAPER).loss
    return Departure(
        "The KL term has rows of its own",
        "verl's actor takes one mask for both terms: with rejected rows in it the surrogate is diluted by "
        "them (here 3 of 8), without them they have no KL. Ours: surrogate over accepted rows, KL over all "
        "retained ones",
        "`agg_loss` called for each term on its own rows",
        [(ours.value, one_mask.value)],
        [(flat(ours), flat(own)), (flat(kl), flat(verl.mean_kl(case.new, case.ref, case.mask)))],
    )


def _salvage(verl: Verl, case: Case) -> Departure:
    copies = case.rows(np.repeat(np.arange(8), 8))
    theirs = verl.mean_nll(copies.new, copies.mask)
    once = Graded(theirs.value, theirs.gradient.reshape(8, 8, -1).sum(1))
    ours = our_salvage(case)
    return Departure(
        "The salvage anchor",
        "verl has no such term (compared with 0), and a group's 8 samples share one target: one forward a "
        "group replaces 8",
        "`agg_loss` of negative log-probabilities over action spans, every target 8 times",
        [(ours.value, np.zeros(()))],
        [(flat(ours), flat(once))],
    )


def _gates(verl: Verl, rewards: np.ndarray) -> Departure:
    theirs, ours = verl.advantages(rewards.copy()), salvage_ds(rewards)
    std, best = rewards.std(1, ddof=1), rewards.max(1)
    accepted = (std >= 0.10) & (best >= 0.55)
    return Departure(
        "Gates zero the advantages of rejected groups",
        f"k_g = [std >= 0.10] [max >= 0.55] (here {accepted.sum()} of {len(rewards)} groups of 8); verl "
        "filters groups elsewhere, if at all",
        "verl's times k_g",
        [(ours.advantages, theirs)],
        [(ours.advantages, accepted[:, None] * theirs)],
    )


def _unanimous(verl: Verl) -> Departure:
    rewards = np.full((1, 8), 0.7, np.float32)
    theirs, ours = verl.advantages(rewards.copy()), salvage_ds(rewards).advantages
    return Departure(
        "Equal rewards give advantage 0",
        "in the rewards' float32 the mean of eight 0.7 is off by a rounding, which the formula divides by "
        f"1e-6: verl's advantage is {float(theirs[0, 0]):.3f} for every sample. Behind the gate it "
        "is 0 exactly",
        "verl's times k_g",
        [(ours, theirs)],
        [(ours, 0.0 * theirs)],
    )


def _unclipped_kl(verl: Verl, case: Case) -> Departure:
    theirs = verl.policy(case.new, case.old, case.advantages, case.mask, PAPER).metrics["ppo_kl"]
    near = case._replace(new=case.old + np.clip(case.new - case.old, -20, 20))
    return Departure(
        "`ppo_kl` is the plain token mean of old - new",
        "verl takes it after the clip to [-20, 20] that the ratio needs; both are signed",
        "our log-ratios clipped likewise",
        [(our_policy(case, PAPER)[1]["ppo_kl"], theirs)],
        [(our_policy(near, PAPER)[1]["ppo_kl"], theirs)],
    )


def _whole_step(verl: Verl, case: Case) -> Departure:
    accepted, everyone = np.arange(8) < 5, np.ones(8, bool)
    terms = weights(case.mask, accepted, 5), weights(case.mask, everyone, 8), np.zeros(case.mask.shape)
    ours = np.asarray(list(metrics(objective(case, *terms, Objective())[1]).values()))

    def theirs(cuts: list[Case]) -> np.ndarray:
        terms = [verl.policy(p.new, p.old, p.advantages, p.mask, PAPER).metrics for p in cuts]
        return np.asarray([list(term.values()) for term in terms])

    mixed = [case.rows(slice(0, 3)), case.rows(slice(3, 8))]
    own = [case.rows(slice(0, 3)), case.rows(slice(3, 5))]
    tokens = [part.mask.sum() for part in own]
    return Departure(
        "Metrics are of the whole optimizer step, over accepted rows",
        "verl averages the micro-batches' means, unweighted by tokens, over every row of its mask. Its "
        "`pg_clipfrac_lower` is our `pg_clipfrac_dual`: ours of that name is the part of `pg_clipfrac` below "
        "`1 - clip_low`",
        "verl's on accepted rows alone, weighted by tokens",
        [(ours, theirs(mixed).mean(0))],
        [(ours, np.average(theirs(own), axis=0, weights=tokens))],
    )


def _at_a_bound(verl: Verl) -> Departure:
    clips = {"clip_low": 0.5, "clip_high": 1.0, "dual_clip": 4.0}
    new = np.log(np.asarray([[0.5, 2.0]]))
    old, up, mask = np.zeros((1, 2)), np.ones((1, 2)), np.ones((1, 2))

    def ours(new: np.ndarray) -> np.ndarray:
        def loss(new: jax.Array) -> jax.Array:
            return policy_loss(new, jnp.asarray(old), jnp.asarray(up), **clips).loss.sum()

        return np.asarray(jax.grad(loss)(jnp.asarray(new)))

    def theirs(new: np.ndarray) -> np.ndarray:
        return verl.policy(new, old, up, mask, clips).tokens.gradient

    off = new + np.asarray([[1e-9, -1e-9]])
    return Departure(
        "Exactly on a bound of a clip the gradient is another one",
        "there is no derivative: `torch.clamp` takes the inner side's, `jnp.clip` the middle. Not in the "
        "semantics, and of no weight: a ratio would have to be 0.8 or 1.32 to the last bit. Values agree",
        "1e-9 inside the bound",
        [(ours(new), theirs(new))],
        [(ours(off), theirs(off))],
    )
