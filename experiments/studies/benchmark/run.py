"""Measures the forward pass and the LoRA training step against transformers + PEFT, side by side in one run.

    python -m experiments.studies.benchmark.run --config=configs/studies/benchmark.py:2b \
        --output=runs/benchmark/2b.json

Both sides load the same random weights and compute the same batch, each in its own process. They take turns
step by step. There is no ratio unless their results agree.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from flax import nnx
from ml_collections import ConfigDict

from experiments.cli import run_config
from experiments.studies.benchmark.config import BenchmarkConfig
from experiments.studies.benchmark.measure import OURS, TOLERANCES, check_reference, measure, workers
from experiments.studies.benchmark.random_checkpoint import write_random_checkpoint
from experiments.studies.benchmark.report import section, summary, useful_flops
from experiments.studies.benchmark.side import Job
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import Grid, mrope_positions
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.settings import from_config
from rmsweb_jax.storage import local_path
from rmsweb_jax.verify.training import random_examples


def random_weights(config: BenchmarkConfig, workdir: Path) -> Path:
    """Returns a folder with random weights of the config's shape; writes it once."""
    architecture = config.architecture()
    layers, blocks = architecture.text.num_hidden_layers, architecture.vision.depth
    folder = workdir / f"{config.size}-{layers}-layers-{blocks}-blocks"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=workdir) as part:
            write_random_checkpoint(architecture, Path(part) / "model")
            (Path(part) / "model").rename(folder)
    return folder


def count_adapters(architecture: Qwen3VLConfig, lora: LoRAConfig) -> int:
    """Counts adapter parameters without allocating them."""

    def make() -> Qwen3VL:
        model = Qwen3VL(architecture, rngs=nnx.Rngs(0))
        add_lora(model, lora, nnx.Rngs(0))
        return model

    return count_parameters(nnx.eval_shape(make))["adapters"]


def image_grid(config: Qwen3VLConfig, max_pixels: int) -> Grid:
    """Grid of the largest square image of at most `max_pixels`."""
    vision = config.vision
    unit = vision.patch_size * vision.spatial_merge_size
    side = max(1, math.isqrt(max_pixels) // unit) * vision.spatial_merge_size
    return 1, side, side


def write_samples(
    path: Path, config: Qwen3VLConfig, *, samples: int, length: int, response: int, max_pixels: int, seed: int
) -> None:
    """Writes the batch: tokens [B, T], positions [3, B, T], patches, grids [B, 3] and the image token.

    Each sample has an image, text and a scored response.

    Raises:
      UserError: image and response do not fit a sample.
    """
    grid = image_grid(config, max_pixels)
    image = math.prod(grid) // config.vision.merge_unit
    # The two tokens around the image, and one of text before the response.
    text = length - image - 2
    if text < response + 1:
        raise UserError(
            f"config.length={length} does not hold an image of {image} tokens and a config.response of "
            f"{response}: make it {image + response + 3} or more"
        )
    examples = random_examples(config, grid, samples, length=length, response=response, seed=seed)
    tokens = np.stack([example.tokens for example in examples])
    np.savez(
        path,
        tokens=tokens,
        positions=np.stack([mrope_positions(row, [grid], config) for row in tokens], axis=1),
        patches=np.concatenate([part for example in examples for part in example.patches]),
        grids=np.tile(grid, (samples, 1)),
        image_token=config.image_token_id,
    )


def jobs(config: BenchmarkConfig, workdir: Path, scratch: Path) -> list[Job]:
    """Writes weights and samples, and returns the job of each worker."""
    samples = scratch / "samples.npz"
    write_samples(
        samples,
        config.architecture(),
        samples=config.samples,
        length=config.length,
        response=config.response,
        max_pixels=config.max_pixels,
        seed=config.seed,
    )
    threads = len(os.sched_getaffinity(0))
    ours = Job(
        side=OURS,
        model=str(random_weights(config, workdir)),
        samples=str(samples),
        adapters=str(scratch / "adapters"),
        device=config.device,
        dtype=config.dtype,
        remat=config.remat,
        threads=min(config.threads or threads, threads),
        response=config.response,
        packed=config.packed,
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        seed=config.seed,
    )
    reference = [] if config.reference == "none" else [dataclasses.replace(ours, side=config.reference)]
    return [ours, *reference]


def run(config: BenchmarkConfig, workdir: Path) -> dict[str, Any]:
    """Measures both sides and returns the report.

    Raises:
      UserError: a side is not installed or cannot run, or the sides compute different things.
    """
    if config.reference != "none":
        check_reference()
    workdir.mkdir(parents=True, exist_ok=True)
    architecture = config.architecture()
    with tempfile.TemporaryDirectory(dir=workdir) as scratch:
        todo = jobs(config, workdir, Path(scratch))
        with workers(todo, workdir) as sides:
            about = {side.name: side.ask("describe") for side in sides}
            measured = measure(sides, TOLERANCES[config.dtype], config.warmup_steps, config.steps)
    grid = image_grid(architecture, config.max_pixels)
    flops = useful_flops(config, architecture, grid, count_adapters(architecture, config.lora))
    machine = {"threads": todo[0].threads, "sides": about}
    programs = summary(config, measured, flops, about[OURS]["device"])
    return {"config": dataclasses.asdict(config), "machine": machine, "programs": programs}


def main() -> None:
    output_flag = flags.DEFINE_string("output", None, "JSON file for the results.", required=True)
    workdir_flag = flags.DEFINE_string("workdir", "runs/benchmark", "Folder for weights and workers' logs.")

    def entry(settings: ConfigDict) -> None:
        # The accelerator belongs to the workers.
        jax.config.update("jax_platforms", "cpu")
        config = from_config(BenchmarkConfig, settings)
        output = local_path(output_flag.value, "--output")
        output.parent.mkdir(parents=True, exist_ok=True)
        report = run(config, local_path(workdir_flag.value, "--workdir"))
        write_atomic(output, json.dumps(report, indent=1).encode())
        print(section(report))

    run_config(entry, "configs/studies/benchmark.py:tiny")


if __name__ == "__main__":
    main()
