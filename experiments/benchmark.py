"""Measures the speed of SFT, RL and sampling on the devices of a machine or pod.

    python -m experiments.benchmark --config=configs/benchmark.py:tiny --workdir=runs/benchmark

The compiled programs of training and the engine run on random weights and made-up samples; the result,
`benchmark.json` and `benchmark.md`, has the seconds of a step, tokens a second, and MFU where the chip's peak
rate is known. Steps that warm up, and compile, do not count, and a step ends when the devices are done. On a
pod the same command runs on every host, with `--distributed`.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from experiments import cli
from experiments.benchmark_settings import BenchmarkConfig
from rmsweb_jax.data.batching import Branch, Example, Tree, lay_out, on_mesh, round_up
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import Packer, RowShape, TreeSize, useful_work
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Request, Sampling, join
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.decoding.weights import choose_layout
from rmsweb_jax.qwen.backends import choose_attention
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen.flops import forward_flops, training_flops
from rmsweb_jax.qwen.lora import add_lora, count_parameters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.rl.losses import Objective
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.rl.step import rl_steps, trees_of, update_policy
from rmsweb_jax.sft.data import VALUES
from rmsweb_jax.sft.step import init_state, sft_steps, split_model
from rmsweb_jax.storage import AnyPath, folder_on_disk
from rmsweb_jax.training.mesh import is_first, make_mesh, process_rows, row_shards
from rmsweb_jax.training.performance import compiler_options, peak_flops
from rmsweb_jax.training.step import adamw


@dataclasses.dataclass(frozen=True)
class Setup:
    """What is measured, and on which devices."""

    config: BenchmarkConfig
    shape: Qwen3VLConfig
    mesh: Mesh

    @functools.cached_property
    def model(self) -> Qwen3VL:
        """Random weights with adapters, each made on its own devices."""
        dtype = jnp.dtype(self.config.dtype)
        attention = choose_attention(self.shape.text.head_dim, dtype, self.mesh)

        def make() -> Qwen3VL:
            kinds = {"dtype": dtype, "param_dtype": dtype, "remat": self.config.remat}
            model = Qwen3VL(self.shape, rngs=nnx.Rngs(0), attention=attention, **kinds)
            add_lora(model, self.config.lora, nnx.Rngs(1))
            return model

        graphdef, shapes = nnx.split(nnx.eval_shape(make))
        made = jax.jit(lambda: nnx.split(make())[1], out_shardings=param_shardings(shapes, self.mesh))
        return nnx.merge(graphdef, made())

    def examples(self, count: int) -> list[Example]:
        """Samples of an image, random text and a random reply."""
        config, side = self.config, self.config.image_side * self.shape.vision.spatial_merge_size
        image = [self.shape.image_token_id] * config.image_side**2
        start = [self.shape.vision_start_token_id, *image, self.shape.vision_end_token_id]
        rng, found = np.random.default_rng(0), []
        for number in range(count):
            text = rng.integers(0, min(self.special), config.prompt + config.response - len(start))
            patches = rng.standard_normal((side * side, self.shape.vision.patch_dim), np.float32)
            tokens = np.asarray([*start, *text], np.int32)
            mask = np.ones(config.response, bool)
            found.append(Example(str(number), tokens, config.prompt, mask, (patches,), ((1, side, side),)))
        return found

    @property
    def special(self) -> tuple[int, ...]:
        shape = self.shape
        return (
            shape.image_token_id,
            shape.video_token_id,
            shape.vision_start_token_id,
            shape.vision_end_token_id,
        )

    @property
    def rows(self) -> int:
        return row_shards(self.mesh)

    @property
    def options(self) -> dict[str, Any]:
        return compiler_options(self.mesh.devices.flat[0], ())

    def timed(self, program: str, step: Callable[[], Any], tokens: int, flops: int) -> dict[str, Any]:
        """Runs the steps; `tokens` and `flops` are those of a step that are of use."""
        seconds = []
        for _ in range(self.config.warmup + self.config.steps):
            begin = time.perf_counter()
            jax.block_until_ready(step())
            seconds.append(time.perf_counter() - begin)
        counted = seconds[self.config.warmup :]
        median, device = statistics.median(counted), self.mesh.devices.flat[0]
        peak = self.config.peak_tflops * 1e12
        if not peak and self.config.dtype == "bfloat16":
            peak = peak_flops(device.device_kind) or 0.0
        # Of a device of this process: others tell it nothing.
        memory = self.mesh.local_devices[0].memory_stats() or {}
        return {
            "program": program,
            "step_seconds": median,
            "fastest": min(counted),
            "slowest": max(counted),
            "first_step_seconds": seconds[0],
            "tokens_per_step": tokens,
            "tokens_per_second": tokens / median,
            "tflops_per_second": flops / median / 1e12,
            "mfu": flops / median / (peak * self.mesh.size) if peak else None,
            # Since the process began: a device cannot forget its peak.
            "peak_gib": memory["peak_bytes_in_use"] / 2**30 if "peak_bytes_in_use" in memory else None,
        }


def sft(setup: Setup) -> dict[str, Any]:
    """A step of supervised fine-tuning: gradient, clipping, AdamW."""
    config, model, mesh = setup.config, setup.model, setup.mesh
    count = config.samples * setup.rows
    weight = {"weight": 1 / config.response, "action": 1.0}
    trees = [Tree(one, (Branch(one.target, weight),)) for one in setup.examples(count)]
    packer = _packer(setup, config.samples * (config.prompt + config.response), config.samples)
    (plan,) = packer.pack(sizes := [tree.size for tree in trees])
    held = process_rows(mesh, setup.rows)
    batch = on_mesh(lay_out(trees.__getitem__, plan, packer.shape, setup.shape, held, VALUES), mesh)
    adapters, (graphdef, params, frozen) = count_parameters(model)["adapters"], split_model(model, "lora")
    optimizer = adamw(1e-4, weight_decay=0.01, clip_norm=1.0)
    # Steps take over the arrays that they train; the model keeps its own.
    state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
    steps, key = sft_steps(graphdef, state, optimizer, count, mesh, setup.options), jax.random.key(0)

    def step() -> Any:
        nonlocal state
        total = steps.add(steps.zero(state.params), state.params, frozen, batch, key)
        state, metrics = steps.update(state, total)
        return state, metrics

    work = useful_work(sizes)
    return setup.timed("SFT", step, work.tokens, training_flops(setup.shape, work, adapters, "none").useful)


def rl(setup: Setup) -> dict[str, Any]:
    """An update of Salvage-DS: log-probabilities of old policy and reference, gradient, AdamW."""
    config, model, mesh = setup.config, setup.model, setup.mesh
    rng, groups = np.random.default_rng(1), []
    for example in setup.examples(config.groups * setup.rows):
        size = SampleSize(example.sample_id, example.length, example.num_targets, (len(example.patches[0]),))
        shape = (config.num_samples, config.response)
        groups.append(
            Turn(
                prompt=Prompt(size, lambda example=example: example, target=""),
                responses=tuple(rng.integers(0, min(setup.special), shape).astype(np.int32)),
                log_probs=tuple(np.zeros(shape, np.float32)),
                truncated=np.zeros(config.num_samples, bool),
                rewards=np.zeros(config.num_samples),
                advantages=rng.normal(size=config.num_samples),
            )
        )
    batch = MiniBatch(tuple(groups), ())
    packer = _packer(setup, config.prompt + config.num_samples * config.response, 1)
    adapters, (graphdef, params, frozen) = count_parameters(model)["adapters"], split_model(model, "lora")
    optimizer = adamw(1e-6, weight_decay=0.01, clip_norm=1.0)
    # Steps take over the arrays that they train; the model keeps its own.
    state = init_state(jax.tree.map(jnp.copy, params), optimizer, mesh)
    steps = rl_steps(graphdef, state, optimizer, Objective(), mesh, setup.options)

    def step() -> Any:
        nonlocal state
        updated = update_policy(
            steps, state, frozen, [batch], packer, setup.shape, mesh, salvage=False, version=0
        )
        state = updated.state
        return state

    work = useful_work([tree.size for tree in trees_of(batch, salvage=False)])
    flops = training_flops(setup.shape, work, adapters, "none").useful + 2 * forward_flops(setup.shape, work)
    return setup.timed("RL update", step, work.tokens, flops)


def engine(setup: Setup) -> dict[str, Any]:
    """Replies of the engine to all prompts, with their prefill; tokens are those of replies."""
    config, model = setup.config, setup.model
    examples = setup.examples(config.groups * setup.rows)
    sampling = Sampling(config.num_samples, config.response)
    sizes = sizes_for(
        [(config.prompt, [len(one.patches[0])]) for one in examples],
        samples=config.num_samples,
        response_tokens=config.response,
        lanes=config.num_samples * len(examples),
        shards=setup.rows,
    )
    # No reply ends early: the end token, too, is never drawn.
    eos = setup.special[-1]
    made = Engine.for_policy(model, sizes, eos=eos, banned=setup.special, layout=choose_layout(model))
    made.warm_up()

    def step() -> Any:
        asked = [Request(one, sampling, 0, at, made.policy) for at, one in enumerate(examples)]
        return [drawn.log_probs for _, drawn in join(made.stream(asked))]

    replies = (config.response,) * config.num_samples
    work = useful_work([TreeSize(config.prompt, replies, (len(one.patches[0]),)) for one in examples])
    return setup.timed("engine", step, work.scored, forward_flops(setup.shape, work))


def _packer(setup: Setup, tokens: int, images: int) -> Packer:
    window = math.prod(setup.examples(1)[0].grids[0])
    return Packer(RowShape(round_up(tokens, 128), setup.rows, images, window), setup.shape)


def measure(config: BenchmarkConfig) -> dict[str, Any]:
    """Measures all programs, one after the other."""
    source = SIZES.get(config.model)
    shape = source or Qwen3VLConfig.from_hf(resolve_model(config.model) / "config.json")
    setup = Setup(config, shape, make_mesh(**config.mesh.model_dump()))
    device, programs = setup.mesh.devices.flat[0], []
    for program in (sft, rl, engine):
        programs.append(program(setup))
        gc.collect()  # Arrays and programs of the last one.
    return {
        "config": config.model_dump(),
        "device": device.device_kind,
        "devices": setup.mesh.size,
        "processes": jax.process_count(),
        "attention": choose_attention(shape.text.head_dim, jnp.dtype(config.dtype), setup.mesh).backend,
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "flax")},
        "programs": programs,
    }


def page(report: dict[str, Any], command: str) -> str:
    """The report as Markdown."""
    config, versions = (
        report["config"],
        ", ".join(f"{name} {one}" for name, one in report["versions"].items()),
    )
    names = (
        "program",
        "s a step",
        "fastest to slowest",
        "first step, s",
        "tokens/s",
        "TFLOP/s",
        "MFU",
        "peak GiB",
    )
    lines = [names, ["---"] * len(names)]
    for row in report["programs"]:
        lines.append(
            (
                row["program"],
                f"{row['step_seconds']:.4g}",
                f"{row['fastest']:.4g} to {row['slowest']:.4g}",
                f"{row['first_step_seconds']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                f"{row['tflops_per_second']:.3g}",
                "-" if row["mfu"] is None else f"{row['mfu']:.1%}",
                "-" if row["peak_gib"] is None else f"{row['peak_gib']:.1f}",
            )
        )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    side = config["image_side"]
    about = (
        f"{config['dtype']}, remat {config['remat']}, attention `{report['attention']}`, {versions}. Prompts "
        f"of {config['prompt']:,} tokens with an image of {side} x {side}, replies of {config['response']}; "
        f"SFT rows of {config['samples']} samples; {config['groups']} groups of {config['num_samples']} "
        f"replies on each part of the batch. Medians of {config['steps']} steps, after {config['warmup']} "
        "that warm up."
    )
    return f"""# Speed of {config["model"]} on {report["devices"]} x {report["device"]}

    {command}

{about}

{table}

Tokens are those of samples without padding, and of replies for the engine, whose time includes the prefill.
FLOPs are those of use: no padding, nothing that is computed twice.
"""


def main(config: BenchmarkConfig, workdir: AnyPath) -> None:
    report = measure(config)
    if is_first():
        folder = folder_on_disk(workdir, 0)
        folder.mkdir(parents=True, exist_ok=True)
        text = page(report, f"python -m experiments.benchmark --config=... --workdir={workdir}")
        write_atomic(folder / "benchmark.json", json.dumps(report, indent=1).encode())
        write_atomic(folder / "benchmark.md", text.encode())
        print(text)


if __name__ == "__main__":
    cli.run(main, "configs/benchmark.py:tiny", BenchmarkConfig, distributed=True)
