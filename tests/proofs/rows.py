"""Rows of an update: how full they are, and their time against eight rows. Half an hour after the demo.

The compiled program of `experiments.train_rl` runs on both layouts. MODEL=8b takes the whole 8B, on a GPU.
"""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import numpy as np

from rmsweb_jax.qwen.backends import choose_attention
from tests.proofs.page import Check, demo_run, named, others_seconds, publish, table
from tests.rl.attention_speed import attention_seconds
from tests.rl.row_fill import corpora, demo_corpus, fill, sft_padding
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

SHARDS = (1, 4, 8, 16, 32, 64)
# Row shards, and the least share of useful operations at each.
LEAST_FILL = {1: 0.85, 4: 0.85, 8: 0.85, 16: 0.75}
LEAST_ADVANTAGE = 3.5
# Chips and the tensor axis with which their row shards are filled.
ADVISED = (64, 4)
LEAST_ADVISED = 0.7
SFT_ROWS, SFT_SAMPLES, MOST_SFT_PADDING = 8, 32, 0.03

PROMPTS, RESPONSES = (1_000, 4_000, 12_000), (64, 300, 1_024)
MICRO_BATCH_TOKENS = 20_480
PAIRS = 3
# Cells with a limit: the least time with eight rows over ours.
LEAST_TIME = {(12_000, 1_024): 3.0, (1_000, 1_024): 1.0}
# Cores that others may keep busy on a machine that counts as idle.
IDLE = 0.2


def measure() -> dict[str, Any]:
    known = {
        **corpora(),
        "prompts that the demo mined, with its settings": demo_corpus(demo_run() / "mine/prompts"),
    }
    packed = {name: {str(rows): fill(corpus, rows) for rows in SHARDS} for name, corpus in known.items()}
    first = next(iter(packed))
    setting = MODELS[os.environ.get("MODEL", "thin")]()
    others, start = others_seconds(), time.perf_counter()
    policy = Policy(setting)
    cells = [compare(policy, prompt, response) for prompt in PROMPTS for response in RESPONSES]
    device = jax.devices()[0]
    return {
        "fill": packed[first],
        "corpora": packed,
        "sft_padding": sft_padding(SFT_ROWS, SFT_SAMPLES)["padding"],
        "wall": {f"{cell['prompt']}x{cell['response']}": cell["time_ratio"] for cell in cells},
        "model": setting.text,
        "samples": SAMPLES,
        "rank": setting.rank,
        "tolerance": setting.tolerance,
        "repetitions": PAIRS,
        "device": f"{device.device_kind} ({device.platform})",
        "attention": choose_attention(setting.config.text.head_dim, setting.dtype).backend,
        "attention_seconds": attention_seconds(),
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


def checks(figures: dict[str, Any]) -> list[Check]:
    packed, chips, tensor = figures["fill"], *ADVISED
    found = [
        (
            f"at {rows} row shards at least {least:.0%} of the executed operations are useful",
            f"{packed[str(rows)]['useful']:.1%}",
            packed[str(rows)]["useful"] >= least,
        )
        for rows, least in LEAST_FILL.items()
    ]
    advised = packed[str(chips // tensor)]
    found.append(
        (
            f"on {chips} chips with tensor={tensor} at least {LEAST_ADVISED:.0%}",
            f"{advised['useful']:.1%}",
            advised["useful"] >= LEAST_ADVISED,
        )
    )
    fewest = min(packed[str(rows)]["advantage"] for rows in LEAST_FILL)
    found.append(
        (
            f"eight rows, packed as well, execute at least {LEAST_ADVANTAGE:g} times as many up to 16 shards",
            f"{fewest:.2f} times",
            fewest >= LEAST_ADVANTAGE,
        )
    )
    found.append(
        (
            f"SFT pads at most {MOST_SFT_PADDING:.0%} at {SFT_SAMPLES} samples on {SFT_ROWS} row shards",
            f"{figures['sft_padding']:.1%}",
            figures["sft_padding"] <= MOST_SFT_PADDING,
        )
    )
    idle = figures["busy_cores"] <= IDLE or not figures["device"].endswith("(cpu)")
    busy = "" if idle else f"; other processes kept {figures['busy_cores']} cores busy: no result"
    for (prompt, response), least in LEAST_TIME.items():
        ratio = figures["wall"][f"{prompt}x{response}"]
        found.append(
            (
                f"with a prompt of {prompt:,} and responses of {response:,} tokens eight rows take at least "
                f"{least:g} times the time",
                f"{ratio:.2f} times{busy}",
                ratio >= least,
            )
        )
    apart = max(cell["gradients_apart"] for cell in figures["cells"])
    found.append(
        (
            f"gradients and losses of both layouts agree within {figures['tolerance']:g}",
            f"at most {apart:.1e} apart",
            apart <= figures["tolerance"],
        )
    )
    return found


def tables(figures: dict[str, Any]) -> list[str]:
    return [
        *(
            f"{corpus}:\n\n{table(named(packed, 'row shards'))}"
            for corpus, packed in figures["corpora"].items()
        ),
        f"Time of one group:\n\n{table(figures['cells'])}",
        "Seconds of attention alone, in rows of 20,480 tokens:\n\n"
        + table(named(figures["attention_seconds"])),
    ]


ABOUT = """\
**Baseline:** eight rows, the prompt before every response, by the same packer and the same program; no
positive control. Gradients of both layouts must agree; in the tests [mutants](mutants.md) such as
`first_token_index` fail that.

**Fill.** The packer of `experiments.train_rl --config=configs/rl.py:8b` packs optimizer steps of four
corpora for 1 to 64 row shards (`tests/rl/row_fill.py`). Useful operations are those of a gradient's forward
pass with each prompt once a group; executed are those of all rows with their padding, as long as the
costliest row of a micro-batch. The bound would be reached by rows of equal work without padding, none of
which does less than the longest prompt with its longest response. Eight rows: the same packer on samples that
each have the prompt.

**Time.** The gradient of one group of {samples} responses by the compiled program (forward, and backward to
every adapter, rematerialisation "full"), from the same tokens in two layouts: one row with the prompt once,
and the prompt before every response (`tests/rl/eight_rows.py`), in micro-batches of one row or of as many as
fit 20,480 tokens, whichever is faster. Model: {model}; adapters of rank {rank} on the attention projections;
{device}, attention `{attention}`. No images. Seconds are medians of {repetitions} repetitions in turns,
compiled and warm; their ratio is the median of the pairs'. The last column is the largest difference of an
adapter's gradient (relative to the largest of its matrix) or of the loss. Other processes kept {busy_cores}
cores busy.

**Attention alone.** Forward and backward of one layer, by each back end of the platform: on accelerators with
the 8B's 32 heads and 8 key heads in bfloat16, on a CPU with 4 and 1 in float32 and all lengths divided by 4.
"""

if __name__ == "__main__":
    found = measure()
    publish("rows", "Rows that groups share", ABOUT.format(**found), found, checks(found), *tables(found))
