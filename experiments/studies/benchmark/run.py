"""Measures the forward pass and the LoRA training step against transformers + PEFT, side by side in one run.

    python -m experiments.studies.benchmark.run --config=configs/studies/benchmark.py:2b \
        --output=runs/benchmark/2b.json

Both sides load the same random weights and compute the same batch, each in a process of its own; they take
turns step by step, and no ratio is told unless they agree on what they computed. With `--table=FILE.md` the
section of this config in that file is written anew.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import tempfile
from pathlib import Path
from typing import Any

import jax
from absl import flags
from flax import nnx
from ml_collections import ConfigDict

from experiments.cli import run_config
from experiments.studies.benchmark.config import BenchmarkConfig
from experiments.studies.benchmark.job import Job
from experiments.studies.benchmark.measure import OURS, TOLERANCES, check_reference, measure, workers
from experiments.studies.benchmark.random_checkpoint import write_random_checkpoint
from experiments.studies.benchmark.report import replace_section, section, summary, table, useful_flops
from experiments.studies.benchmark.rows import image_grid, write_rows
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.settings import from_config


def random_weights(config: BenchmarkConfig, workdir: Path) -> Path:
    """A model folder of the config's shape; one that an earlier run finished is used again."""
    architecture = config.architecture()
    layers, blocks = architecture.text.num_hidden_layers, architecture.vision.depth
    folder = workdir / f"{config.size}-{layers}-layers-{blocks}-blocks"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=workdir) as part:
            write_random_checkpoint(architecture, Path(part) / "model")
            (Path(part) / "model").rename(folder)
    return folder


def count_adapters(architecture: Qwen3VLConfig, lora: LoRAConfig) -> int:
    """Adapter parameters; nothing is allocated."""

    def make() -> Qwen3VL:
        model = Qwen3VL(architecture, rngs=nnx.Rngs(0))
        add_lora(model, lora, nnx.Rngs(0))
        return model

    return count_parameters(nnx.eval_shape(make))["adapters"]


def processor() -> str:
    """The CPU's name."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def jobs(config: BenchmarkConfig, workdir: Path, scratch: Path) -> list[Job]:
    """What the workers are told; weights and rows are written for them."""
    rows = scratch / "rows.npz"
    write_rows(
        rows,
        config.architecture(),
        rows=config.rows,
        length=config.length,
        response=config.response,
        max_pixels=config.max_pixels,
        seed=config.seed,
    )
    threads = len(os.sched_getaffinity(0))
    ours = Job(
        side=OURS,
        model=str(random_weights(config, workdir)),
        rows=str(rows),
        adapters=str(scratch / "adapters"),
        device=config.device,
        dtype=config.dtype,
        remat=config.remat,
        threads=min(config.threads or threads, threads),
        response=config.response,
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
    """Measures both sides.

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
    machine = {"processor": processor(), "threads": todo[0].threads, "sides": about}
    programs = summary(config, measured, flops, about[OURS]["device"])
    return {"config": dataclasses.asdict(config), "machine": machine, "programs": programs}


def main() -> None:
    output_flag = flags.DEFINE_string("output", None, "JSON file for the results.", required=True)
    table_flag = flags.DEFINE_string(
        "table", "", "Markdown file whose section of this config is written anew."
    )
    workdir_flag = flags.DEFINE_string("workdir", "runs/benchmark", "Folder for weights and workers' logs.")

    def entry(settings: ConfigDict) -> None:
        # The accelerator belongs to the workers.
        jax.config.update("jax_platforms", "cpu")
        config = from_config(BenchmarkConfig, settings)
        output = Path(output_flag.value)
        output.parent.mkdir(parents=True, exist_ok=True)
        report = run(config, Path(workdir_flag.value))
        write_atomic(output, json.dumps(report, indent=1).encode())
        print(table(report["programs"]))
        if table_flag.value:
            path = Path(table_flag.value)
            before = path.read_text() if path.exists() else ""
            content = section(config, report["machine"], report["programs"])
            write_atomic(path, replace_section(before, config.name, content).encode())

    run_config(entry, "configs/studies/benchmark.py:tiny")


if __name__ == "__main__":
    main()
