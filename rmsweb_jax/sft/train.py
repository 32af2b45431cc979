"""Supervised fine-tuning, from a model folder and a corpus to a merged model folder."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
import time
from pathlib import Path
from typing import Any

import grain.python as grain
import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.data.batching import Batch, batch_axes
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sft import open_sft_data
from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import make_mesh, shard_batch
from rmsweb_jax.metrics import MetricWriter
from rmsweb_jax.optimizers import adamw, warmup_cosine
from rmsweb_jax.progress import Progress
from rmsweb_jax.qwen3_vl.backends import default_attention
from rmsweb_jax.qwen3_vl.checkpoint import load_model, resolve_model, save_model
from rmsweb_jax.qwen3_vl.lora import add_lora, count_parameters, merge_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import Steps, TrainState, init_state, make_steps, split_model

STAGE = "train_sft"


def train(config: SftConfig, workdir: Path) -> dict[str, Any]:
    """Trains, exports to `workdir/export` and writes `workdir/report.json`; continues what was begun.

    Raises:
      UserError: the corpus or model cannot be used, or the loss stopped being a number.
    """
    begin = time.monotonic()
    workdir.mkdir(parents=True, exist_ok=True)
    # 1. The policy: a given model, with adapters or whole.
    mesh = make_mesh(**config.mesh)
    source = resolve_model(config.model)
    model = load_policy(config, source, mesh)
    counts = count_parameters(model)
    graphdef, params, frozen = split_model(model, config.trainable)

    # 2. Data: shuffled steps of `batch_size` samples, each cut into micro-batches of like length.
    encoder = Encoder.load(source, ImageStore(Path(config.corpus)), config.max_pixels)
    data = open_sft_data(
        Path(config.corpus),
        encoder,
        workdir / "lengths.json",
        mesh,
        max_length=config.max_length,
        rows=config.micro_batch_size,
        multiple=config.bucket_multiple,
        widths=config.bucket_count,
    )
    total = math.ceil(config.epochs * data.num_samples / config.batch_size)
    batches = data.iterator(config.batch_size, config.seed)

    # 3. Optimizer and compiled programs.
    schedule = warmup_cosine(config.learning_rate, total, config.warmup_ratio)
    optimizer = adamw(schedule, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    state = init_state(params, optimizer, mesh)
    steps = make_steps(graphdef, state, optimizer, config.batch_size, mesh)

    # 4. Resume: the run's own newest checkpoint, otherwise the given model.
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(workdir / "checkpoints", config.checkpoints_kept))
        first, seconds = checkpoints.latest_step() or 0, 0.0
        if first:
            state, extra = checkpoints.restore(first, abstract_like(state), batches)
            seconds = extra["seconds"]
        writer = stack.enter_context(MetricWriter(workdir, first))
        progress = Progress(workdir, STAGE, total, first)

        # 5. The loop.
        key, metrics = jax.random.key(config.seed), {}
        for step in range(first, total):
            step_key = jax.random.fold_in(key, step)
            state, metrics = run_step(steps, state, frozen, batches, step_key, mesh)
            check_finite(metrics, step + 1, workdir)
            metrics["lr"] = float(schedule(step))
            metrics["epoch"] = (step + 1) * config.batch_size / data.num_samples
            writer.write(step + 1, metrics)
            progress.update(step + 1, f"loss {metrics['loss/train']:.3f}")
            if (step + 1) % config.checkpoint_every == 0 or step + 1 == total:
                elapsed = seconds + time.monotonic() - begin
                extra = {"seconds": elapsed, "metrics": metrics}
                checkpoints.save(step + 1, state, extra, batches)
        metrics = metrics or extra["metrics"]
        progress.close()

    # 6. A model folder as any other, and what was done.
    export(nnx.merge(graphdef, state.params, frozen), source, workdir / "export")
    report = {
        "stage": STAGE,
        "seconds": round(seconds + time.monotonic() - begin, 1),
        "model": config.model,
        "trainable": config.trainable,
        "parameters": counts,
        "steps": total,
        **data.summary(),
        "final": metrics,
    }
    write_atomic(workdir / "report.json", json.dumps(report, indent=1).encode())
    return report


def load_policy(config: SftConfig, folder: Path, mesh: Mesh) -> Qwen3VL:
    """The model of `folder` on the mesh, with fresh adapters when these are what is trained."""
    dtype, param_dtype = jnp.dtype(config.dtype), jnp.dtype(config.param_dtype)
    model = load_model(folder, dtype, param_dtype=param_dtype, remat=config.remat, mesh=mesh)
    model.attention = default_attention(model.config.text.head_dim, dtype, mesh)
    if config.trainable == "lora":
        add_lora(model, config.lora, nnx.Rngs(config.seed))
    return model


def run_step(
    steps: Steps, state: TrainState, frozen: Any, batches: grain.DatasetIterator, key: jax.Array, mesh: Any
) -> tuple[TrainState, dict[str, float]]:
    """One optimizer step over the next batch.

    Returns:
      The new state, and metrics as floats; `data_wait` is the share of the step spent waiting for data.
    """
    start = time.monotonic()
    micro_batches: list[Batch] = next(batches)
    waited = time.monotonic() - start
    total = steps.zero(state.params)
    places = 0
    for number, batch in enumerate(micro_batches):
        on_mesh = shard_batch(batch, mesh, batch_axes(batch))
        total = steps.add(total, state.params, frozen, on_mesh, jax.random.fold_in(key, number))
        places += batch.inputs.tokens.size
    used = sum(int((batch.inputs.segment_ids > 0).sum()) for batch in micro_batches)
    state, metrics = steps.update(state, total)
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    seconds = time.monotonic() - start
    values |= {
        "tokens_per_second": used * jax.process_count() / seconds,
        "padding": 1 - used / places,
        "data_wait": waited / seconds,
        "step_seconds": seconds,
    }
    return state, values


def check_finite(metrics: dict[str, float], step: int, workdir: Path) -> None:
    """Stops before a broken state is saved.

    Raises:
      UserError: loss or gradient is not a number.
    """
    if math.isfinite(metrics["loss/train"]) and math.isfinite(metrics["norm/gradient"]):
        return
    raise UserError(
        f"{workdir}: the loss is not a number at step {step}; the last good checkpoint is kept in "
        "checkpoints/: lower config.learning_rate and train in another --workdir"
    )


def export(model: Qwen3VL, source: Path, folder: Path) -> None:
    """Writes the model with its adapters merged, and the tokenizer of `source`, as a Hugging Face folder.

    With several processes all of them must call this; the first one writes.
    """
    merge_lora(model)
    save_model(model, folder, model.language_model.embed_tokens.embedding.dtype)
    if jax.process_index() != 0:
        return
    own = ("config.json", "model.safetensors.index.json")
    for path in sorted(source.iterdir()):
        if path.suffix in (".json", ".txt", ".jinja") and path.name not in own:
            shutil.copyfile(path, folder / path.name)
    logging.info("exported to %s", folder)
