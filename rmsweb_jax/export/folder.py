"""The files of an export: the merged model or the adapters, and the processor."""

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

from rmsweb_jax.errors import UserError
from rmsweb_jax.export.lineage import SFT, TrainingRun
from rmsweb_jax.qwen.checkpoint import INDEX_FILE, TensorFolder, read_shapes
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.lora import CONFIG_FILE, WEIGHTS_FILE
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.files import make_folder, sync_folder, write_atomic


def write_merged(run: TrainingRun, folder: Path) -> None:
    """Copies the exported model's `config.json` and weights.

    Raises:
      UserError: the export is damaged.
    """
    files = {run.export / "config.json", *TensorFolder(run.export).files.values()}
    for path in files | set(run.export.glob(INDEX_FILE)):
        shutil.copyfile(path, folder / path.name)


def write_adapters(run: TrainingRun, folder: Path, base: str) -> None:
    """Copies the adapters that training has written.

    Args:
      base: path or Hub name of the model that the adapters belong to.

    Raises:
      UserError: the run trained every parameter, or its adapters are missing or damaged.
    """
    if run.stage == SFT and run.config["trainable"] != "lora":
        raise UserError(
            f"{run.folder}: every parameter was trained (config.trainable is {run.config['trainable']!r}), "
            "so there are no adapters: export with --config.format=merged"
        )
    remedy = "delete this run's report.json and run its command again, which writes them from its checkpoint"
    try:
        adapters = run.adapters
        settings = json.loads((adapters / CONFIG_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{run.folder / 'adapters'}: no adapters ({error}): {remedy}") from error
    read_shapes(adapters / WEIGHTS_FILE, remedy)
    shutil.copyfile(adapters / WEIGHTS_FILE, folder / WEIGHTS_FILE)
    _write_json(folder / CONFIG_FILE, settings | {"base_model_name_or_path": base})


SUMS = "SHA256SUMS"
_PROCESSOR = "Qwen3VLProcessor"
_IMAGES, _VIDEOS = "preprocessor_config.json", "video_preprocessor_config.json"
_TEMPLATE, _OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
_GENERATION = "generation_config.json"
# Before Qwen3.5's template.
_WITHOUT_THOUGHT = "{%- set enable_thinking = false -%}\n"
# Files that the export writes itself; a copied old chat template would contradict the new one.
_OWN = ("config.json", INDEX_FILE, _IMAGES, _GENERATION, _TEMPLATE, _OLD_TEMPLATE)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder, which is renamed to `folder` when the block ends, or removed if it raises.

    Raises:
      UserError: `folder` is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty: delete it, or give another folder")
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
    if Qwen3VLConfig.from_hf(export / "config.json").text.delta is not None:
        # A reply is what follows an empty thought; servers have no such default.
        template, expected = _WITHOUT_THOUGHT + template, expected + "<think>\n\n</think>\n\n"
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    if rendered != expected:
        raise UserError(
            f"{export}: its chat template does not render the text that was trained on: copy that of its "
            "base model there"
        )
    return template


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
