"""The weights of a release: the merged model in files of a given size, or the adapters by themselves."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import optax
from flax import nnx

from rmsweb_jax.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import make_mesh
from rmsweb_jax.optimizers import adamw, warmup_cosine
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import CONFIG_FILE, WEIGHTS_FILE, save_adapters
from rmsweb_jax.qwen3_vl.tensor_files import (
    TensorFolder,
    TensorInfo,
    plan_files,
    read_header,
    write_folder,
    write_text,
)
from rmsweb_jax.release.run import RL, SFT, TrainingRun
from rmsweb_jax.sft.step import init_state, split_model

_DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ("float32", "float16", "bfloat16")}


def write_merged(run: TrainingRun, folder: Path, max_file_bytes: int) -> None:
    """Writes the exported model's `config.json` and weights: one file, or shards with their index.

    A tensor is in memory at a time.

    Raises:
      UserError: the export is damaged, or a file cannot be written.
    """
    weights = TensorFolder(run.export)
    dtype = _DTYPES[json.loads((run.export / "config.json").read_bytes())["dtype"]]
    infos = [TensorInfo(name, shape, dtype) for name, shape in weights.shapes.items()]
    shutil.copyfile(run.export / "config.json", folder / "config.json")
    write_folder(folder, plan_files(infos, max_file_bytes), weights.read)


def write_adapters(run: TrainingRun, folder: Path, base: str) -> None:
    """Writes the trained adapters as a PEFT folder, from the checkpoint that the run exported.

    The base weights are not needed and not read.

    Args:
      base: path or hub name of the model that the adapters belong to.

    Raises:
      UserError: the run trained every parameter, or that checkpoint is gone or does not fit.
    """
    if run.stage == SFT and run.config["trainable"] != "lora":
        raise UserError(
            f"{run.folder}: every parameter was trained (config.trainable is {run.config['trainable']!r}), "
            "so there are no adapters: export with --config.format=merged"
        )
    lora = LoRAConfig(**run.config["lora"])
    if run.stage == RL:
        lora = dataclasses.replace(lora, targets="attention")
    save_adapters(_trained_model(run, lora), lora, folder, base)
    _name_modules(folder, lora)


def _trained_model(run: TrainingRun, lora: LoRAConfig) -> Qwen3VL:
    """The run's model with its trained adapters; base weights have shapes alone."""
    config = Qwen3VLConfig.from_hf(run.export / "config.json")
    model = nnx.eval_shape(lambda: Qwen3VL(config, rngs=nnx.Rngs(0)))
    add_lora(model, lora, nnx.Rngs(0))
    _, params, _ = split_model(model, "lora")
    state = init_state(params, _optimizer(run), make_mesh(fsdp=-1))
    if not (run.folder / "checkpoints" / str(run.exported_step)).is_dir():
        raise UserError(
            f"{run.folder / 'checkpoints'}: the checkpoint of step {run.exported_step}, which was exported, "
            "is gone: export with --config.format=merged"
        )
    with Checkpoints(run.folder / "checkpoints") as checkpoints:
        restored, _ = checkpoints.restore(run.exported_step, abstract_like(state))
    nnx.update(model, restored.params)
    return model


def _optimizer(run: TrainingRun) -> optax.GradientTransformation:
    """One with the state that the run's checkpoints hold; its figures do not matter."""
    rate: Any = run.config["learning_rate"]
    if run.stage == SFT:
        rate = warmup_cosine(rate, run.report["steps"], run.config["warmup_ratio"])
    return adamw(rate, weight_decay=run.config["weight_decay"], clip_norm=run.config["clip_norm"])


def _name_modules(folder: Path, lora: LoRAConfig) -> None:
    """Lists the adapted modules by name: servers do not read the pattern that PEFT understands.

    With the vision tower the pattern stays, since its names also fit modules without adapters.
    """
    if lora.vision:
        return
    path = folder / CONFIG_FILE
    names = sorted({key.split(".")[-3] for key in read_header(folder / WEIGHTS_FILE)})
    settings = json.loads(path.read_bytes()) | {"target_modules": names}
    write_text(path, json.dumps(settings, indent=2) + "\n")
