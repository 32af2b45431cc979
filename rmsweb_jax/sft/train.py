"""Supervised fine-tuning, from a model folder and a corpus to a merged model folder."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import shutil
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.data.batching import on_mesh
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sources import training_data
from rmsweb_jax.qwen.checkpoint import base_state, load_model, resolve_model, save_model
from rmsweb_jax.qwen.flops import Work, training_flops
from rmsweb_jax.qwen.lora import LoRAParam, add_lora, count_parameters, merge_lora, save_adapters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.quantize import is_quantized, move_adapters, quantize_base
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.data import StepBatch, open_sft_data
from rmsweb_jax.sft.evaluate import Evaluator
from rmsweb_jax.sft.step import init_state, sft_steps, split_model, with_remat
from rmsweb_jax.storage import AnyPath, folder_on_disk
from rmsweb_jax.training.checkpoints import Checkpoints
from rmsweb_jax.training.config import ComputeConfig, LoRAConfig
from rmsweb_jax.training.identity import identify
from rmsweb_jax.training.loop import Loop
from rmsweb_jax.training.mesh import is_first, make_mesh
from rmsweb_jax.training.metrics import plain_values
from rmsweb_jax.training.performance import ProfilerWindow, compiler_options, mfu
from rmsweb_jax.training.step import Steps, TrainState, adamw, warmup_cosine

STAGE = "train_sft"

# Number of the first step that is profiled: by then all is compiled.
PROFILED_FROM = 10


def train(config: SftConfig, workdir: AnyPath) -> dict[str, Any]:
    """Trains, exports to `workdir/export` and writes `workdir/report.json`; resumes an earlier run.

    With several processes all of them call this, with one shared `workdir`. Where that is in a bucket, the
    caller has opened it (`open_run`), which copies what is in the folder on disk at the end.

    Raises:
      UserError: the corpus or model cannot be used, or too many steps in a row were not finite (the state is
        saved).
      StoppedError: a signal asked the run to stop; everything is saved.
    """
    begin = time.monotonic()
    folder = folder_on_disk(workdir, jax.process_index())
    folder.mkdir(parents=True, exist_ok=True)
    # 1. Data: steps of `batch_size` samples in one global order, in rows of one width, which decide on the
    # mesh.
    source = resolve_model(config.model)
    corpus = training_data(config.corpus, "config.corpus", workdir)
    identity = identify(source, {"corpus": corpus})
    encoder = Encoder.load(source, ImageStore(corpus), config.max_pixels)
    data = open_sft_data(
        corpus,
        encoder,
        folder,
        config.mesh,
        max_length=config.max_length,
        batch_size=config.batch_size,
        seed=config.seed,
        held_out=config.eval.share,
        held_out_tokens=config.eval.tokens,
        row_tokens=config.row_tokens,
        row_multiple=config.row_multiple,
        threads=config.workers,
    )
    total = math.ceil(config.epochs * data.num_samples / config.batch_size)

    # 2. The policy: a given model, of which adapters or all weights are trained.
    mesh = make_mesh(**dict(data.mesh))
    lora = config.lora if config.trainable == "lora" else None
    model = load_policy(config, source, mesh, lora, config.seed)
    counts = count_parameters(model)
    _, params, frozen = split_model(model, config.trainable)

    # 3. Optimizer and compiled programs.
    schedule = warmup_cosine(config.learning_rate, total, config.warmup_ratio)
    optimizer = adamw(schedule, weight_decay=config.weight_decay, clip_norm=config.clip_norm)
    state = init_state(params, optimizer, mesh)

    options = compiler_options(mesh.devices.flat[0], config.compiler_options)

    def gradient(steps: Any) -> jax.stages.Lowered:
        batch = on_mesh(data.empty_batch(), mesh)
        return steps.run.lower(steps.zero(state.params), state.params, frozen, batch, None, jax.random.key(0))

    graphdef, steps = with_remat(
        config.remat,
        model,
        config.trainable,
        lambda graphdef: sft_steps(graphdef, state, optimizer, config.batch_size, mesh, options),
        gradient,
        resident=state.opt_state,
    )
    evaluator = Evaluator(config.eval, data, graphdef, mesh) if len(data.held_out) else None

    # 4. Resume from the run's own newest checkpoint, if there is one. The position in the data is the number
    # of the step.
    checkpoints = Checkpoints(
        workdir / "checkpoints",
        config.checkpoints_kept,
        config.eval.best if evaluator else "",
        config.eval.best != "eval/loss",
        identity,
    )
    every, fresh = config.checkpoint_every, {"metrics": {}}
    with Loop(STAGE, workdir, total, every, begin, checkpoints, state, fresh) as loop:
        state, metrics = loop.state, loop.extra["metrics"]
        profiler = loop.enter_context(ProfilerWindow(folder, PROFILED_FROM, config.profile_steps))

        def rest() -> dict[str, Any]:
            return {"metrics": plain_values(metrics)}

        # 5. The loop.
        key = jax.random.key(config.seed)
        batches = loop.enter_context(contextlib.closing(data.steps(loop.first, total, config.workers)))
        for step in range(loop.first, total):
            profiler.step(step)
            start = time.monotonic()
            batch = next(batches)
            waited = time.monotonic() - start
            # Random numbers depend on the step alone, so a resumed run draws those of an uninterrupted one.
            step_key = jax.random.fold_in(key, step)
            # A skipped step does not advance the optimizer's schedule.
            rate = float(schedule(step - metrics.get("skipped_steps", 0)))
            state, metrics = run_step(steps, state, frozen, batch, step_key, mesh)
            elapsed = time.monotonic() - start
            metrics |= throughput(config, model, counts, batch, elapsed, mesh)
            if step == loop.first:
                data.packer.warn(metrics["useful_flops"])
            metrics |= {
                "data_wait": waited / elapsed,
                "lr": rate,
                "epoch": (step + 1) * config.batch_size / data.num_samples,
                "batch_ids": hashlib.sha256("\n".join(batch.sample_ids).encode()).hexdigest(),
            }
            done = step + 1
            evaluated = evaluator is not None and (done % config.eval.every == 0 or done == total)
            if evaluator and evaluated:
                evaluation, replies = evaluator(state.params, frozen)
                metrics |= evaluation
                loop.writer.write_replies(done, replies)
            loop.log(done, metrics, f"loss {metrics['loss/train']:.3f}")
            # Also after each evaluation, since the best checkpoint is chosen by its metrics.
            loop.save(done, state, metrics, rest, due=evaluated)
        loop.finish()
        chosen = (checkpoints.best_step() if config.export == "best" else None) or total
        if chosen != total:
            state, extra = checkpoints.restore(chosen, state)
            metrics = extra["metrics"]

    # 6. Export a model folder, and write the report last: a stage is done when its report exists.
    export(nnx.merge(graphdef, state.params, frozen), source, folder, lora, config.model)
    return loop.report(
        {
            "model": config.model,
            "data": str(corpus),
            "trainable": config.trainable,
            "parameters": counts,
            "steps": total,
            "exported_step": chosen,
            **data.summary(),
            "final": plain_values(metrics),
        }
    )


def load_policy(
    config: ComputeConfig, folder: Path, mesh: Mesh, lora: LoRAConfig | None, seed: int
) -> Qwen3VL:
    """Loads the model of `folder` on the mesh, with fresh adapters if `lora` is given."""
    dtype, param_dtype = jnp.dtype(config.dtype), jnp.dtype(config.param_dtype)
    model = load_model(
        folder,
        dtype,
        param_dtype=param_dtype,
        mesh=mesh,
        attention=config.attention,
        attention_block=config.attention_block,
    )
    if config.quantize == "int8":
        quantize_base(model)
    if lora is not None:
        add_lora(model, lora, nnx.Rngs(seed))
        # They were made whole on one device, where the model would keep them next to the trained ones.
        adapters = nnx.state(model, LoRAParam)
        nnx.update(model, jax.device_put(adapters, param_shardings(adapters, mesh)))
    return model


def run_step(
    steps: Steps, state: TrainState, frozen: Any, batch: StepBatch, key: jax.Array, mesh: Mesh
) -> tuple[TrainState, dict[str, Any]]:
    """Runs one optimizer step: adds up the gradients of all micro-batches, then updates.

    Returns:
      The new state, and metrics as floats.
    """
    total = steps.zero(state.params)
    for number, micro_batch in enumerate(batch.micro_batches):
        # Dispatched without waiting: the host puts the next micro-batch on the mesh while this one runs.
        rows = on_mesh(micro_batch, mesh)
        total = steps.add(total, state.params, frozen, rows, jax.random.fold_in(key, number))
    state, metrics = steps.update(state, total)
    return state, {name: float(value) for name, value in jax.device_get(metrics).items()}


def throughput(
    config: SftConfig, model: Qwen3VL, counts: dict[str, int], batch: StepBatch, seconds: float, mesh: Mesh
) -> dict[str, float]:
    """Computes the rates of a step that took `seconds`, and its MFU if the device's peak is known."""

    def flops(work: Work) -> int:
        return training_flops(model.config, work, counts["adapters"], "none", config.trainable).useful

    metrics = {
        "tokens_per_second": batch.useful.tokens / seconds,
        "padding": 1 - batch.useful.tokens / batch.executed.tokens,
        "useful_flops": flops(batch.useful) / flops(batch.executed),
        "step_seconds": seconds,
    }
    share = mfu(flops(batch.useful), seconds, mesh.devices.flat)
    return metrics if share is None else metrics | {"mfu": share}


def export(model: Qwen3VL, source: Path, workdir: Path, lora: LoRAConfig | None, base: str) -> None:
    """Writes `export`, a Hugging Face folder: the model with its adapters merged, the tokenizer of `source`.

    The adapters alone are in `adapters`, a PEFT folder, if `lora` is given: they belong on the model `base`.

    The adapters of a quantized model are merged with the weights of `source`, which are more precise; its own
    are freed. With several processes all of them must call this; the first one writes.
    """
    param_dtype, folder = model.language_model.embed_tokens.embedding.dtype, workdir / "export"
    if lora is not None:
        save_adapters(model, lora, workdir / "adapters", base)
    if is_quantized(model):
        # Both together may not fit the devices.
        for leaf in jax.tree.leaves(base_state(model)):
            leaf.delete()
        whole = load_model(source, model.dtype, param_dtype=param_dtype, mesh=model.attention.mesh)
        move_adapters(model, whole)
        model = whole
    merge_lora(model)
    save_model(model, folder, param_dtype)
    if not is_first():
        return
    # `save_model` has written these; all other text files belong to the tokenizer.
    own = ("config.json", "model.safetensors.index.json")
    for path in sorted(source.iterdir()):
        if path.suffix in (".json", ".txt", ".jinja") and path.name not in own:
            shutil.copyfile(path, folder / path.name)
    logging.info("exported to %s", folder)
