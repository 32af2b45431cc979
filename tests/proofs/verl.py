"""Losses and advantages compared with verl's functions on the same tensors; verl is installed into build/."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import Distribution
from typing import Any, NamedTuple

import jax
import numpy as np

from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.gates import salvage_ds
from tests.parity.verl_cases import (
    CLIPS,
    PAPER,
    SHAPES,
    SPREADS,
    Case,
    all_cases,
    make_case,
    objective,
    our_kl,
    our_kl_tokens,
    our_policy,
    our_policy_tokens,
    our_salvage,
    weights,
)
from tests.parity.verl_departures import Departure, departures
from tests.parity.verl_package import FOLDER, METRICS, Graded, Verl
from tests.proofs.page import Check, publish, table

TOLERANCE = 1e-6
DTYPES = (np.float64, np.float32)
VALUES, GRADIENTS = "values", "gradients"


class Pair(NamedTuple):
    """Something that both computed, and the size below which a difference counts as absolute."""

    claim: str
    kind: str
    ours: Any
    theirs: Any
    unit: float

    def difference(self) -> float:
        ours, theirs = np.asarray(self.ours, np.float64), np.asarray(self.theirs, np.float64)
        if ours.shape != theirs.shape:
            raise SystemExit(f"error: {self.claim}: shapes {ours.shape} and {theirs.shape}")
        # NaN on either side must not pass for agreement.
        worst = np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), self.unit), initial=0)
        return float(worst) if np.isfinite(worst) else float("inf")


def pairs_of(claim: str, ours: Graded, theirs: Graded, gradient_unit: float = 1.0) -> Iterator[Pair]:
    yield Pair(claim, VALUES, ours.value, theirs.value, 1.0)
    yield Pair(claim, GRADIENTS, ours.gradient, theirs.gradient, gradient_unit)


def compare_tokens(verl: Verl, case: Case) -> Iterator[Pair]:
    """Everything that is computed from one batch of responses."""
    new, old, ref, advantages, mask = case
    token = largest_weight(mask)
    for clips in CLIPS:
        theirs = verl.policy(new, old, advantages, mask, clips)
        yield from pairs_of(
            "`compute_policy_loss_vanilla`, token losses | `policy_loss`",
            our_policy_tokens(case, clips),
            theirs.tokens,
        )
        # Log-ratios beyond 20 are a departure in one metric.
        near = case._replace(new=old + np.clip(new - old, -20, 20))
        loss, metrics = our_policy(case, clips)
        metrics["ppo_kl"] = our_policy(near, clips)[1]["ppo_kl"]
        plain, plain_metrics = verl.plain_policy(new, old, advantages, mask, clips)
        name = "seq-mean-token-mean | `salvage_ds`, `token_weights`"
        yield from pairs_of(f"`compute_policy_loss_vanilla`, {name}", loss, theirs.loss, token)
        yield from pairs_of(f"`compute_policy_loss`, {name}", loss, plain, token)
        for metric in METRICS:
            claim = f"{metric} of both | metrics of `salvage_ds`"
            yield Pair(claim, VALUES, metrics[metric], theirs.metrics[metric], 1.0)
            yield Pair(claim, VALUES, metrics[metric], plain_metrics[metric], 1.0)
    yield from pairs_of('`kl_penalty`, "low_var_kl" | `low_var_kl`', our_kl_tokens(case), verl.kl(new, ref))
    claim = "`agg_loss` of `kl_penalty`, seq-mean-token-mean | `salvage_ds`, `token_weights`"
    yield from pairs_of(claim, our_kl(case), verl.mean_kl(new, ref, mask), token)
    claim = "`agg_loss` of -log p, seq-mean-token-mean | `salvage_loss`, `token_weights`"
    yield from pairs_of(claim, our_salvage(case), verl.mean_nll(new, mask), token)


def largest_weight(mask: np.ndarray) -> float:
    """Weight of a token in the mean over rows."""
    return float(1 / mask.sum(1).min() / len(mask))


def compare_objective(verl: Verl, case: Case) -> Iterator[Pair]:
    """Accepted, rejected and target rows in two uneven micro-batches against verl's terms, each a call."""
    rows = len(case.mask)
    kinds = np.arange(rows) * 3 // rows
    accepted, responses, targets = kinds == 0, kinds < 2, kinds == 2
    terms = [weights(case.mask, counted, int(counted.sum())) for counted in (accepted, responses, targets)]
    chosen = case.rows(accepted)
    pg = verl.policy(chosen.new, chosen.old, chosen.advantages, chosen.mask, PAPER).loss
    kl = verl.mean_kl(case.new[responses], case.ref[responses], case.mask[responses])
    salvage = verl.mean_nll(case.new[targets], case.mask[targets])
    for settings in (Objective(), Objective(kl_coef=1.0, salvage_weight=1.0)):
        parts = [
            objective(case.rows(cut), terms[0][cut], terms[1][cut], terms[2][cut], settings)[0]
            for cut in (slice(0, rows // 4), slice(rows // 4, rows))
        ]
        ours = Graded(
            np.sum([part.value for part in parts]), np.concatenate([part.gradient for part in parts])
        )
        gradient = np.zeros(case.new.shape)
        for factor, mask, term in (
            (1.0, accepted, pg),
            (settings.kl_coef, responses, kl),
            (settings.salvage_weight, targets, salvage),
        ):
            gradient[mask] += factor * term.gradient
        value = pg.value + settings.kl_coef * kl.value + settings.salvage_weight * salvage.value
        claim = "the whole objective of those terms | `salvage_ds`, two micro-batches"
        yield from pairs_of(claim, ours, Graded(value, gradient), float(np.abs(gradient).max()))


def compare_advantages(verl: Verl, dtype: Any) -> Iterator[Pair]:
    rng = np.random.default_rng(7)
    for groups, samples in ((1, 2), (50, 8), (16, 16), (200, 8)):
        levels = rng.choice([0.0, 0.3, 0.7, 1.0], (groups, samples))
        for rewards in (levels, rng.uniform(0, 1, (groups, samples)), rng.normal(0, 5, (groups, samples))):
            # Without its gates: those are a departure.
            gated = salvage_ds(rewards.astype(dtype))
            theirs = verl.advantages(rewards.astype(dtype))
            claim = "`compute_grpo_outcome_advantage` | `gates.salvage_ds`, accepted groups"
            kept = gated.fates == "accepted"
            yield Pair(claim, VALUES, gated.advantages[kept], theirs[kept], 1.0)


def compare(verl: Verl, dtype: Any) -> Iterator[Pair]:
    for case in all_cases(dtype):
        yield from compare_tokens(verl, case)
    rng = np.random.default_rng(8)
    for spread in SPREADS:
        yield from compare_objective(verl, make_case(rng, (24, 80), spread, dtype))
    yield from compare_advantages(verl, dtype)


def agreement(verl: Verl) -> list[dict[str, Any]]:
    """The largest difference of every claim in both dtypes."""
    worst: dict[str, dict[str, Any]] = {}
    for dtype in DTYPES:
        for pair in compare(verl, dtype):
            theirs, _, ours = pair.claim.partition(" | ")
            row = worst.setdefault(pair.claim, {"verl": theirs, "ours": ours, "numbers": 0})
            name = f"{dtype.__name__}_{pair.kind}"
            row["numbers"] += np.size(pair.theirs)
            row[name] = max(row.get(name, 0.0), pair.difference())
    return list(worst.values())


def largest(pairs: list[tuple[Any, Any]]) -> float:
    return max(Pair("departure", VALUES, ours, theirs, 1.0).difference() for ours, theirs in pairs)


def departed(departure: Departure) -> dict[str, Any]:
    return {
        "departure": departure.name,
        "reason": departure.reason,
        "apart": largest(departure.pairs),
        "change": departure.change,
        "apart_then": largest(departure.changed),
    }


def measure() -> dict[str, Any]:
    jax.config.update("jax_enable_x64", True)
    # verl warns of devices that are missing, and that its older function is old.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", FutureWarning)
    verl = Verl()
    (package,) = Distribution.discover(name="verl", path=[str(FOLDER)])
    return {
        "verl": package.version,
        "batches": len(SHAPES) * len(SPREADS),
        "shapes": [list(shape) for shape in SHAPES],
        "spreads": list(SPREADS),
        "clip_settings": len(CLIPS),
        "tolerance": TOLERANCE,
        "agreements": agreement(verl),
        "departures": [departed(departure) for departure in departures(verl)],
    }


def _worst(row: dict[str, Any]) -> float:
    return max(row.get(name, 0.0) for name in COLUMNS)


def checks(figures: dict[str, Any]) -> list[Check]:
    rows, departed = figures["agreements"], figures["departures"]
    worst = max(map(_worst, rows))
    # A departure that makes no difference is none.
    real = sum(row["apart"] > TOLERANCE >= row["apart_then"] for row in departed)
    return [
        (
            f"losses, gradients, metrics and advantages are verl's within {TOLERANCE:g}",
            f"{sum(row['numbers'] for row in rows):,} numbers, at most {worst:.1e} apart",
            worst <= TOLERANCE,
        ),
        (
            "departures from verl are deliberate, and vanish with the change that is named",
            f"{real} of {len(departed)}",
            real == len(departed),
        ),
    ]


def tables(figures: dict[str, Any]) -> list[str]:
    return [
        table(figures["agreements"]),
        "The token weights are always float32, which explains the 1e-8 in the float64 columns.",
        "## Departures",
        "How far both are apart where training semantics differ on purpose (float64), and after the change "
        "that should make them equal. verl gives a group of one response its reward as advantage; here a "
        "group has two responses or more.",
        table(figures["departures"]),
    ]


COLUMNS = ("float64_values", "float64_gradients", "float32_values", "float32_gradients")
ABOUT = """\
**Control, no baseline:** verl's functions are the reference. Each deliberate departure must be farther apart
than the limit, and within it after the named change, which shows that the comparison can fail.

The functions of `verl.trainer.ppo.core_algos`, from the package `verl` {verl} on PyPI, and ours are called
with the same tensors. verl's package and nine packages that its import takes (`tests/parity/verl.txt`, ray
among them, never started) are installed into a folder of their own without their dependencies; nothing of
verl is replaced or copied.

{batches} batches of responses of random lengths (the largest 8 x 2048 and 128 x 48 tokens), with log-ratios
of standard deviation 0, 0.02, 1 and 25, advantages of both signs and 0, {clip_settings} clip settings. A
difference is relative to verl's number, or to 1 where that is smaller; for gradients of a mean over
sequences, 1 is the largest weight of a token in it (of the whole objective: the largest gradient). verl's
token losses are its gradients by its rollout weights.
"""

if __name__ == "__main__":
    found = measure()
    about = ABOUT.format(**found)
    publish("verl", "Losses and advantages compared with verl's", about, found, checks(found), *tables(found))
