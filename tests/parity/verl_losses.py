"""Proof that losses and advantages are verl's own, but for the departures that it names.

    python -m tests.parity.verl_losses --output=docs/results/verl.md

Calls the functions of the `verl` package from PyPI beside ours on the same random tensors.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from rmsweb_jax.rl.advantages import gated_advantages
from rmsweb_jax.rl.losses import Objective
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
from tests.parity.verl_departures import GATES, Departure, departures
from tests.parity.verl_package import FOLDER, METRICS, Graded, Verl

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
        name = "seq-mean-token-mean | `salvage_ds_objective`, `token_weights`"
        yield from pairs_of(f"`compute_policy_loss_vanilla`, {name}", loss, theirs.loss, token)
        yield from pairs_of(f"`compute_policy_loss`, {name}", loss, plain, token)
        for metric in METRICS:
            claim = f"{metric} of both | `ObjectiveSums`"
            yield Pair(claim, VALUES, metrics[metric], theirs.metrics[metric], 1.0)
            yield Pair(claim, VALUES, metrics[metric], plain_metrics[metric], 1.0)
    yield from pairs_of('`kl_penalty`, "low_var_kl" | `low_var_kl`', our_kl_tokens(case), verl.kl(new, ref))
    claim = "`agg_loss` of `kl_penalty`, seq-mean-token-mean | `salvage_ds_objective`, `token_weights`"
    yield from pairs_of(claim, our_kl(case), verl.mean_kl(new, ref, mask), token)
    claim = "`agg_loss` of -log p, seq-mean-token-mean | `salvage_loss`, `token_weights`"
    yield from pairs_of(claim, our_salvage(case), verl.mean_nll(new, mask), token)


def largest_weight(mask: np.ndarray) -> float:
    """Of a token in the mean over rows."""
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
        claim = "the whole objective of those terms | `salvage_ds_objective`, two micro-batches"
        yield from pairs_of(claim, ours, Graded(value, gradient), float(np.abs(gradient).max()))


def compare_advantages(verl: Verl, dtype: Any) -> Iterator[Pair]:
    rng = np.random.default_rng(7)
    for groups, samples in ((1, 2), (50, 8), (16, 16), (200, 8)):
        levels = rng.choice([0.0, 0.3, 0.7, 1.0], (groups, samples))
        for rewards in (levels, rng.uniform(0, 1, (groups, samples)), rng.normal(0, 5, (groups, samples))):
            # Without its gates: those are a departure.
            gated = gated_advantages(rewards.astype(dtype), **GATES)
            theirs = verl.advantages(rewards.astype(dtype))
            claim = "`compute_grpo_outcome_advantage` | `gated_advantages`, accepted groups"
            kept = gated.accepted
            yield Pair(claim, VALUES, gated.advantages[kept], theirs[kept], 1.0)


def compare(verl: Verl, dtype: Any) -> Iterator[Pair]:
    for case in all_cases(dtype):
        yield from compare_tokens(verl, case)
    rng = np.random.default_rng(8)
    for spread in SPREADS:
        yield from compare_objective(verl, make_case(rng, (24, 80), spread, dtype))
    yield from compare_advantages(verl, dtype)


def agreement(verl: Verl) -> tuple[list[str], bool]:
    """Rows of the table: the largest difference of every claim in both dtypes."""
    worst: dict[str, dict[tuple[str, str], float]] = {}
    numbers: dict[str, int] = {}
    for dtype in DTYPES:
        for pair in compare(verl, dtype):
            own, key = worst.setdefault(pair.claim, {}), (dtype.__name__, pair.kind)
            own[key] = max(own.get(key, 0.0), pair.difference())
            numbers[pair.claim] = numbers.get(pair.claim, 0) + np.size(pair.theirs)
    lines, holds = [], True
    for claim, found in worst.items():
        cells = [
            f"{found[dtype.__name__, kind]:.1e}" if (dtype.__name__, kind) in found else "-"
            for dtype in DTYPES
            for kind in (VALUES, GRADIENTS)
        ]
        fine = max(found.values()) <= TOLERANCE
        holds &= fine
        lines.append(f"| {claim} | {numbers[claim]:,} | {' | '.join(cells)} | {'yes' if fine else 'NO'} |")
    return lines, holds


def largest(pairs: list[tuple[Any, Any]]) -> float:
    return max(Pair("departure", VALUES, ours, theirs, 1.0).difference() for ours, theirs in pairs)


def departed(departure: Departure) -> tuple[str, bool]:
    """A row of the table; a departure that makes no difference is none."""
    before, after = largest(departure.pairs), largest(departure.changed)
    fine = before > TOLERANCE >= after
    cells = departure.name, departure.reason, f"{before:.1e}", departure.change, f"{after:.1e}"
    return f"| {' | '.join(cells)} | {'yes' if fine else 'NO'} |", fine


def report(version: str, agreements: list[str], departures: list[str]) -> str:
    shapes = ", ".join(f"{rows} x {length}" for rows, length in SHAPES)
    spreads = ", ".join(f"{spread:g}" for spread in SPREADS)
    return f"""\
# Losses and advantages beside verl's own

    make proof-verl

runs `python -m tests.parity.verl_losses`: the functions of `verl.trainer.ppo.core_algos`, from the package
`verl` {version} on PyPI, and ours on the same tensors. verl's package and nine packages that its import
takes (`tests/parity/verl.txt`, ray among them, never started) are installed into a folder of their own
without their dependencies; nothing of verl is replaced or copied. torch is the environment's, on a CPU.

{len(SHAPES) * len(SPREADS)} batches of responses of random lengths (up to {shapes}),
with log-ratios of standard deviation {spreads}, advantages of both signs and 0, {len(CLIPS)} clip
settings. A difference is relative to verl's number, or to 1 where that is smaller; for gradients of a mean
over sequences, 1 is the largest weight of a token in it (of the whole objective: the largest gradient). The
limit is {TOLERANCE:g}. verl's token losses are its gradients by its rollout weights.

| verl | ours | numbers | values, float64 | gradients | values, float32 | gradients | holds |
|---|---|---|---|---|---|---|---|
{chr(10).join(agreements)}

The token weights are float32 always, which is the 1e-8 in the float64 columns.

## Departures

Where the training semantics differ on purpose: how far both are apart as they are (float64; above the limit,
or it would be no departure), and after the change that should make them equal.

| departure | what and why | apart | change | apart then | holds |
|---|---|---|---|---|---|
{chr(10).join(departures)}

verl gives a group of one response its reward as advantage; here a group has two responses or more.

verl {version}, torch {torch.__version__}, jax {jax.__version__}, numpy {np.__version__}, \
Python {sys.version.split()[0]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    jax.config.update("jax_enable_x64", True)
    # verl tells of devices that it misses, and that its older function is old.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore", FutureWarning)
    verl = Verl()
    (package,) = Distribution.discover(name="verl", path=[str(FOLDER)])
    lines, holds = agreement(verl)
    rows = [departed(departure) for departure in departures(verl)]
    text = report(package.version, lines, [row for row, _ in rows])
    print(text)
    output.write_text(text)
    if not (holds and all(fine for _, fine in rows)):
        raise SystemExit("error: not every line holds")


if __name__ == "__main__":
    main()
