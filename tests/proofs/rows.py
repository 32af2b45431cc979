"""A group's gradient with its prompt once, against its prompt before every response. A quarter of an hour.

The compiled program of `experiments.train_rl` runs on both layouts. MODEL=8b takes the whole 8B, on a GPU.
"""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import numpy as np

from experiments.studies.benchmark.side import others_seconds
from rmsweb_jax.qwen3_vl.backends import default_attention
from tests.proofs.result import Claim, Figures, Proof, main, table
from tests.rl.row_layouts import (
    MODELS,
    SAMPLES,
    Policy,
    difference,
    make_batch,
    num_places,
    plain_inputs,
    shared_inputs,
)

PROMPTS, RESPONSES = (1_000, 4_000, 12_000), (64, 300, 1_024)
MICRO_BATCH_TOKENS = 20_480
PAIRS = 3
# The cell that has limits, and what they are: tokens and seconds, plain over shared.
JUDGED, LEAST_TOKENS, LEAST_TIME = (12_000, 300), 5.0, 3.0
# Cores that others may keep busy on a machine that counts as idle.
IDLE = 0.2


def measure() -> Figures:
    setting = MODELS[os.environ.get("MODEL", "thin")]()
    others, start = others_seconds(), time.perf_counter()
    policy = Policy(setting)
    cells = [compare(policy, prompt, response) for prompt in PROMPTS for response in RESPONSES]
    device = jax.devices()[0]
    return {
        "model": setting.text,
        "samples": SAMPLES,
        "rank": setting.rank,
        "tolerance": setting.tolerance,
        "rounded_up_to": setting.block or 1,
        "repetitions": PAIRS,
        "device": f"{device.device_kind} ({device.platform})",
        "attention": default_attention(setting.config.text.head_dim, setting.dtype).backend,
        "busy_cores": round(max(0.0, others_seconds() - others) / (time.perf_counter() - start), 1),
        "cells": cells,
    }


def compare(policy: Policy, prompt: int, response: int) -> dict[str, Any]:
    """Compiles both layouts, then times them in turns."""
    batch = make_batch(prompt, response, policy.setting.config.text.vocab_size)
    length = prompt + response
    shared = shared_inputs(policy, batch, prompt, response)
    # A row at a time, and as many as fit the budget and divide the samples.
    fitting = max(count for count in (1, 2, 4, 8) if count == 1 or count * length <= MICRO_BATCH_TOKENS)
    options = {count: plain_inputs(policy, batch, length, response, count) for count in {1, fitting}}
    policy.gradient(shared)
    for inputs in options.values():
        policy.gradient(inputs[:1])
    rows = 1
    if len(options) > 1:
        rows = min(options, key=lambda count: policy.seconds(options[count])[0])
    plain = options[rows]
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(PAIRS):
        (own, ours), (their, theirs) = policy.seconds(shared), policy.seconds(plain)
        seconds[0].append(own)
        seconds[1].append(their)
    apart = difference(ours, theirs)
    own, their = (np.array(repeats) for repeats in seconds)
    cell = {
        "prompt": prompt,
        "response": response,
        "shared_tokens": num_places(shared),
        "eight_rows_tokens": num_places(plain),
        "rows_per_micro_batch": rows,
        "shared_seconds": float(f"{np.median(own):.3g}"),
        "eight_rows_seconds": float(f"{np.median(their):.3g}"),
        "time_ratio": round(float(np.median(their / own)), 2),
        "gradients_apart": apart,
    }
    print(cell, flush=True)
    return cell


def claims(figures: Figures) -> list[Claim]:
    cells = figures["cells"]
    prompt, response = JUDGED
    (judged,) = (cell for cell in cells if (cell["prompt"], cell["response"]) == JUDGED)
    apart = max(cell["gradients_apart"] for cell in cells)
    fewer, faster = judged["eight_rows_tokens"] / judged["shared_tokens"], judged["time_ratio"]
    idle = figures["busy_cores"] <= IDLE or not figures["device"].endswith("(cpu)")
    busy = "" if idle else f"; other processes kept {figures['busy_cores']} cores busy: no result"
    at = f"with a prompt of {prompt:,} and responses of {response:,} tokens"
    return [
        Claim(
            f"{at}, at least {LEAST_TOKENS:g} times fewer tokens", f"{fewer:.2f} times", fewer >= LEAST_TOKENS
        ),
        Claim(
            f"{at}, at least {LEAST_TIME:g} times less time",
            f"{faster:.2f} times{busy}",
            faster >= LEAST_TIME,
        ),
        Claim(
            f"gradients and losses of both layouts agree within {figures['tolerance']:g}",
            f"at most {apart:.1e} apart",
            apart <= figures["tolerance"],
        ),
    ]


def tables(figures: Figures) -> str:
    rows = [
        (
            *(f"{cell[name]:,}" for name in ("prompt", "response", "shared_tokens", "eight_rows_tokens")),
            f"{cell['eight_rows_tokens'] / cell['shared_tokens']:.2f}",
            *(f"{cell[name]:.3g}" for name in ("shared_seconds", "eight_rows_seconds")),
            *(cell["rows_per_micro_batch"], f"{cell['time_ratio']:.2f}", f"{cell['gradients_apart']:.1e}"),
        )
        for cell in figures["cells"]
    ]
    head = ("prompt", "response", "tokens, shared", "tokens, eight rows", "ratio", "seconds, shared")
    return table((*head, "seconds, eight rows", "rows a micro-batch", "ratio", "gradients apart"), rows)


ABOUT = """\
The gradient of one group of {samples} responses is computed by the compiled program of
`experiments.train_rl` (forward, and backward to every adapter, rematerialisation "full"), from the same
tokens in two layouts:

- **shared**: one row, the prompt once and {samples} slots after it, as the update lays a group out.
- **eight rows**: the prompt before every response (`tests/rl/eight_rows.py`), in micro-batches of one row
  or of as many as fit 20,480 tokens, whichever is faster.

Model: {model}; adapters of rank {rank} on the attention projections; {device}, attention `{attention}`. No
images: with one, the vision tower would also run once instead of {samples} times. Prompts and responses are
rounded up to {rounded_up_to} tokens. Seconds are medians of {repetitions} repetitions in turns, compiled
and warm; their ratio is the median of the pairs'. The last column is the largest difference of an adapter's
gradient (relative to the largest of its matrix) or of the loss. Other processes kept {busy_cores} cores
busy.
"""
PROOF = Proof("Prompts shared by a group, or repeated", ABOUT, measure, claims, tables, packages=("jax",))

if __name__ == "__main__":
    main(PROOF)
