"""The files of an export: the merged model in files of a given size, or the adapters; and the processor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import optax
from flax import nnx

from rmsweb_jax.errors import UserError
from rmsweb_jax.export.lineage import RL, SFT, TrainingRun
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import list_target_modules, save_adapters
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.qwen3_vl.tensor_files import (
    INDEX_FILE,
    TensorFolder,
    TensorInfo,
    plan_files,
    write_folder,
)
from rmsweb_jax.records.files import make_folder, sync_folder, write_atomic
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.optimizer import adamw, warmup_cosine

_DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in ("float32", "float16", "bfloat16")}


def write_merged(run: TrainingRun, folder: Path, max_file_bytes: int) -> None:
    """Writes the exported model's `config.json` and weights: one file, or shards with their index.

    Memory holds one tensor at a time.

    Raises:
      UserError: the export is damaged, or a file cannot be written.
    """
    # The tensors are copied as they are: training has merged the adapters and chosen the dtype.
    weights = TensorFolder(run.export)
    dtype = _DTYPES[json.loads((run.export / "config.json").read_bytes())["dtype"]]
    infos = [TensorInfo(name, shape, dtype) for name, shape in weights.shapes.items()]
    shutil.copyfile(run.export / "config.json", folder / "config.json")
    write_folder(folder, plan_files(infos, max_file_bytes), weights.read)


def write_adapters(run: TrainingRun, folder: Path, base: str) -> None:
    """Writes the trained adapters as a PEFT folder, from the checkpoint that the run exported.

    The base weights are not needed and not read.

    Args:
      base: path or Hub name of the model that the adapters belong to.

    Raises:
      UserError: the run trained every parameter, or its checkpoint is missing or does not fit.
    """
    if run.stage == SFT and run.config["trainable"] != "lora":
        raise UserError(
            f"{run.folder}: every parameter was trained (config.trainable is {run.config['trainable']!r}), "
            "so there are no adapters: export with --config.format=merged"
        )
    lora = LoRAConfig(**run.config["lora"])
    # `targets` is not a key of the settings, so that config.json lacks it.
    if run.stage == RL:
        lora = lora.model_copy(update={"targets": "attention"})
    save_adapters(_trained_model(run, lora), lora, folder, base)
    # With adapters on the vision tower the pattern stays: its names also fit modules without adapters.
    if not lora.vision:
        list_target_modules(folder)


def _trained_model(run: TrainingRun, lora: LoRAConfig) -> Qwen3VL:
    """Makes the run's model with its trained adapters; base weights have shapes only."""
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
    """Makes an optimizer with the state of the run's checkpoints; it is never used to update."""
    # A schedule adds a step count to the state, so SFT's optimizer needs one too.
    rate: Any = run.config["learning_rate"]
    if run.stage == SFT:
        rate = warmup_cosine(rate, run.report["steps"], run.config["warmup_ratio"])
    return adamw(rate, weight_decay=run.config["weight_decay"], clip_norm=run.config["clip_norm"])


SUMS = "SHA256SUMS"
_PROCESSOR = "Qwen3VLProcessor"
_IMAGES, _VIDEOS = "preprocessor_config.json", "video_preprocessor_config.json"
_TEMPLATE, _OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
_GENERATION = "generation_config.json"
# Files that the export writes itself; a copied old chat template would contradict the new one.
_OWN = ("config.json", INDEX_FILE, _IMAGES, _GENERATION, _TEMPLATE, _OLD_TEMPLATE)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder, which is renamed to `folder` when the block ends, or removed if it raises.

    Raises:
      UserError: `folder` is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty: delete it, or export to another --workdir")
    make_folder(folder.parent)
    for path in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(path)  # Left by a killed run.
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        os.rename(temporary, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_processor(export: Path, folder: Path, max_pixels: int) -> None:
    """Writes tokenizer, chat template and image processor with the settings of training.

    Args:
      export: the trained model's folder; its other files, which come from the base model, are copied.
      max_pixels: limit for resized screenshots.

    Raises:
      UserError: a file is missing or damaged, or the chat template does not render the text of training.
    """
    processor = Processor.from_pretrained(export, max_pixels)
    for path in sorted(export.iterdir()):
        if path.suffix in (".json", ".txt", ".jinja") and path.name not in _OWN:
            shutil.copyfile(path, folder / path.name)
    write_atomic(folder / _TEMPLATE, _checked_template(export).encode())
    vision = processor.config.vision
    sizes = {
        "patch_size": vision.patch_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "merge_size": vision.spatial_merge_size,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    images: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessorFast"}
    if (export / _IMAGES).exists():
        images |= json.loads((export / _IMAGES).read_bytes())
    for key in ("min_pixels", "max_pixels"):  # They would override `size`.
        images.pop(key, None)
    unit = vision.patch_size * vision.spatial_merge_size
    # In spite of their names transformers reads both as numbers of pixels.
    size = {"shortest_edge": unit**2, "longest_edge": max_pixels}
    _write_json(folder / _IMAGES, {**images, **sizes, "size": size, "processor_class": _PROCESSOR})
    # Qwen3VLProcessor needs a video processor, although the policy reads no videos.
    if not (folder / _VIDEOS).exists():
        videos = {"video_processor_type": "Qwen3VLVideoProcessor", "processor_class": _PROCESSOR}
        _write_json(folder / _VIDEOS, {**videos, **sizes})


def write_generation(export: Path, folder: Path, temperature: float) -> None:
    """Writes the default sampling parameters: those of the policy's evaluation, with its banned tokens.

    Args:
      temperature: above 0.
    """
    processor = Processor.from_pretrained(export)
    content = {
        "do_sample": True,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "eos_token_id": processor.end_id,
        "pad_token_id": _tokenizer(export).pad_token_id,
        # Vision tokens, and rows of the embedding that belong to no token.
        "suppress_tokens": list(processor.banned_ids),
    }
    _write_json(folder / _GENERATION, content)


def _tokenizer(export: Path) -> Any:
    from transformers import AutoTokenizer  # Takes longer to import than all other packages together.

    return AutoTokenizer.from_pretrained(export)


def write_sums(folder: Path) -> None:
    """Writes the SHA-256 of every file in the format of `sha256sum --check`."""
    lines = []
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    write_atomic(folder / SUMS, "".join(lines).encode())


def _checked_template(export: Path) -> str:
    """Returns the model's chat template, checked to render the same text as `Processor.encode_prompt`."""
    # A server that renders another prompt than training would silently lower the policy's success.
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "One."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Two."},
                {"type": "image"},
                {"type": "text", "text": "Three."},
            ],
        },
    ]
    expected = (
        "<|im_start|>system\nOne.<|im_end|>\n<|im_start|>user\nTwo.<|vision_start|><|image_pad|><|vision_end|>"
        "Three.<|im_end|>\n<|im_start|>assistant\n"
    )
    tokenizer = _tokenizer(export)
    template = tokenizer.chat_template
    if not template and (export / _OLD_TEMPLATE).exists():
        template = json.loads((export / _OLD_TEMPLATE).read_bytes())["chat_template"]
    if not isinstance(template, str) or not template:
        raise UserError(f"{export}: the tokenizer has no chat template: copy that of its base model there")
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    if rendered != expected:
        raise UserError(
            f"{export}: its chat template does not render the text that was trained on: copy that of "
            "Qwen3-VL-Instruct there"
        )
    return template


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
