"""Measurements of a comparison as JSON and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.studies.benchmark.config import BenchmarkConfig
from experiments.studies.benchmark.measure import OURS, Timings, log_prob_gap
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work, causal_pairs, forward_flops, training_flops
from rmsweb_jax.qwen3_vl.inputs import Grid
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.training.performance import peak_flops

# Cores that other processes may keep busy on an idle machine.
_IDLE = 0.1


def useful_flops(
    config: BenchmarkConfig, architecture: Qwen3VLConfig, grid: Grid, adapters: int
) -> dict[str, int]:
    """FLOPs of each program without recomputation."""
    patches = grid[0] * grid[1] * grid[2]
    work = Work(
        tokens=config.samples * config.length,
        pairs=config.samples * causal_pairs(config.length),
        scored=config.samples * config.response,
        patches=config.samples * patches,
        patch_pairs=config.samples * patches**2,
    )
    return {
        "forward": forward_flops(architecture, work),
        "train": training_flops(architecture, work, adapters, config.remat).useful,
    }


def peak_rate(config: BenchmarkConfig, device: str) -> float | None:
    """Peak FLOP/s of the device; None if unknown."""
    if config.peak_tflops:
        return config.peak_tflops * 1e12
    return peak_flops(device) if config.dtype == "bfloat16" else None


def summary(
    config: BenchmarkConfig, measured: dict[str, dict[str, Timings]], flops: dict[str, int], device: str
) -> dict[str, Any]:
    """Program -> rates of each side and the ratio between them (above 1: ours is faster)."""
    peak = peak_rate(config, device)
    out = {}
    for program, sides in measured.items():
        out[program] = {
            "useful_flops": flops[program],
            "sides": {name: _rates(config, side, flops[program], peak) for name, side in sides.items()},
        }
        others = [name for name in sides if name != OURS]
        if others:
            ours, other = sides[OURS], sides[others[0]]
            pairs = [theirs / mine for mine, theirs in zip(ours.seconds, other.seconds, strict=True)]
            out[program]["ratio"] = _spread(pairs)
            out[program]["log_prob_gap"] = log_prob_gap(ours.first, other.first)
    return out


def _rates(config: BenchmarkConfig, side: Timings, flops: int, peak: float | None) -> dict[str, Any]:
    seconds = statistics.median(side.seconds)
    return {
        "seconds": _spread(side.seconds),
        "steps": list(side.seconds),
        # In cores.
        "other_load": sum(side.others) / sum(side.seconds),
        "first_step_seconds": side.first_seconds,
        "tokens_per_second": config.samples * config.length / seconds,
        "gflops_per_second": flops / seconds / 1e9,
        "mfu": None if peak is None else flops / seconds / peak,
        "peak_bytes": side.peak_bytes,
        "loss": [side.first.loss, side.second.loss],
        "gradient_norm": [side.first.gradient_norm, side.second.gradient_norm],
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def table(programs: dict[str, Any]) -> str:
    """Rows of each program: its sides, then their ratio."""
    lines = [
        "| program | side | seconds a step | tokens/s | GFLOP/s | MFU | peak memory | first step | loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for program, result in programs.items():
        for name, side in result["sides"].items():
            mfu = "-" if side["mfu"] is None else f"{side['mfu']:.1%}"
            lines.append(
                f"| {program} | {name} | {_cell(side['seconds'], 3)} | {side['tokens_per_second']:,.0f} "
                f"| {side['gflops_per_second']:,.0f} | {mfu} | {side['peak_bytes'] / 2**30:.2f} GiB "
                f"| {side['first_step_seconds']:.1f} s | {side['loss'][0]:.4f} |"
            )
        if "ratio" in result:
            lines.append(f"| {program} | **speed ratio** | **{_cell(result['ratio'], 2)}** | | | | | | |")
    return "\n".join(lines)


def _cell(spread: dict[str, float], digits: int) -> str:
    median, low, high = (f"{spread[key]:.{digits}f}" for key in ("median", "min", "max"))
    return f"{median} ({low} to {high})"


def section(report: Mapping[str, Any]) -> str:
    """Settings, machine and table of one comparison, from its JSON alone."""
    values, machine, programs = report["config"], report["machine"], report["programs"]
    config = BenchmarkConfig(**{**values, "lora": LoRAConfig(**values["lora"])})
    architecture = config.architecture()
    sides = "; ".join(
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in about.items())
        for name, about in machine["sides"].items()
    )
    verdict = "" if is_idle(report) else "**The machine was not idle: these ratios are not results.** "
    return (
        f"Size {config.size} with {architecture.text.num_hidden_layers} decoder layers and "
        f"{architecture.vision.depth} vision blocks, {config.dtype}, remat {config.remat}; {config.samples} "
        f"samples of {config.length:,} tokens with an image of {config.max_pixels:,} pixels and "
        f"{config.response:,} scored tokens, {config.packed} in a row of ours; adapters of rank "
        f"{config.lora.rank}; {config.steps} timed steps per side, in turns; {machine['threads']} threads, "
        f"and up to {other_load(report):.1f} cores busy with other processes. {verdict}{sides}.\n\n"
        f"{table(programs)}"
    )


def other_load(report: Mapping[str, Any]) -> float:
    """Cores that other processes kept busy during the busiest measurement."""
    sides = [side for result in report["programs"].values() for side in result["sides"].values()]
    return max(side["other_load"] for side in sides)


def is_idle(report: Mapping[str, Any]) -> bool:
    # On a CPU torch waits for its slowest thread at every product and XLA does not: contention favours ours.
    return other_load(report) < _IDLE or report["config"]["device"] != "cpu"
