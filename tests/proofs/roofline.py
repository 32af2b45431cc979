"""Lower bounds of TPU time against published runs, and what the paper's recipe costs by them. An hour or two.

A compilation that is done is not repeated: its rows are kept in build/roofline until `make clean`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from configs.rl import get_config as rl_config
from configs.sft import get_config as sft_config
from rmsweb_jax.aot.abstract import CHIPS, Chip, slice_mesh
from rmsweb_jax.aot.programs import Program, full_rows, rl_programs, sampler_programs, sft_programs
from rmsweb_jax.aot.report import compile_program, floors
from rmsweb_jax.aot.roofline import Roofline
from rmsweb_jax.data.packing import RowShape, TreeSize
from rmsweb_jax.qwen3_vl.config import SIZES, Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.flops import Work, causal_pairs, forward_flops
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.training.memory import device_bytes
from tests.proofs.result import ROOT, Claim, Figures, Proof, digest, main, table
from tests.proofs.tpu import LIBTPU, PACKAGES, install

FOLDER = ROOT / "build/roofline"

# --- Published runs ---

# Sizes: github.com/AI-Hypercomputer/maxtext, src/maxtext/configs/models.
_HEADS = {"num_key_value_heads": 8, "head_dim": 128, "mrope_section": (24, 20, 20)}
LLAMA = {
    "Llama 3.1 8B": TextConfig(128_256, 4_096, 14_336, 32, 32, **_HEADS),
    "Llama 2 70B": TextConfig(32_000, 8_192, 28_672, 80, 64, **_HEADS),
    "Llama 3.1 70B": TextConfig(128_256, 8_192, 28_672, 80, 64, **_HEADS),
}


@dataclasses.dataclass(frozen=True)
class Published:
    """A published run, and the sizes with which this project's own programs repeat it.

    Attributes:
      seconds: of a training step, or of a decoding step.
      batch: rows of a device, each of `tokens`; for decoding the sequences at once, each with a cache of
        `tokens`.
      devices_axis: the mesh axis over all devices: "fsdp" for training, "tensor" for decoding.
    """

    model: str
    topology: str
    batch: int
    tokens: int
    seconds: float
    source: str
    devices_axis: str = "fsdp"


_RECIPES, _MAXTEXT = "tpu-recipes c8cfe2f", "maxtext e591f30"
# All in repositories of github.com/AI-Hypercomputer, read at these commits.
PUBLISHED = (
    Published(
        "Llama 3.1 8B",
        "v6e:16x16",
        4,
        8_192,
        4.546,
        f"{_RECIPES}, training/trillium/Llama3.1-8B-MaxText/v6e-256: 45.46 % MFU without causal masking",
    ),
    # 692 tokens a second and device, of two rows.
    Published(
        "Llama 2 70B",
        "v5p:4x4x4",
        2,
        4_096,
        round(2 * 4_096 / 692, 2),
        f"{_MAXTEXT}, docs/reference/models/tiering.md: 65.4 % MFU, about 692 tokens/s a device, 512 chips; "
        "batch of the recipe that it links, llama2_70b_v5p_128",
    ),
    Published(
        "Llama 3.1 70B",
        "tpu7x:4x4x4",
        2,
        8_192,
        12.20,
        f"{_RECIPES}, training/ironwood/README.md: 64 chips, global batch 256",
    ),
    Published(
        "Llama 3.1 8B",
        "v5e:2x4",
        128,
        2_048,
        round(128 / 8_249, 4),
        "jetstream-pytorch c8bb611, benchmarks/summary.md: Llama 3 8B, bfloat16, 8,249 tokens/s at a batch "
        "of 128 and caches of 2,048, prefill included",
        "tensor",
    ),
    # Prompts and answers of 1,000 tokens: 1,500 on average.
    Published(
        "Llama 3.1 70B",
        "v6e:2x4",
        64,
        1_536,
        0.02311,
        f"{_RECIPES}, inference/trillium/vLLM/Llama3.x: median time between tokens, 64 requests at once",
        "tensor",
    ),
    Published(
        "Llama 3.1 70B",
        "v6e:2x4",
        128,
        1_536,
        0.03073,
        f"{_RECIPES}, inference/trillium/vLLM/Llama3.x: median time between tokens, 128 requests at once",
        "tensor",
    ),
)


def _decoder(text: TextConfig) -> Qwen3VLConfig:
    """A decoder without DeepStack, and the smallest vision tower that every mesh divides."""
    vision = VisionConfig(1, 1_024, 1_024, 16, text.hidden_size, 1_024, ())
    return Qwen3VLConfig(text, vision, tie_word_embeddings=False)


def _repeated(run: Published) -> tuple[Program, Any]:
    """Makes the program of a published run, and its mesh."""
    config = _decoder(LLAMA[run.model])
    mesh = slice_mesh(run.topology, **{"fsdp": 1, "tensor": 1, run.devices_axis: -1})
    if run.devices_axis == "fsdp":
        settings = from_config(SftConfig, sft_config("8b"), complete=False)
        settings = dataclasses.replace(settings, trainable="all", remat="full")
        rows = run.batch * mesh.size
        work = Work(rows * run.tokens, rows * causal_pairs(run.tokens), rows * run.tokens)
        return sft_programs(settings, config, mesh, RowShape(run.tokens, rows), work)[0], mesh
    settings = from_config(RlConfig, rl_config("8b"), complete=False)
    # Caches of lanes hold all of a sequence; the engine needs a prompt, which is short here.
    settings = dataclasses.replace(
        settings,
        remat="full",  # Of the policy's own module; decoding saves nothing.
        lora=LoRAConfig(rank=8, alpha=8.0, targets="attention"),
        max_prompt_tokens=128,
        max_response_tokens=run.tokens,
        num_samples=2,
        rollout_lanes=run.batch,
    )
    return sampler_programs(settings, config, mesh, images=0)[-1], mesh


# --- The paper's recipe ---

# Flattened samples (section "Corpus and flattening") and epochs of SFT. Tokens of a prompt at its limit.
SAMPLES, EPOCHS, PROMPT, RESPONSE = 150_000, 3, 12_000, 300
# Iterations and groups of RL: the paper names 64 accepted groups; rejected ones are kept for the anchor up to
# as many; its figure of gate shares (44 % and 21 % rejected at the end) leaves about one group of three.
ITERATIONS, KEPT, GENERATED, SAMPLED = 200, 128, 192, 8
SPLIT, WIDE = {"fsdp": 4, "tensor": 4}, {"fsdp": 16, "tensor": 4}
# Slices, meshes, and the sizes for which the cheaper rematerialization fits (docs/results/tpu.md).
SLICES: tuple[tuple[str, dict[str, int], tuple[str, ...]], ...] = (
    ("v5p:2x2x2", {}, ("8b",)),
    ("v6e:4x4", SPLIT, ()),
    ("v5e:8x8", WIDE, ()),
    ("v5p:4x4x4", WIDE, ("8b", "32b")),
    ("tpu7x:2x2x2", {}, ("8b",)),
)
# Programs that are compiled, to see which bound binds.
COMPILED = (
    ("8b", "v5p:2x2x2", "rl decode"),
    ("32b", "v5p:4x4x4", "rl decode"),
    ("32b", "v5p:4x4x4", "sft gradient"),
)


def _lanes(decode: Program) -> int:
    return int(re.findall(r"(\d+) lanes", decode.name)[0])


def _recipe(size: str, topology: str, sizes: dict[str, int], named: Sequence[str]) -> dict[str, Any]:
    """Counts the floors of a recipe's programs on a slice, and how often each is called."""
    mesh, chip, model = slice_mesh(topology, **sizes), CHIPS[topology.partition(":")[0]], SIZES[size]
    remat = "named" if size in named else "full"
    sft = dataclasses.replace(from_config(SftConfig, sft_config(size), complete=False), remat=remat)
    rl = dataclasses.replace(from_config(RlConfig, rl_config(size), complete=False), remat=remat)
    shape, work = full_rows(sft, model, mesh, TreeSize(PROMPT - RESPONSE, (RESPONSE,)), 1)
    tuning = sft_programs(sft, model, mesh, shape, work)[0]
    held = shape.images * shape.rows
    shape, group = full_rows(rl, model, mesh, TreeSize(PROMPT, (RESPONSE,) * (SAMPLED + 1)), 1)
    update = rl_programs(rl, model, mesh, shape, group)[0]
    *_, decode = sampler_programs(rl, model, mesh, 1, chip.hbm_gib)
    if _lanes(decode) > GENERATED * SAMPLED:
        few = dataclasses.replace(rl, rollout_lanes=GENERATED * SAMPLED)
        *_, decode = sampler_programs(few, model, mesh, 1, chip.hbm_gib)
    lanes = _lanes(decode)
    wanted = [one for one in (tuning, decode) if (size, topology, one.name.partition(",")[0]) in COMPILED]
    compiled = {one.name: _compiled(one, mesh, chip, f"{size} {topology}") for one in wanted}
    # Old policy and reference are two more forward passes.
    passes = update.executed_flops + 2 * forward_flops(model, group)
    reading = device_bytes(decode.iteration_reads) / chip.hbm_gb_per_s / 1e9
    rate = chip.peak_tflops * 1e12 * mesh.size
    prompt = Work(rl.max_prompt_tokens, causal_pairs(rl.max_prompt_tokens), 0)
    step = compiled[decode.name]["floor_ms"] / decode.iterations / 1e3 if decode.name in compiled else reading
    call = (
        compiled[tuning.name]["floor_ms"] / 1e3 if tuning.name in compiled else tuning.executed_flops / rate
    )
    return {
        "size": size,
        "slice": topology,
        "remat": remat,
        "chips": mesh.size // (2 if chip in (CHIPS["v4"], CHIPS["tpu7x"]) else 1),
        "lanes": lanes,
        "sft_s": call * SAMPLES * EPOCHS / held,
        "update_s": ITERATIONS * KEPT / shape.rows * passes / rate,
        "prefill_s": ITERATIONS * GENERATED * forward_flops(model, prompt) / rate,
        "decode_s": ITERATIONS * RESPONSE * GENERATED * SAMPLED / lanes * step,
        "compiled": list(compiled.values()),
    }


# --- Measurement ---


def _compiled(program: Program, mesh: Any, chip: Chip, run: str) -> dict[str, Any]:
    """The row of a program, that of an earlier call with the same code if any."""
    text = f"{digest('tpu')} {LIBTPU} {run} {program.name} {program.executed_flops}"
    kept = FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        print(time.strftime("%T"), run, program.name, flush=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        row = dataclasses.asdict(compile_program(program, chip, list(mesh.devices.flat)))
        write_atomic(kept, json.dumps({"run": run} | row).encode())
    return json.loads(kept.read_bytes())


def _calibration(run: Published) -> dict[str, Any]:
    program, mesh = _repeated(run)
    chip = CHIPS[run.topology.partition(":")[0]]
    row = _compiled(program, mesh, chip, f"{run.model} {run.topology} {run.batch}")
    calls = max(1, program.iterations)
    floors = {name: ms and ms / calls / 1e3 for name, ms in row["roofline"].items()}
    useful = row["useful_tflops"] / calls / chip.peak_tflops
    return {
        **dataclasses.asdict(run),
        "fits": row["fits"],
        "floors_s": floors,
        "binding": max(floors, key=lambda name: floors[name] or 0.0),
        "predicted_s": row["floor_ms"] / calls / 1e3,
        "useful_s": useful,
        "mfu": useful / run.seconds,
        "ratio": run.seconds / (row["floor_ms"] / calls / 1e3),
        "compiled": row,
    }


def measure() -> Figures:
    install()
    sys.path.insert(0, str(PACKAGES))
    calibration = [_calibration(run) for run in PUBLISHED]
    recipe = [_recipe(size, *one) for size in ("8b", "32b") for one in SLICES]
    return {"libtpu": LIBTPU, "calibration": calibration, "recipe": recipe}


# --- Judgement ---


def _training(figures: Figures) -> list[dict[str, Any]]:
    return [row for row in figures["calibration"] if row["devices_axis"] == "fsdp"]


def _decoding(figures: Figures) -> list[dict[str, Any]]:
    return [row for row in figures["calibration"] if row["devices_axis"] == "tensor"]


def _shares(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Least and largest share of the floor's rate that published runs reach."""
    reached = [1 / row["ratio"] for row in rows]
    return min(reached), max(reached)


def chip_hours(row: dict[str, Any], training: float, decoding: float) -> tuple[float, float]:
    """Chip-hours of SFT and of RL, if programs reach these shares of their floors' rates."""
    hours = row["chips"] / 3600
    rl = (row["update_s"] + row["prefill_s"]) / training + row["decode_s"] / decoding
    return row["sft_s"] / training * hours, rl * hours


def _factors(figures: Figures) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges of what floors are divided by to price training and decoding."""
    rows = _training(figures)
    # Their programs recompute less than ours, and at least nothing: then the share is the MFU.
    return (min(row["mfu"] for row in rows), _shares(rows)[1]), _shares(_decoding(figures))


def _percent(shares: tuple[float, float]) -> str:
    return f"{shares[0]:.0%} to {shares[1]:.0%}"


def claims(figures: Figures) -> list[Claim]:
    rows = figures["calibration"]
    training, decoding = _shares(_training(figures)), _shares(_decoding(figures))
    spread = max(training[1] / training[0], decoding[1] / decoding[0])
    return [
        Claim(
            "no published run is faster than the floor of the same program here",
            f"{sum(row['ratio'] >= 1 for row in rows)} of {len(rows)}; the fastest takes "
            f"{min(row['ratio'] for row in rows):.2f} times its floor",
            all(row["ratio"] >= 1 for row in rows),
        ),
        Claim(
            "published runs of a kind differ by at most a factor of 2 in the share of the floor's rate",
            f"training {_percent(training)}, decoding {_percent(decoding)}",
            spread <= 2,
        ),
    ]


def tables(figures: Figures) -> str:
    training, decoding = _factors(figures)
    head = ("published run", "slice", "published s", "floors: FLOP / HBM / ICI s", "published / floor")
    head += ("share of the floor's rate", "MFU, causal")
    parts = ["## Published runs", table(head, map(_calibrated, figures["calibration"]))]
    sources = (f"- {row['model']}, {row['topology']}: {row['source']}." for row in figures["calibration"])
    parts.append("\n".join(dict.fromkeys(sources)))
    parts += ["## Programs of the recipe", table(_BOUNDS, map(_bounded, _programs(figures)))]
    parts += [
        "## Cost of the recipe",
        table(_COST, (_cost(row, training, decoding) for row in figures["recipe"])),
    ]
    return "\n\n".join(parts)


def _seconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def _calibrated(row: dict[str, Any]) -> tuple[str, ...]:
    kind = "training" if row["devices_axis"] == "fsdp" else "decoding"
    parts = {name: _seconds(value) for name, value in row["floors_s"].items()}
    parts[row["binding"]] = f"**{parts[row['binding']]}**"
    return (
        f"{row['model']}, {kind}, {row['batch']} x {row['tokens']:,}",
        row["topology"],
        _seconds(row["seconds"]),
        " / ".join(parts.values()),
        f"{row['ratio']:.2f}",
        f"{1 / row['ratio']:.0%}",
        f"{row['mfu']:.1%}" if kind == "training" else "",
    )


_BOUNDS = ("run", "program", "peak GiB", "floors: FLOP / HBM / ICI ms")


def _programs(figures: Figures) -> list[dict[str, Any]]:
    return [program for row in figures["recipe"] for program in row["compiled"]]


def _bounded(row: dict[str, Any]) -> tuple[str, ...]:
    bounds = floors(Roofline(**row["roofline"]))
    return row["run"], row["name"], f"{row['peak_gib']:.2f}", bounds


_COST = (
    "model",
    "slice",
    "remat",
    "chips",
    "SFT chip-hours",
    "RL chip-hours",
    "of RL: update / prefill / decoding",
    "days",
)


def _cost(
    row: dict[str, Any], training: tuple[float, float], decoding: tuple[float, float]
) -> tuple[str, ...]:
    (sft, rl), (slow_sft, slow_rl) = (chip_hours(row, training[best], decoding[best]) for best in (1, 0))
    spent = (row["update_s"] / training[0], row["prefill_s"] / training[0], row["decode_s"] / decoding[0])
    days = [hours / row["chips"] / 24 for hours in (sft + rl, slow_sft + slow_rl)]
    return (
        row["size"].upper(),
        row["slice"],
        row["remat"],
        str(row["chips"]),
        f"{sft:,.0f} to {slow_sft:,.0f}",
        f"{rl:,.0f} to {slow_rl:,.0f}",
        " / ".join(f"{part / sum(spent):.0%}" for part in spent),
        f"{days[0]:.1f} to {days[1]:.1f}",
    )


ABOUT = """\
**No chip of ours ran.** The page compares lower bounds ("floors") of a program's time with what others
published for the same shapes, and prices the paper's recipe by both. Programs are those of this project,
compiled by libtpu {libtpu} without a TPU.

- *FLOP* is the executed count (`rmsweb_jax/qwen3_vl/flops.py`) at the chip's peak rate; *HBM* the bytes that
  the compiled program moves, loops times their trip counts, at the rate of the memory; *ICI* the bytes of its
  collectives at the rate of the links, which follow from the devices' coordinates
  (`rmsweb_jax/aot/roofline.py`). The longest, in bold, is the floor: everything else would overlap. There is
  no latency in it, and an instruction's operands count as read once.
- Training of published runs is repeated with all weights trained in bfloat16, `remat=full` and a text decoder
  of the same sizes. Their programs recompute less than that, some by moving activations to the host, so that
  their own floor lies between the one here and that of useful operations. *MFU, causal* is useful operations,
  with half of the attention, over the published time. The optimizer's step is left out.
- Decoding is repeated with a cache of the stated length for each sequence, a short prompt for two of them,
  adapters of rank 8, and weights split over all chips. Published throughput includes prefill where the source
  says so.
- *share of the floor's rate* is floor over published time.

**What follows for predictions of ours.** Costs below are floors of the recipe's programs over a range of
shares: for training from the smallest MFU (as if the published run recomputed nothing) to the largest share
of the floor, for decoding from the smallest to the largest share. Six points are no statistics: the range is
the spread of public runs that their authors tuned, and a first run here need not reach it.

The recipe: SFT on 150,000 samples ("150k+" in the paper), 3 epochs, each at its limit of 12,000 tokens, 300
of them target. RL of 200 iterations (our choice, about ten passes over 4,500 prompts: the paper states none).
An iteration generates 192 groups, of which one in three is accepted, and updates with 64 accepted ones and 64
for the anchor; a group is 8 responses of 300 tokens (our guess) after a prompt of 12,000 with one screenshot.
An update is a gradient and two forward passes. Real prompts are shorter than their limit, which makes the
costs high; evaluation, loading, preparation of weights, optimizer steps, failures and idle lanes are not in
them, which makes them low. Where a program was compiled for the slice, its floor is the longest of the three;
elsewhere the operations of training and prefill, and what a decoding step must read. The
rematerialization is what fits by [tpu.md](tpu.md), as far as that has the slice. Compilations are kept in
`build/roofline`: they took most of an hour, which is not in the time at the end of the page.
"""
TITLE = "Lower bounds of TPU time, published runs and cost"
PROOF = Proof(TITLE, ABOUT, measure, claims, tables, packages=("jax",))

if __name__ == "__main__":
    main(PROOF)
