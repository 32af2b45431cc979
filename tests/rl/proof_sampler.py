"""How fast the sampler is beside transformers' `generate`, and whether its responses are what they should be.

    python -m tests.rl.proof_sampler --output=docs/results/sampler.md

Both sides sample from the same random weights, in turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from flax import nnx

from experiments.random_checkpoint import write_random_checkpoint
from rmsweb_jax.benchmark import host
from rmsweb_jax.mesh import make_mesh
from rmsweb_jax.qwen3_vl.backends import default_attention
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.rl import sampler_report as report
from tests.rl.sampler_checks import Gap, Sameness, log_prob_gap, randomize_adapters
from tests.rl.sampler_sides import MODELS, SAMPLES, Reference, Timed, make_sampler
from tests.rl.sampler_speed import (
    PROMPTS,
    Measured,
    machine_peaks,
    make_prompts,
    measure,
    small_cache_bytes,
)
from tests.rl.sampler_variants import PoolUse, forward_gap, other_batches, pool_use

LENGTHS, SHORT, LONG = (1_024, 4_096), 64, 256
# Limits: times faster, nats apart in float32, tokens compared.
LEAST_RATIO, MOST_APART, LEAST_TOKENS = 3.0, 1e-4, 10_000
# Cores that others may keep busy on a machine that counts as idle.
IDLE = 0.2


def load(folder: Path, dtype: Any = jnp.float32, adapters: bool = False) -> Qwen3VL:
    mesh = make_mesh()
    model = load_model(folder, dtype, mesh=mesh)
    model.attention = default_attention(model.config.text.head_dim, model.dtype, mesh)
    if adapters:
        add_lora(model, LoRAConfig(rank=4, alpha=8.0, targets="attention"), nnx.Rngs(1))
        randomize_adapters(model)
    return model


@dataclasses.dataclass
class Found:
    """All that is measured.

    Attributes:
      cells: of every model, prompt length and number of new tokens.
      small: bytes of their caches in int8.
      gaps: log-probabilities against our training forward, with whether they are judged.
      agreement: largest difference from transformers' forward, of a response a model and prompt length.
      pools: refilled, and in batches that wait.
      same: responses in other company.
    """

    cells: list[Measured] = dataclasses.field(default_factory=list)
    small: list[int] = dataclasses.field(default_factory=list)
    gaps: dict[str, tuple[Gap, bool]] = dataclasses.field(default_factory=dict)
    agreement: float = 0.0
    pools: tuple[PoolUse, PoolUse] | None = None
    same: dict[str, Sameness] = dataclasses.field(default_factory=dict)


def compare(found: Found, name: str, folder: Path, lengths: Sequence[int]) -> None:
    """Both samplers on one model, and ours against both forwards."""
    model, reference = load(folder), Reference(folder)
    policy = Timed(model)
    reference.generate(make_prompts(model, 64)[:1], 2, 1)
    for length in lengths:
        prompts, first = make_prompts(model, length), length == lengths[0]
        drawn, new = [], 0
        for new in (LONG, SHORT) if first else (SHORT,):
            repeat = 3 if first and new == SHORT else 2
            cell = measure(name, model, policy, reference, prompt=length, new=new, repeat=repeat)
            found.cells.append(cell)
            found.small.append(small_cache_bytes(model, prompts, new))
            drawn = cell.ours[0].responses
            print(*report.speed_row(cell), sep=" | ", flush=True)
        # All of the short prompts, of the long ones that with the screenshot.
        some = PROMPTS if first else 1
        shapes = make_sampler(model.config, prompts, PROMPTS).shapes
        gap = log_prob_gap(model, prompts[:some], drawn[:some], shapes, new)
        found.gaps[f"{name}, float32, prompts of {length:,}"] = gap, True
        apart = np.abs(reference.log_probs(prompts[0], drawn[0].tokens[0]) - drawn[0].log_probs[0])
        found.agreement = max(found.agreement, float(apart.max()))
    if name == "thin":
        *pools, same = pool_use(model, policy, lengths[0] // 4, LONG, 2)
        found.pools, found.same["thin, batches that wait for their longest"] = (pools[0], pools[1]), same
        print(*report.pool_rows(found.pools), sep="\n", flush=True)


def check(found: Found, folder: Path) -> None:
    """Adapters, caches, dtypes and other batches, on the tiny model."""
    model = load(folder, adapters=True)
    for name, merge, cache_dtype in (
        ("adapters merged", True, "model"),
        ("adapters beside the weights", False, "model"),
        ("adapters merged, int8 caches", True, "int8"),
        ("adapters merged, float8 caches", True, "float8_e4m3fn"),
    ):
        gap = forward_gap(model, merge=merge, cache_dtype=cache_dtype)
        found.gaps[f"tiny, float32, {name}"] = gap, cache_dtype == "model"
    found.same |= {f"tiny, {name}": same for name, same in other_batches(model).items()}
    half = load(folder, jnp.bfloat16, adapters=True)
    for name, merge in (("merged", True), ("beside the weights", False)):
        found.gaps[f"tiny, bfloat16, adapters {name}"] = forward_gap(half, merge=merge), False
    print(found.gaps, found.same, sep="\n", flush=True)


def text(found: Found, busy: float, command: str) -> str:
    peaks = machine_peaks()
    verdict = "" if busy <= IDLE else "\n**The machine was not idle: take these times for no result.**"
    models = "\n".join(f"- **{name}**: {words}." for name, (_, words) in MODELS.items())
    bounds = [row for cell in found.cells for row in report.bound_rows(cell, peaks)]
    memory = map(report.memory_row, found.cells, found.small)
    gaps = [report.gap_row(name, *gap) for name, gap in found.gaps.items()]
    assert found.pools is not None
    refilled, waiting = found.pools
    longer = np.median(np.divide(waiting.seconds, refilled.seconds))
    lanes, threads = PROMPTS * SAMPLES, torch.get_num_threads()
    return f"""\
# The sampler beside transformers' `generate`

    make proof-sampler

runs `python -m tests.rl.proof_sampler`, here with `{command}`. {PROMPTS} prompts of one length, the first
with a screenshot on a quarter of it, {SAMPLES} responses each, float32, temperature 1, no early end. Both
sides load the same random weights into one process and take turns:

- **ours**: `rmsweb_jax.sampling.Sampler` with {PROMPTS} slots, compiled (the last column tells how long).
- **theirs**: `generate(do_sample=True, num_return_sequences={SAMPLES}, use_cache=True)` with sdpa attention,
  the whole distribution, no end token and {threads} threads; all prompts in one call or one prompt a call,
  whichever is faster. It prefills every prompt {SAMPLES} times.

{models}

Transformers' own forward gives our responses our log-probabilities within {found.agreement:.1e} nats.

{jax.devices()[0].platform}; other processes kept {busy:.1f} cores busy.{verdict}

## Tokens a second

Ratios are their seconds over ours: the median of the repetitions in turns, with the smallest and largest.

{report.table(report.SPEED_HEAD, map(report.speed_row, found.cells))}

Decoding alone is what would remain of the ratio if their prefill, too, ran once a prompt.

## What bounds it

Alone, the machine reaches {peaks.ours:.0f} GFLOP/s in large float32 products by XLA and
{peaks.theirs:.0f} by torch, and reads {peaks.bandwidth:.1f} GB/s. A step's products are those of the
decoder's matrices, the head and attention; its bytes are the weights and the caches of its {lanes} responses
(or {SAMPLES}, one prompt a call), ours read once, theirs three times, as `DynamicCache` copies them into
longer ones. The last column is what would take longer at the machine's peak.

{report.table(report.BOUND_HEAD, bounds)}

## Bytes of the caches

Of all {lanes} responses, from the arrays that the runs held.

{report.table(report.MEMORY_HEAD, memory)}

## Refilled slots

Thin model, {len(refilled.seconds)} repetitions in turns: 16 prompts in 4 slots, responses of geometric
lengths, {refilled.tokens:,} tokens. The batches that wait take **{longer:.2f}** times as
long.

{report.table(report.POOL_HEAD, report.pool_rows(found.pools))}

## Log-probabilities against the training forward

Differences from `token_log_probs` on each whole sequence. On the tiny model prompts of unlike lengths, some
with screenshots, wait for slots, and responses outlive a block of the caches' ring.

{report.table(report.GAP_HEAD, gaps)}

## The same tokens whatever the batch

16 prompts, {SAMPLES} responses each that end at unlike times; on the tiny model prompts of unlike lengths,
every other one with a screenshot.

{report.table(report.SAME_HEAD, report.same_rows(found.same))}

Limits: {LEAST_RATIO:g} times as many tokens a second, {MOST_APART:g} nats in float32, not one other token in
{LEAST_TOKENS:,} or more. Missed: {"; ".join(failures(found)) or "none"}.

jax {jax.__version__}, torch {torch.__version__}, transformers {transformers.__version__}, Python \
{sys.version.split()[0]}.
"""


def failures(found: Found) -> list[str]:
    """What does not hold."""
    slow = [cell for cell in found.cells if np.median(cell.ratios("seconds")) < LEAST_RATIO]
    wrong = [
        f"{cell.model} at {cell.prompt} + {cell.new} is not {LEAST_RATIO:g} times faster" for cell in slow
    ]
    for name, (gap, judged) in found.gaps.items():
        if judged and not gap.largest <= MOST_APART:
            wrong.append(f"{name}: {gap.largest:.1e} nats apart")
    for name, one in found.same.items():
        if one.unlike or not one.largest <= MOST_APART:
            wrong.append(f"{name}: {one.unlike} responses differ, log-probabilities by {one.largest:.1e}")
    if max(one.tokens for one in found.same.values()) < LEAST_TOKENS:
        wrong.append("too few tokens were compared")
    if not found.agreement <= MOST_APART:
        wrong.append(f"the two sides' forwards are {found.agreement:.1e} nats apart")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=LENGTHS)
    args = parser.parse_args()
    others, start = host.others_seconds(), time.perf_counter()
    found = Found()
    with tempfile.TemporaryDirectory() as scratch:
        for name, (config, _) in MODELS.items():
            folder = Path(scratch) / name
            write_random_checkpoint(config(), folder)
            compare(found, name, folder, args.prompts)
        check(found, Path(scratch) / "tiny")
    busy = max(0.0, host.others_seconds() - others) / (time.perf_counter() - start)
    result = text(found, busy, " ".join(sys.argv[1:]))
    args.output.write_text(result)
    print(result, f"{time.perf_counter() - start:.0f} s", sep="\n")
    if wrong := failures(found):
        raise SystemExit(f"error: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
