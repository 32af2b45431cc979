"""What one group's gradient costs with its prompt once, and with its prompt before every response.

    python -m tests.rl.proof_rows --output=docs/results/rows.md

Runs the compiled program of `experiments.train_rl` on both layouts and checks that they agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from rmsweb_jax.benchmark import host
from rmsweb_jax.qwen3_vl.backends import default_attention
from tests.rl.row_layouts import (
    MODELS,
    SAMPLES,
    Policy,
    Setting,
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


class Cell(NamedTuple):
    """One prompt and response length, and what was measured.

    Attributes:
      shared, plain: tokens of the places that are computed, padding included.
      rows: of a micro-batch of the plain layout, the faster of those tried.
      shared_seconds, plain_seconds: of every repetition, pair by pair.
      difference: between the gradients, the largest of any adapter matrix; and between the losses.
    """

    prompt: int
    response: int
    shared: int
    plain: int
    rows: int
    shared_seconds: list[float]
    plain_seconds: list[float]
    difference: float

    @property
    def tokens_ratio(self) -> float:
        return self.plain / self.shared

    @property
    def time_ratio(self) -> float:
        pairs = zip(self.plain_seconds, self.shared_seconds, strict=True)
        return float(np.median([plain / shared for plain, shared in pairs]))


def measure(policy: Policy, prompt: int, response: int) -> Cell:
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
    cell = Cell(prompt, response, num_places(shared), num_places(plain), rows, *seconds, apart)
    print(row(cell), flush=True)
    return cell


def row(cell: Cell) -> str:
    own, their = (f"{np.median(seconds):.3g}" for seconds in (cell.shared_seconds, cell.plain_seconds))
    cells = f"{cell.prompt:,}", f"{cell.response:,}", f"{cell.shared:,}", f"{cell.plain:,}"
    ratios = f"**{cell.tokens_ratio:.2f}**", own, their, f"{cell.rows}", f"**{cell.time_ratio:.2f}**"
    return f"| {' | '.join((*cells, *ratios, f'{cell.difference:.1e}'))} |"


def report(setting: Setting, cells: Sequence[Cell], busy: float, command: str) -> str:
    device, block = jax.devices()[0], setting.block
    attention = default_attention(setting.config.text.head_dim, setting.dtype).backend
    prompt, response = JUDGED
    verdict = "" if busy <= IDLE else "\n**The machine was not idle: take these times for no result.**"
    padded = f"rounded up to {block} tokens" if block else "not padded"
    return f"""\
# A prompt once, or before every response

    make proof-rows

runs `python -m tests.rl.proof_rows`, here with `{command}`: the gradient of one group of {SAMPLES} responses
by the compiled program of `experiments.train_rl` (forward, and backward to every adapter, rematerialisation
"full"), from the same tokens in two layouts:

- **shared**: one row, the prompt once and {SAMPLES} slots after it, as the update lays a group out.
- **eight rows**: the prompt before every response (`tests/rl/eight_rows.py`), in micro-batches of one row or
  of as many as fit {MICRO_BATCH_TOKENS:,} tokens, whichever is faster.

Model: {setting.text};
adapters of rank {setting.rank} on the attention projections. No images: with one, the vision tower would also
run once instead of {SAMPLES} times. Prompts and responses are {padded}. Seconds are medians of {PAIRS}
repetitions in turns, compiled and warm; their ratio is the median of the pairs'. The last column is the
largest difference of an adapter's gradient (relative to the largest of its matrix) or of the loss.

{device.device_kind} ({device.platform}), attention `{attention}`; other processes kept {busy:.1f} cores \
busy.{verdict}

| prompt | response | tokens, shared | tokens, eight rows | ratio | seconds, shared | seconds, eight rows | \
rows a micro-batch | ratio | gradients apart |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(row(cell) for cell in cells)}

Limits: at a prompt of {prompt:,} and responses of {response:,} tokens at least {LEAST_TOKENS:g} times fewer
tokens and {LEAST_TIME:g} times less time; gradients within {setting.tolerance:g} everywhere.

jax {jax.__version__}, Python {sys.version.split()[0]}.
"""


def failures(cells: Sequence[Cell], setting: Setting) -> list[str]:
    """What does not hold."""
    found = [
        f"gradients at {cell.prompt}/{cell.response} are {cell.difference:.1e} apart"
        for cell in cells
        if not cell.difference <= setting.tolerance
    ]
    for cell in cells:
        if (cell.prompt, cell.response) == JUDGED:
            if cell.tokens_ratio < LEAST_TOKENS:
                found.append(f"only {cell.tokens_ratio:.2f} times fewer tokens")
            if cell.time_ratio < LEAST_TIME:
                found.append(f"only {cell.time_ratio:.2f} times faster")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", choices=MODELS, default="thin")
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS)
    parser.add_argument("--responses", type=int, nargs="+", default=RESPONSES)
    args = parser.parse_args()
    setting = MODELS[args.model]()
    others, start = host.others_seconds(), time.perf_counter()
    policy = Policy(setting)
    cells = [measure(policy, prompt, response) for prompt in args.prompts for response in args.responses]
    busy = max(0.0, host.others_seconds() - others) / (time.perf_counter() - start)
    text = report(setting, cells, busy, " ".join(sys.argv[1:]))
    args.output.write_text(text)
    print(text, f"highest memory {host.peak_bytes() / 2**30:.1f} GiB", sep="\n")
    if found := failures(cells, setting):
        raise SystemExit(f"error: {'; '.join(found)}")


if __name__ == "__main__":
    main()
