"""What a model needs beside its weights: tokenizer, chat template, image processor, generation defaults."""

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
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.qwen3_vl.tensor_files import INDEX_FILE
from rmsweb_jax.records.files import make_folder, sync_folder, write_atomic

SUMS = "SHA256SUMS"
_PROCESSOR = "Qwen3VLProcessor"
_IMAGES, _VIDEOS = "preprocessor_config.json", "video_preprocessor_config.json"
_TEMPLATE, _OLD_TEMPLATE = "chat_template.jinja", "chat_template.json"
_GENERATION = "generation_config.json"
# Written here, or beside the weights alone; an older form of the chat template would stand beside the new.
_OWN = ("config.json", INDEX_FILE, _IMAGES, _GENERATION, _TEMPLATE, _OLD_TEMPLATE)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder to write into; it becomes `folder` when the block ends, and is gone when it raises.

    Raises:
      UserError: `folder` holds something already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty: delete it, or export to another --workdir")
    make_folder(folder.parent)
    for path in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(path)  # A run that was killed has left it.
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
    """Writes tokenizer, chat template and image processor, of the form and size that was trained with.

    Args:
      export: the trained model's folder; files of its base that it still has are taken over.
      max_pixels: of a resized screenshot.

    Raises:
      UserError: a file is missing or damaged, or the chat template renders another text than was trained on.
    """
    processor = Processor.from_pretrained(export, max_pixels)
    for path in sorted(export.iterdir()):
        if path.suffix in (".json", ".txt", ".jinja") and path.name not in _OWN:
            shutil.copyfile(path, folder / path.name)
    write_atomic(folder / _TEMPLATE, _checked_template(processor, export).encode())
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
    size = {"shortest_edge": unit**2, "longest_edge": max_pixels}
    _write_json(folder / _IMAGES, {**images, **sizes, "size": size, "processor_class": _PROCESSOR})
    if not (folder / _VIDEOS).exists():
        videos = {"video_processor_type": "Qwen3VLVideoProcessor", "processor_class": _PROCESSOR}
        _write_json(folder / _VIDEOS, {**videos, **sizes})


def write_generation(export: Path, folder: Path, temperature: float) -> None:
    """Writes how replies are drawn by default: as the policy was evaluated, and only tokens that it may use.

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
        "pad_token_id": processor.tokenizer.pad_token_id,
        # Vision tokens, and rows of the embedding that belong to no token.
        "suppress_tokens": list(processor.banned_ids),
    }
    _write_json(folder / _GENERATION, content)


def write_sums(folder: Path) -> None:
    """Writes the SHA-256 of every file in the form that `sha256sum --check` reads."""
    lines = []
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    write_atomic(folder / SUMS, "".join(lines).encode())


def _checked_template(processor: Processor, export: Path) -> str:
    """The model's chat template, after comparing it with what `Processor.encode_prompt` renders."""
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
    tokenizer = processor.tokenizer
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
