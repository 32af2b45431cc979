"""The tables of `proof_sampler`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.rl.sampler_checks import Gap, Sameness
from tests.rl.sampler_sides import SAMPLES
from tests.rl.sampler_speed import PROMPTS, Measured, Peaks, decode_work, prefill_gflop
from tests.rl.sampler_variants import PoolUse


def spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def speed_row(cell: Measured) -> list[str]:
    def rate(runs: Sequence[Any], part: str) -> str:
        return f"{cell.tokens / np.median([getattr(run, part) for run in runs]):,.0f}"

    return [
        f"{cell.model}, {cell.prompt:,} + {cell.new}",
        rate(cell.ours, "seconds"),
        rate(cell.theirs, "seconds"),
        f"**{spread(cell.ratios('seconds'))}**",
        spread(cell.ratios("prefill")),
        rate(cell.ours, "decode"),
        rate(cell.theirs, "decode"),
        spread(cell.ratios("decode")),
        f"{cell.together} ({cell.slower.seconds / cell.theirs[0].seconds:.2f})",
        f"{cell.compiling:.0f}",
    ]


SPEED_HEAD = (
    "model, prompt + new tokens",
    "tokens/s, ours",
    "theirs",
    "ratio",
    "of prefill",
    "decoding tokens/s, ours",
    "theirs",
    "ratio",
    "prompts a call of theirs (other way's time)",
    "compiling, s",
)


def bound_rows(cell: Measured, peaks: Peaks) -> list[list[str]]:
    """What prefill and a decoding step of both sides reach of the machine."""
    rows = []
    lanes = cell.together * SAMPLES
    # A dynamic cache is copied into a longer one, then read: three moves a step.
    for side, runs, fed, peak, moves in (
        ("ours", cell.ours, PROMPTS * SAMPLES, peaks.ours, 1),
        ("theirs", cell.theirs, lanes, peaks.theirs, 3),
    ):
        run = min(runs, key=lambda run: run.decode)
        held = run.cache_bytes * (fed / (PROMPTS * SAMPLES))
        work, seconds = decode_work(cell, fed, held, moves), run.decode / run.steps
        products, reading = work.flops / peak, work.bytes / peaks.bandwidth
        prefill = prefill_gflop(cell, PROMPTS * (1 if side == "ours" else SAMPLES))
        rows.append(
            [
                f"{cell.model}, {cell.prompt:,} + {cell.new}, {side}",
                f"{prefill / run.prefill:.0f} ({prefill / run.prefill / peak:.0%})",
                f"{1e3 * seconds:.1f}",
                f"{work.flops:.2f}",
                f"{work.bytes:.2f}",
                f"{work.flops / seconds:.0f} ({products / seconds:.0%})",
                f"{work.bytes / seconds:.1f} ({reading / seconds:.0%})",
                "bytes" if reading > products else "products",
            ]
        )
    return rows


BOUND_HEAD = (
    "model, prompt + new tokens",
    "prefill, GFLOP/s (of peak)",
    "ms a step",
    "GFLOP a step",
    "GB a step",
    "GFLOP/s (of peak)",
    "GB/s (of peak)",
    "longer at peak",
)


def memory_row(cell: Measured, small: int) -> list[str]:
    """Bytes of keys and values, of a pool that keeps them in 8 bits `small`."""
    own, their = cell.ours[0].cache_bytes, cell.theirs[0].cache_bytes
    return [
        f"{cell.model}, {cell.prompt:,} + {cell.new}",
        *(f"{size / 1e6:,.1f}" for size in (own, their, small)),
        f"**{their / own:.1f}**",
        f"{their / small:.1f}",
    ]


MEMORY_HEAD = (
    "model, prompt + new tokens",
    "shared (ours), MB",
    "expanded (theirs), MB",
    "shared in int8, MB",
    "expanded / shared",
    "expanded / int8",
)


GAP_HEAD = ("what", "tokens", "largest, nats", "mean, nats", "judged")


def gap_row(name: str, gap: Gap, judged: bool) -> list[str]:
    return [name, f"{gap.tokens:,}", f"{gap.largest:.1e}", f"{gap.mean:.1e}", "yes" if judged else "told"]


SAME_HEAD = (
    "against one call with four slots",
    "tokens",
    "responses with another token",
    "log-probabilities",
)


def same_rows(found: Mapping[str, Sameness]) -> list[list[str]]:
    return [[name, f"{one.tokens:,}", f"{one.unlike}", f"{one.largest:.1e}"] for name, one in found.items()]


POOL_HEAD = ("pool", "seconds", "steps", "lanes that made a token")


def pool_rows(uses: tuple[PoolUse, PoolUse]) -> list[list[str]]:
    names = ("slots refilled as they fall free", "batches that wait for their longest")
    return [
        [name, spread(use.seconds), f"{use.steps:,}", f"{use.occupancy:.0%}"]
        for name, use in zip(names, uses, strict=True)
    ]
