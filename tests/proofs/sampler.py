"""Sampling against transformers' `generate` on the same weights: speed and equality. An idle machine."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from experiments.studies.benchmark.random_checkpoint import write_random_checkpoint
from experiments.studies.benchmark.side import others_seconds
from rmsweb_jax.qwen3_vl.backends import choose_attention
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.training.mesh import make_mesh
from tests.proofs.result import Claim, Figures, Proof, main, table
from tests.rl.sampler_checks import Gap, Sameness, log_prob_gap, randomize_adapters
from tests.rl.sampler_sides import MODELS, SAMPLES, Reference, Timed, make_sampler
from tests.rl.sampler_speed import (
    PROMPTS,
    Measured,
    Peaks,
    decode_work,
    machine_peaks,
    make_prompts,
    prefill_gflop,
    small_cache_bytes,
)
from tests.rl.sampler_speed import measure as measure_speed
from tests.rl.sampler_variants import PoolUse, forward_gap, other_batches, pool_use

LENGTHS, SHORT, LONG = (1_024, 4_096), 64, 256
# Limits: times faster, nats apart in float32, tokens compared.
LEAST_RATIO, MOST_APART, LEAST_TOKENS = 3.0, 1e-4, 10_000
# Cores that others may keep busy on a machine that counts as idle.
IDLE = 0.2


def load(folder: Path, dtype: Any = jnp.float32, adapters: bool = False) -> Qwen3VL:
    mesh = make_mesh()
    model = load_model(folder, dtype, mesh=mesh)
    model.attention = choose_attention(model.config.text.head_dim, model.dtype, mesh)
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
            cell = measure_speed(name, model, policy, reference, prompt=length, new=new, repeat=repeat)
            found.cells.append(cell)
            found.small.append(small_cache_bytes(model, prompts, new))
            drawn = cell.ours[0].responses
            print(speed_row(cell), flush=True)
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


def spread(values: Sequence[float], digits: int = 1) -> list[float]:
    """Median, smallest and largest."""
    return [round(float(value), digits) for value in (np.median(values), min(values), max(values))]


def speed_row(cell: Measured) -> dict[str, Any]:
    def rate(runs: Sequence[Any], part: str) -> int:
        return round(cell.tokens / float(np.median([getattr(run, part) for run in runs])))

    return {
        "model": cell.model,
        "prompt": cell.prompt,
        "new": cell.new,
        "ours": rate(cell.ours, "seconds"),
        "theirs": rate(cell.theirs, "seconds"),
        "ratio": spread(cell.ratios("seconds"), 2),
        "prefill_ratio": spread(cell.ratios("prefill")),
        "ours_decoding": rate(cell.ours, "decode"),
        "theirs_decoding": rate(cell.theirs, "decode"),
        "decoding_ratio": spread(cell.ratios("decode")),
        "prompts_per_call": cell.together,
        "other_way": round(cell.slower.seconds / cell.theirs[0].seconds, 2),
        "compiling_seconds": round(cell.compiling),
    }


def bound_rows(cell: Measured, peaks: Peaks) -> Iterable[dict[str, Any]]:
    """Prefill and decoding step of both sides relative to the machine's peaks."""
    # A dynamic cache is copied into a longer one, then read: three moves a step.
    for side, runs, fed, peak, moves in (
        ("ours", cell.ours, PROMPTS * SAMPLES, peaks.ours, 1),
        ("theirs", cell.theirs, cell.together * SAMPLES, peaks.theirs, 3),
    ):
        run = min(runs, key=lambda run: run.decode)
        held = run.cache_bytes * (fed / (PROMPTS * SAMPLES))
        work, seconds = decode_work(cell, fed, held, moves), run.decode / run.steps
        products, reading = work.flops / peak, work.bytes / peaks.bandwidth
        prefill = prefill_gflop(cell, PROMPTS * (1 if side == "ours" else SAMPLES))
        yield {
            "model": cell.model,
            "prompt": cell.prompt,
            "new": cell.new,
            "side": side,
            "prefill_gflop_per_second": round(prefill / run.prefill),
            "prefill_of_peak": round(prefill / run.prefill / peak, 2),
            "step_ms": round(1e3 * seconds, 1),
            "step_gflop": round(work.flops, 2),
            "step_gb": round(work.bytes, 2),
            "gflop_per_second": round(work.flops / seconds),
            "gflop_of_peak": round(products / seconds, 2),
            "gb_per_second": round(work.bytes / seconds, 1),
            "gb_of_peak": round(reading / seconds, 2),
            "longer_at_peak": "bytes" if reading > products else "products",
        }


def measure() -> Figures:
    others, start = others_seconds(), time.perf_counter()
    found = Found()
    with tempfile.TemporaryDirectory() as scratch:
        for name, (config, _) in MODELS.items():
            folder = Path(scratch) / name
            write_random_checkpoint(config(), folder)
            compare(found, name, folder, LENGTHS)
        check(found, Path(scratch) / "tiny")
    peaks = machine_peaks()
    assert found.pools is not None
    refilled, waiting = found.pools
    names = ("slots refilled as they become free", "batches that wait for their longest")
    return {
        "prompts": PROMPTS,
        "samples": SAMPLES,
        "threads": torch.get_num_threads(),
        "models": {name: words for name, (_, words) in MODELS.items()},
        "device": jax.devices()[0].platform,
        "busy_cores": round(max(0.0, others_seconds() - others) / (time.perf_counter() - start), 1),
        "forwards_apart": found.agreement,
        "peak_gflop": [round(peaks.ours), round(peaks.theirs)],
        "peak_gb": round(peaks.bandwidth, 1),
        "speed": [speed_row(cell) for cell in found.cells],
        "bounds": [row for cell in found.cells for row in bound_rows(cell, peaks)],
        "caches": [
            {
                "model": cell.model,
                "prompt": cell.prompt,
                "new": cell.new,
                "shared_mb": round(cell.ours[0].cache_bytes / 1e6, 1),
                "expanded_mb": round(cell.theirs[0].cache_bytes / 1e6, 1),
                "shared_int8_mb": round(small / 1e6, 1),
            }
            for cell, small in zip(found.cells, found.small, strict=True)
        ],
        "pool_tokens": refilled.tokens,
        "pool_ratio": round(float(np.median(np.divide(waiting.seconds, refilled.seconds))), 2),
        "pools": [
            {
                "pool": name,
                "seconds": spread(use.seconds),
                "steps": use.steps,
                "occupancy": round(float(use.occupancy), 2),
            }
            for name, use in zip(names, found.pools, strict=True)
        ],
        "gaps": [
            {"what": name, "tokens": gap.tokens, "largest": gap.largest, "mean": gap.mean, "judged": judged}
            for name, (gap, judged) in found.gaps.items()
        ],
        "same": [
            {"what": name, "tokens": one.tokens, "different": one.unlike, "log_probs_apart": one.largest}
            for name, one in found.same.items()
        ],
    }


def claims(figures: Figures) -> list[Claim]:
    speed, same = figures["speed"], figures["same"]
    fast = sum(cell["ratio"][0] >= LEAST_RATIO for cell in speed)
    ratios = [cell["ratio"][0] for cell in speed]
    gap = max(row["largest"] for row in figures["gaps"] if row["judged"])
    different, apart = sum(row["different"] for row in same), max(row["log_probs_apart"] for row in same)
    most = max(row["tokens"] for row in same)
    busy = figures["busy_cores"]
    idle = "" if busy <= IDLE else f"; other processes kept {busy} cores busy: no result"
    return [
        Claim(
            f"at least {LEAST_RATIO:g} times the tokens a second of `generate`",
            f"{fast} of {len(speed)} settings; {min(ratios):.1f} to {max(ratios):.1f} times{idle}",
            fast == len(speed),
        ),
        Claim(
            f"log-probabilities are the training forward's within {MOST_APART:g} nats (float32)",
            f"at most {gap:.1e} apart",
            gap <= MOST_APART,
        ),
        Claim(
            f"and transformers' forward's within {MOST_APART:g} nats",
            f"at most {figures['forwards_apart']:.1e} apart",
            figures["forwards_apart"] <= MOST_APART,
        ),
        Claim(
            "a response does not depend on what is sampled with it",
            f"{different} other responses in up to {most:,} tokens; log-probabilities {apart:.1e} apart",
            not different and apart <= MOST_APART and most >= LEAST_TOKENS,
        ),
    ]


def tables(figures: Figures) -> str:
    def name(row: dict[str, Any]) -> str:
        return f"{row['model']}, {row['prompt']:,} + {row['new']}"

    def spreads(values: list[float]) -> str:
        return f"{values[0]} ({values[1]} to {values[2]})" if len(values) > 1 else str(values[0])

    first = "model, prompt + new tokens"
    speed = [
        (
            name(row),
            *(f"{row[side]:,}" for side in ("ours", "theirs")),
            *(spreads(row[ratio]) for ratio in ("ratio", "prefill_ratio")),
            *(f"{row[side]:,}" for side in ("ours_decoding", "theirs_decoding")),
            spreads(row["decoding_ratio"]),
            f"{row['prompts_per_call']} ({row['other_way']})",
            row["compiling_seconds"],
        )
        for row in figures["speed"]
    ]
    head = (
        first,
        "tokens/s, ours",
        "theirs",
        "ratio",
        "of prefill",
        "decoding tokens/s, ours",
        "theirs",
        "ratio",
    )
    head += ("prompts a call of theirs (other way's time)", "compiling, s")
    bounds = [
        (
            f"{name(row)}, {row['side']}",
            f"{row['prefill_gflop_per_second']} ({row['prefill_of_peak']:.0%})",
            *(row["step_ms"], row["step_gflop"], row["step_gb"]),
            f"{row['gflop_per_second']} ({row['gflop_of_peak']:.0%})",
            f"{row['gb_per_second']} ({row['gb_of_peak']:.0%})",
            row["longer_at_peak"],
        )
        for row in figures["bounds"]
    ]
    bound_head = (first, "prefill, GFLOP/s (of peak)", "ms a step", "GFLOP a step", "GB a step")
    bound_head += ("GFLOP/s (of peak)", "GB/s (of peak)", "longer at peak")
    sizes = ("shared_mb", "expanded_mb", "shared_int8_mb")
    caches = [(name(row), *(row[size] for size in sizes)) for row in figures["caches"]]
    pools = [
        (row["pool"], spreads(row["seconds"]), row["steps"], f"{row['occupancy']:.0%}")
        for row in figures["pools"]
    ]
    gaps = [
        (
            row["what"],
            f"{row['tokens']:,}",
            *(f"{row[one]:.1e}" for one in ("largest", "mean")),
            "yes" if row["judged"] else "no",
        )
        for row in figures["gaps"]
    ]
    same = [
        (row["what"], f"{row['tokens']:,}", row["different"], f"{row['log_probs_apart']:.1e}")
        for row in figures["same"]
    ]
    return "\n\n".join(
        (
            "## Tokens a second",
            table(head, speed),
            "## What bounds it",
            table(bound_head, bounds),
            "## Bytes of the caches",
            table((first, "shared (ours), MB", "expanded (theirs), MB", "shared in int8, MB"), caches),
            "## Refilled slots",
            table(("pool", "seconds", "steps", "share of slots that made a token"), pools),
            "## Log-probabilities against the training forward",
            table(("what", "tokens", "largest, nats", "mean, nats", "judged"), gaps),
            "## The same tokens in any batch",
            table(
                ("against one call with four slots", "tokens", "other responses", "log-probabilities"), same
            ),
        )
    )


ABOUT = """\
{prompts} prompts of one length, the first with a screenshot on a quarter of it, {samples} responses each,
float32, temperature 1, no early end. Both sides load the same random weights into one process and take
turns. **Ours** is `rmsweb_jax.decoding.sampler.Sampler` with {prompts} slots, compiled. **Theirs** is
`generate(do_sample=True, num_return_sequences={samples}, use_cache=True)` with sdpa attention, the whole
distribution, no end token and {threads} threads; all prompts in one call or one prompt a call, whichever is
faster. It prefills every prompt {samples} times. Models: {models}. Device: {device}; other processes kept
{busy_cores} cores busy.

Ratios are their seconds over ours: the median of the repetitions in turns, with the smallest and largest.
Decoding alone is what would remain of the ratio if their prefill, too, ran once a prompt. Alone, the
machine reaches {peak_gflop} GFLOP/s in large float32 products by XLA and by torch, and reads {peak_gb}
GB/s. A step's products are those of the decoder's matrices, the head and attention; its bytes are the
weights and the caches, ours read once, theirs three times, as `DynamicCache` copies them into longer ones.

Slots are refilled with 16 prompts in 4 slots, responses of geometric lengths, {pool_tokens:,} tokens;
batches that wait for their longest response take {pool_ratio} times as long. Log-probabilities are compared
with `token_log_probs` on each whole sequence; rows of caches in 8 bits and of bfloat16 are not judged.
"""
PROOF = Proof(
    "The sampler against transformers' `generate`",
    ABOUT,
    measure,
    claims,
    tables,
    packages=("jax", "torch", "transformers"),
)

if __name__ == "__main__":
    main(PROOF)
