"""Decoding: lanes, tokens a second against transformers and vLLM, and equality. An idle machine, 30 minutes.

vLLM is installed into build/, not into the environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
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
from flax import nnx

from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Responses, Sampling
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.config import LoRAConfig
from tests.decoding.checks import Gap, Sameness, log_prob_gap, randomize_adapters, sameness
from tests.decoding.drawing import generate, requests
from tests.decoding.lane_use import RUNAWAYS, simulate
from tests.decoding.sides import (
    MODELS,
    PROMPTS,
    SAMPLES,
    Reference,
    Run,
    Timed,
    make_prompts,
    make_sizes,
    special_tokens,
    unlike_prompts,
)
from tests.decoding.vllm_side import VllmSide
from tests.proofs.page import ROOT, Check, named, others_seconds, publish, table
from tests.random_checkpoint import write_random_checkpoint
from tests.serve.servers import install_vllm
from tests.virtual_devices import device_environment

CELLS = ((1_024, 64), (1_024, 256), (4_096, 64))
REPEATS = 3
# Its kernels for CPUs have no heads as small as those of `tiny`.
IN_VLLM = ("thin",)
# Row shards, and lanes of each, as many as keep the asynchronous loop busy with batches of 64 prompts.
SHARDS, LANES = (1, 8, 16, 64), 8
# Limits: share of lanes, steps over those of ideal lanes, times faster, nats apart in float32, tokens.
LEAST_REAL, LEAST_SIMULATED, MOST_STEPS = 0.8, 0.75, 1.2
LEAST_RATIO, MOST_APART, LEAST_TOKENS = 4.0, 1e-4, 10_000
# Cores that others may keep busy on a machine that counts as idle.
IDLE = 0.2


def load(folder: Path, dtype: Any = jnp.float32, adapters: bool = False) -> Qwen3VL:
    model = load_model(folder, dtype)
    if adapters:
        add_lora(model, LoRAConfig(rank=4, alpha=8.0, targets="attention"), nnx.Rngs(1))
        randomize_adapters(model)
    return model


def spread(values: Sequence[float] | np.ndarray, digits: int = 2) -> list[float]:
    """Median, smallest and largest."""
    return [round(float(value), digits) for value in (np.median(values), min(values), max(values))]


@dataclasses.dataclass
class Cell:
    """Times of all sides for one model, prompt length and number of new tokens, in turns.

    Attributes:
      together: prompts a call of `generate`, the faster of all and one.
      vllm: seconds.
    """

    model: str
    prompt: int
    new: int
    together: int
    ours: list[Run]
    theirs: list[Run]
    vllm: list[float]

    def row(self) -> dict[str, Any]:
        tokens = PROMPTS * SAMPLES * self.new
        sides = {
            "ours": [run.seconds for run in self.ours],
            "transformers": [run.seconds for run in self.theirs],
            "vllm": self.vllm,
        }
        rates = {
            name: round(tokens / float(np.median(seconds))) if seconds else None
            for name, seconds in sides.items()
        }
        ours = np.asarray(sides["ours"])
        return {
            "model": self.model,
            "prompt": self.prompt,
            "new": self.new,
            **rates,
            "ratio": spread(np.asarray(sides["transformers"]) / ours),
            "ratio_vllm": spread(np.asarray(self.vllm) / ours) if self.vllm else None,
            "ratio_prefill": spread(
                [b.prefill / a.prefill for a, b in zip(self.ours, self.theirs, strict=True)]
            ),
            "ratio_decode": spread(
                [b.decode / a.decode for a, b in zip(self.ours, self.theirs, strict=True)]
            ),
            "prompts_per_call": self.together,
        }


def time_sides(
    name: str, model: Qwen3VL, reference: Reference, vllm: VllmSide | None, prompt: int, new: int
) -> tuple[Cell, list[Responses]]:
    """Times all sides in turns, on other prompts each time, so that no cache of prefixes helps."""
    rounds = [make_prompts(model.config, prompt, 100 * number) for number in range(REPEATS)]
    engine = Timed(
        model,
        make_sizes(rounds[0], new, PROMPTS * SAMPLES),
        eos=-1,
        banned=special_tokens(model.config),
    )
    engine.warm_up()
    warm = make_prompts(model.config, prompt, 900)
    engine.run(warm, 4)
    if vllm:
        vllm.run(warm, 4)
    ways = {count: reference.generate(rounds[0], new, count) for count in (PROMPTS, 1)}
    together = min(ways, key=lambda count: ways[count].seconds)
    cell = Cell(name, prompt, new, together, [], [], [])
    for prompts in rounds:
        cell.ours.append(engine.run(prompts, new))
        cell.theirs.append(reference.generate(prompts, new, together))
        if vllm:
            cell.vllm.append(vllm.run(prompts, new))
    print(cell.row(), flush=True)
    return cell, cell.ours[0].responses


@dataclasses.dataclass
class Found:
    """All that is measured.

    Attributes:
      gaps: log-probabilities against our training forward, with whether they are judged.
      agreement: largest difference from transformers' forward, of a response a model and prompt length.
      others_cpu: CPU seconds of vLLM's processes.
      same: responses in other company.
    """

    cells: list[Cell] = dataclasses.field(default_factory=list)
    gaps: dict[str, tuple[Gap, bool]] = dataclasses.field(default_factory=dict)
    agreement: float = 0.0
    others_cpu: float = 0.0
    same: dict[str, Sameness] = dataclasses.field(default_factory=dict)


def compare(found: Found, name: str, folder: Path) -> None:
    """All sides on one model, and our log-probabilities against both forwards."""
    model, reference = load(folder), Reference(folder)
    with contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(VllmSide(model.config, folder, SAMPLES, eager=eager))
            for eager in (True, False)
            if name in IN_VLLM
        ]
        some = make_prompts(model.config, CELLS[0][0], 800)
        seconds = [min(side.run(some, CELLS[0][1]) for _ in range(2)) for side in sides]
        vllm = sides[int(np.argmin(seconds))] if sides else None
        for length, new in CELLS:
            cell, drawn = time_sides(name, model, reference, vllm, length, new)
            found.cells.append(cell)
            # All of the short prompts, of the long ones that with the screenshot.
            prompts = make_prompts(model.config, length)[: PROMPTS if length == CELLS[0][0] else 1]
            sizes = make_sizes(make_prompts(model.config, length), new, PROMPTS * SAMPLES)
            gap = log_prob_gap(model, prompts, drawn[: len(prompts)], sizes)
            found.gaps[f"{name}, float32, {length:,} + {new} tokens"] = gap, True
            scored = reference.log_probs(prompts[0], drawn[0].tokens[0])
            found.agreement = max(found.agreement, float(np.abs(scored - drawn[0].log_probs[0]).max()))
        found.others_cpu += sum(side.cpu_seconds() for side in sides)


def check(found: Found, folder: Path) -> None:
    """Caches, dtypes and company, on the tiny model with adapters."""
    model = load(folder, adapters=True)
    for cache_dtype in ("model", "int8", "float8_e4m3fn"):
        found.gaps[f"tiny with adapters, float32, caches in {cache_dtype}"] = (
            forward_gap(model, cache_dtype),
            cache_dtype == "model",
        )
    half = load(folder, jnp.bfloat16, adapters=True)
    found.gaps["tiny with adapters, bfloat16"] = forward_gap(half, "model"), False
    found.same |= {f"tiny, {name}": same for name, same in other_company(model).items()}


def forward_gap(model: Qwen3VL, cache_dtype: str) -> Gap:
    """Log-probabilities against the training forward's: more prompts than lanes, more tokens than a block."""
    prompts = unlike_prompts(model.config, 6)
    sizes = make_sizes(prompts, 160, 16)
    engine = Engine.for_policy(
        model, sizes, eos=1, banned=special_tokens(model.config), cache_dtype=cache_dtype
    )
    drawn = generate(engine, requests(engine, prompts, Sampling(SAMPLES, 160)))
    return log_prob_gap(model, prompts, drawn, sizes)


def other_company(model: Qwen3VL) -> dict[str, Sameness]:
    """The responses to 16 prompts, drawn in other company, against those of one call with 32 lanes."""
    prompts = unlike_prompts(model.config, 16)
    # A prompt's responses end at unlike times: one word of 250 ends them.
    banned = (*special_tokens(model.config), *range(250, min(special_tokens(model.config))))
    seeds = list(range(len(prompts)))

    def draw(numbers: Sequence[int], lanes: int = 32, other: Sequence[int] = ()) -> list[Responses]:
        engine = Engine.for_policy(model, make_sizes(prompts, 144, lanes), eos=1, banned=banned)
        asked = requests(
            engine,
            [prompts[number] for number in numbers],
            Sampling(SAMPLES, 144),
            [seeds[number] + 1000 * (number in other) for number in numbers],
            list(numbers),
        )
        return generate(engine, asked)

    drawn, even = draw(seeds), seeds[::2]
    neighbours = draw(seeds, other=seeds[1::2])
    found = {
        "the same call again": draw(seeds),
        "in reverse": draw(seeds[::-1])[::-1],
        "one prompt a call": [draw([number])[0] for number in seeds],
        "16 lanes": draw(seeds, 16),
        "64 lanes": draw(seeds, 64),
    }
    made = {name: sameness(drawn, again) for name, again in found.items()}
    kept = [drawn[number] for number in even], [neighbours[number] for number in even]
    return made | {"neighbours with other seeds": sameness(*kept)}


def lanes() -> dict[str, Any]:
    """Use of lanes: the compiled engine on 8 virtual devices, and its scheduler on more shards."""
    command = [sys.executable, "-m", "tests.decoding.lane_use"]
    output = subprocess.check_output(command, cwd=ROOT, env=device_environment(8), text=True)
    simulated = {
        f"simulated_{shards}{kind}{way}": dataclasses.asdict(simulate(shards, LANES, runaways, staleness))
        for shards in SHARDS
        for kind, runaways in (("", 0.0), ("_runaways", RUNAWAYS))
        for way, staleness in (("", 1), ("_synchronous", 0))
    }
    real = json.loads(output.splitlines()[-1])
    return {
        "real_8": real["async_runaways"],
        "real_8_synchronous": real["sync_runaways"],
        "real_8_synchronous_no_runaways": real["sync"],
        **simulated,
    }


def measure() -> dict[str, Any]:
    install_vllm()
    used = lanes()
    others, start = others_seconds(), time.perf_counter()
    found = Found()
    with tempfile.TemporaryDirectory() as scratch:
        for name, (config, _) in MODELS.items():
            folder = Path(scratch) / name
            write_random_checkpoint(config(), folder)
            compare(found, name, folder)
        busy = max(0.0, others_seconds() - others - found.others_cpu) / (time.perf_counter() - start)
        check(found, Path(scratch) / "tiny")
    rows = [cell.row() for cell in found.cells]
    return {
        "prompts": PROMPTS,
        "samples": SAMPLES,
        "repeats": REPEATS,
        "lanes_a_shard": LANES,
        "threads": torch.get_num_threads(),
        "models": {name: words for name, (_, words) in MODELS.items()},
        "device": jax.devices()[0].platform,
        "busy_cores": round(busy, 1),
        "lanes": used,
        "speed": rows,
        "ratios": {f"{row['model']}, {row['prompt']} + {row['new']}": row["ratio"][0] for row in rows},
        "forwards_apart": found.agreement,
        "gaps": [
            {"what": name, "tokens": gap.tokens, "largest": gap.largest, "mean": gap.mean, "judged": judged}
            for name, (gap, judged) in found.gaps.items()
        ],
        "same": [
            {"what": name, "tokens": one.tokens, "different": one.unlike, "log_probs_apart": one.largest}
            for name, one in found.same.items()
        ],
    }


def checks(figures: dict[str, Any]) -> list[Check]:
    used, same, ratios = figures["lanes"], figures["same"], list(figures["ratios"].values())
    real, simulated = used["real_8"], used["simulated_16_runaways"]
    synchronous = used["simulated_16_runaways_synchronous"]
    steps = max(one["steps"] / one["ideal_steps"] for one in used.values())
    gap = max(row["largest"] for row in figures["gaps"] if row["judged"])
    different, apart = sum(row["different"] for row in same), max(row["log_probs_apart"] for row in same)
    most = max(row["tokens"] for row in same)
    busy = figures["busy_cores"]
    idle = "" if busy <= IDLE else f"; other processes kept {busy} cores busy: no result"
    against_vllm = [row["ratio_vllm"][0] for row in figures["speed"] if row["ratio_vllm"]]
    return [
        (
            f"at least {LEAST_REAL:.0%} of the lanes make a token on 8 devices, with runaways",
            f"{real['share']:.1%} (`max_staleness=1`); {used['real_8_synchronous']['share']:.1%} synchronous",
            real["share"] >= LEAST_REAL,
        ),
        (
            f"at least {LEAST_SIMULATED:.0%} on 16 shards, simulated, with runaways and `max_staleness=1`",
            f"{simulated['share']:.1%}; synchronous {synchronous['share']:.1%}, of "
            f"{synchronous['ideal_share']:.1%} that ideal lanes reach",
            simulated["share"] >= LEAST_SIMULATED,
        ),
        (
            f"at most {MOST_STEPS:g} times the steps of lanes that any sequence may take",
            f"{steps:.2f} times in the worst case",
            steps <= MOST_STEPS,
        ),
        (
            f"at least {LEAST_RATIO:g} times the tokens a second of transformers' `generate`",
            f"{sum(ratio >= LEAST_RATIO for ratio in ratios)} of {len(ratios)} settings; "
            f"{min(ratios):.1f} to {max(ratios):.1f} times{idle}",
            min(ratios) >= LEAST_RATIO,
        ),
        (
            "tokens a second relative to vLLM's",
            f"{min(against_vllm):.2f} to {max(against_vllm):.2f} times{idle}",
            None,
        ),
        (
            f"log-probabilities are the training forward's within {MOST_APART:g} nats (float32)",
            f"at most {gap:.1e} apart",
            gap <= MOST_APART,
        ),
        (
            f"and transformers' forward's within {MOST_APART:g} nats",
            f"at most {figures['forwards_apart']:.1e} apart",
            figures["forwards_apart"] <= MOST_APART,
        ),
        (
            "a response does not depend on what is sampled with it",
            f"{different} other responses in up to {most:,} tokens; log-probabilities {apart:.1e} apart",
            not different and apart <= MOST_APART and most >= LEAST_TOKENS,
        ),
    ]


def tables(figures: dict[str, Any]) -> list[str]:
    parts = {
        "Lanes that make a token": named(figures["lanes"], "run"),
        "Tokens a second (ratios: median, smallest, largest)": figures["speed"],
        "Log-probabilities against the training forward, nats": figures["gaps"],
        "The same tokens in any company, against one call with 32 lanes": figures["same"],
    }
    return [f"## {title}\n\n{table(rows)}" for title, rows in parts.items()]


ABOUT = """\
**Baseline:** transformers' `generate` and vLLM on the same weights, and synchronous lanes; no positive
control. The reference of log-probabilities is the training forward; caches in 8 bits, which are not judged,
show how far apart those are that are not equal.

**Lanes.** Batches of 64 prompts with 8 responses each, as long as the demo's targets (mean 280 tokens,
deviation a third), with runaways one response of a hundred to the limit of 2,048; {lanes_a_shard} lanes a
shard. `real_8` is the compiled engine on 8 virtual devices with lengths of an eighth; simulated runs are
its scheduler with programs that only count. Prompts go on beyond a batch that is not complete
(`max_staleness=1`), or wait for it (synchronous). An ideal lane takes any sequence as soon as it is free,
and prompts cost nothing; synchronous batches bound it, too.

**Speed.** {prompts} prompts of one length, the first with a screenshot on a quarter of it, {samples}
responses each, float32, temperature 1, no early end, {repeats} times in turns with other prompts. All sides
load the same random weights. **Ours** is `rmsweb_jax.decoding.engine.Engine`, compiled. **transformers** is
`generate(do_sample=True, num_return_sequences={samples}, use_cache=True)` with sdpa attention, the whole
distribution, no end token and {threads} threads; all prompts in one call or one prompt a call, whichever is
faster. **vLLM** is `LLM.generate` with `n={samples}` in an environment of its own, with its cache of
prefixes, compiled or eager, whichever is faster; it has no kernels for the heads of `tiny`. Models:
{models}. Device: {device}; other processes kept {busy_cores} cores busy. Ratios are their seconds over
ours: the median of the repetitions, with the smallest and largest.

Log-probabilities are compared with `token_log_probs` on each whole sequence; rows of caches in 8 bits and
of bfloat16 are not judged.
"""

if __name__ == "__main__":
    found = measure()
    about = ABOUT.format(**found)
    publish("sampler", "Decoding: lanes, speed and equality", about, found, checks(found), *tables(found))
