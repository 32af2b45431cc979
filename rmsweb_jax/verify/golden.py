"""Golden logits: what transformers computes from a model's weights, in a small file.

The prompts are made here: random tokens, the same with an image, and, for a folder with a tokenizer, a text
with and without the image. The file holds their tokens, and of the logits the largest at each position and
two whole rows. It is written where torch and the weights are, and read where an accelerator is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float32, Int32
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from rmsweb_jax.data.batching import Branch, Example, Tree, lay_out, on_mesh, round_up
from rmsweb_jax.data.packing import Part, RowShape
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import MAX_PIXELS, Processor, image_patches
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from rmsweb_jax.training.mesh import row_shards
from rmsweb_jax.verify.checks import Check, at_least, at_most

_FORMAT = "1"
_TOP, _RANDOM_TOKENS, _IMAGE_SIDES = 16, 48, (4, 3)
_TEXT = (
    "The page shows a table of flights from Oslo to Lisbon on Friday, with departure times and prices. Which "
    "flight is the cheapest, and when does it land? Answer in one sentence."
)
# Of differences over the standard deviation of a row's logits, and of the share of positions with the same
# most likely token. Random weights of the 2B model's shape leave narrow margins between tokens.
_LIMITS = {"float32": (1e-3, 0.99), "bfloat16": (0.1, 0.9)}


@dataclasses.dataclass(frozen=True)
class GoldenPrompt:
    """A prompt, and what the reference computed at each of its positions.

    Attributes:
      image: it has the image of `golden_image`.
      top_ids, top_logits: the largest logits and their tokens, largest first.
      std: standard deviation of a position's logits.
      rows: positions of which `whole` has all logits.
    """

    name: str
    image: bool
    tokens: Int32[np.ndarray, " tokens"]
    top_ids: Int32[np.ndarray, "tokens top"]
    top_logits: Float32[np.ndarray, "tokens top"]
    std: Float32[np.ndarray, " tokens"]
    rows: Int32[np.ndarray, " rows"]
    whole: Float32[np.ndarray, "rows vocab"]


_ARRAYS = ("tokens", "top_ids", "top_logits", "std", "rows", "whole")


@dataclasses.dataclass(frozen=True)
class Golden:
    """The content of a file: its prompts, and the versions that wrote it."""

    prompts: tuple[GoldenPrompt, ...]
    versions: dict[str, str]


def config_digest(config: Qwen3VLConfig) -> str:
    """Digest of a model's architecture."""
    return hashlib.sha256(json.dumps(config.to_hf(), sort_keys=True).encode()).hexdigest()


def golden_image(config: Qwen3VLConfig) -> Image.Image:
    """A gradient with a bar, of 4 x 3 tokens, so that nothing is resized."""
    unit = config.vision.patch_size * config.vision.spatial_merge_size
    columns, rows = (unit * side for side in _IMAGE_SIDES)
    y, x = np.indices((rows, columns))
    pixels = np.stack([255 * x // columns, 255 * y // rows, 128 + 0 * x], -1)
    pixels[rows // 3 : rows // 2, columns // 4 :] = (250, 20, 60)
    return Image.fromarray(pixels.astype(np.uint8))


def num_text_tokens(config: Qwen3VLConfig) -> int:
    """Number of tokens of text; they come first in the vocabulary."""
    special = (config.image_token_id, config.video_token_id)
    return min(*special, config.vision_start_token_id, config.vision_end_token_id)


def random_tokens(config: Qwen3VLConfig, *, image: bool) -> list[int]:
    """Tokens drawn without the model's tokenizer; the image, if any, is among them."""
    rng = np.random.default_rng(int(image))
    text = rng.integers(0, num_text_tokens(config), _RANDOM_TOKENS).tolist()
    if not image:
        return text
    shown = [config.image_token_id] * math.prod(_IMAGE_SIDES)
    return [*text[:8], config.vision_start_token_id, *shown, config.vision_end_token_id, *text[8:]]


# --- Writing, with transformers and torch ---


def write_golden(path: Path, folder: Path) -> None:
    """Computes the logits in float32 on the CPU, and writes the file.

    Args:
      folder: the model.

    Raises:
      UserError: torch is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError("golden logits are computed by transformers in torch: pip install torch") from error
    from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    config = Qwen3VLConfig.from_hf(folder / "config.json")
    vision, image = config.vision, golden_image(config)
    size = image.width * image.height
    pixels = Qwen2VLImageProcessorPil(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": size, "longest_edge": size},
    )(images=[image], return_tensors="pt")
    prompts = [
        (f"random{' image' * shown}", shown, random_tokens(config, image=shown)) for shown in (False, True)
    ]
    if (folder / "tokenizer.json").exists():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        for shown in (False, True):
            pad = "<|image_pad|>" * math.prod(_IMAGE_SIDES)
            body = _TEXT + f"<|vision_start|>{pad}<|vision_end|>" * shown
            text = f"<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"
            prompts.append(
                (f"text{' image' * shown}", shown, tokenizer.encode(text, add_special_tokens=False))
            )
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tensors: dict[str, np.ndarray] = {}
    for number, (_, shown, tokens) in enumerate(prompts):
        ids = torch.tensor([tokens])
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if shown:
            inputs |= {**pixels, "mm_token_type_ids": (ids == config.image_token_id).int()}
        with torch.inference_mode():
            logits = model(**inputs).logits[0].float()
        top, rows = logits.topk(min(_TOP, logits.shape[1])), [len(tokens) // 2, len(tokens) - 1]
        arrays = (ids[0], top.indices, top.values, logits.std(-1), torch.tensor(rows), logits[rows])
        for name, array in zip(_ARRAYS, arrays, strict=True):
            found = array.numpy()
            tensors[f"{number}.{name}"] = found.astype(np.int32 if found.dtype == np.int64 else np.float32)
    about = {
        "format": _FORMAT,
        "config": config_digest(config),
        "versions": json.dumps({name: metadata.version(name) for name in ("torch", "transformers")}),
        "prompts": json.dumps([[name, bool(shown)] for name, shown, _ in prompts]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save(tensors, about))


# --- Reading ---


def read_golden(path: Path, config: Qwen3VLConfig) -> Golden:
    """Reads a file.

    Raises:
      UserError: it is no file of golden logits, or that of another model.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != _FORMAT:
                raise UserError(f"{path} is no file of golden logits of this version: write it again")
            if about["config"] != config_digest(config):
                raise UserError(f"{path} is of another model than this config.json: write one for this model")
            prompts = tuple(
                GoldenPrompt(name, shown, *(file.get_tensor(f"{number}.{key}") for key in _ARRAYS))
                for number, (name, shown) in enumerate(json.loads(about["prompts"]))
            )
            return Golden(prompts, json.loads(about["versions"]))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is no file of golden logits ({error}): write it again") from error


# --- Comparing ---


def compare_golden(golden: Golden, model: Qwen3VL, folder: Path, mesh: Any) -> Iterator[Check]:
    """Compares the logits of `model` without its adapters, and the tokens of the prompts' texts."""
    dtype = jnp.dtype(model.dtype).name
    limit, agreement = _LIMITS[dtype]
    written = ", ".join(f"{name} {version}" for name, version in golden.versions.items())
    graphdef, state = nnx.split(model)
    config = model.config
    image = image_patches(golden_image(config), config.vision, MAX_PIXELS)
    width = round_up(max(len(prompt.tokens) for prompt in golden.prompts), 128)
    window = round_up(len(image[0]), config.vision.merge_unit)
    # The mesh must divide the rows: those that are not read are padding.
    shape = RowShape(width, row_shards(mesh), images=1, window=window)
    compute = jax.jit(lambda state, inputs: _logits(nnx.merge(graphdef, state), inputs))
    for prompt in golden.prompts:
        patches, grids = ((image[0],), (image[1],)) if prompt.image else ((), ())
        example = Example(prompt.name, prompt.tokens, len(prompt.tokens), np.zeros(0, bool), patches, grids)
        tree = Tree(example, (Branch(example.target),))
        batch = lay_out(lambda _, tree=tree: tree, [(Part(0, ()),)], shape, config)
        logits = np.asarray(compute(state, on_mesh(batch, mesh).inputs))[: len(prompt.tokens)]
        std = prompt.std[:, None]
        top = np.abs(np.take_along_axis(logits, prompt.top_ids, 1) - prompt.top_logits) / std
        whole = np.abs(logits[prompt.rows] - prompt.whole) / std[prompt.rows]
        name = f"golden logits, {prompt.name}, {len(prompt.tokens)} tokens"
        note = f"of a standard deviation of {float(prompt.std.mean()):.2f}; by {written}"
        yield at_most(f"{name}: largest difference", float(np.max([top.max(), whole.max()])), limit, note)
        same = float((logits.argmax(1) == prompt.top_ids[:, 0]).mean())
        yield at_least(f"{name}: same most likely token", same, agreement, dtype)
    texts = [prompt for prompt in golden.prompts if prompt.name.startswith("text")]
    if texts:
        yield _same_tokens(texts, folder, config)


def _logits(model: Qwen3VL, inputs: Any) -> Float32[jax.Array, "tokens vocab"]:
    """Logits of the first row."""
    return model.logits(model(inputs, adapters=False)[:1])[0]


def _same_tokens(texts: list[GoldenPrompt], folder: Path, config: Qwen3VLConfig) -> Check:
    processor, image = Processor.from_pretrained(folder), golden_image(config)
    differing = 0
    for prompt in texts:
        parts = (TextPart(text=_TEXT), *[ImagePart(sha256="0" * 64)] * prompt.image)
        ours = processor.encode_prompt([Message(role="user", content=parts)], lambda _: image).tokens
        differing += ours.tolist() != prompt.tokens.tolist()
    return at_most(f"tokens of {len(texts)} texts that differ from transformers'", differing, 0)
