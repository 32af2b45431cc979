"""The measured batch: seeded rows of an image, text and a scored response, in one file for both sides."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from rmsweb_jax.data.batching import BatchShapes, Example, SftBatch, collate, single_rows
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import Grid, mrope_positions


def image_grid(config: Qwen3VLConfig, max_pixels: int) -> Grid:
    """Of the largest square image of at most `max_pixels`."""
    vision = config.vision
    unit = vision.patch_size * vision.spatial_merge_size
    side = max(1, math.isqrt(max_pixels) // unit) * vision.spatial_merge_size
    return 1, side, side


def write_rows(
    path: Path, config: Qwen3VLConfig, *, rows: int, length: int, response: int, max_pixels: int, seed: int
) -> None:
    """Writes tokens [B, T], positions [3, B, T], patches, grids [B, 3] and the image token.

    Raises:
      UserError: image and response do not fit a row.
    """
    grid = image_grid(config, max_pixels)
    patches = math.prod(grid)
    image = patches // config.vision.merge_unit
    # The two tokens around the image, and one of text before the response.
    text = length - image - 2
    if text < response + 1:
        raise UserError(
            f"config.length={length} does not hold an image of {image} tokens and a config.response of "
            f"{response}: make it {image + response + 3} or more"
        )
    rng = np.random.default_rng(seed)
    start = [config.vision_start_token_id, *[config.image_token_id] * image, config.vision_end_token_id]
    words = rng.integers(0, _words(config), (rows, text))
    tokens = np.concatenate([np.tile(start, (rows, 1)), words], axis=1).astype(np.int32)
    np.savez(
        path,
        tokens=tokens,
        positions=np.stack([mrope_positions(row, [grid], config) for row in tokens], axis=1),
        patches=rng.standard_normal((rows * patches, config.vision.patch_dim), np.float32),
        grids=np.tile(grid, (rows, 1)),
        image_token=config.image_token_id,
    )


def _words(config: Qwen3VLConfig) -> int:
    """Tokens below this number are text."""
    special = (config.image_token_id, config.video_token_id)
    return min(*special, config.vision_start_token_id, config.vision_end_token_id)


def load_batch(path: str | os.PathLike[str], config: Qwen3VLConfig, response: int) -> SftBatch:
    """The rows as supervised fine-tuning batches them."""
    with np.load(path) as file:
        tokens, grids, patches = file["tokens"], file["grids"], file["patches"]
    rows, length = tokens.shape
    images = np.split(patches, rows)
    examples = [
        Example(
            sample_id=str(number),
            tokens=tokens[number],
            prompt_length=length - response,
            action_mask=np.zeros(response, bool),
            patches=(images[number],),
            grids=(_grid(grids[number]),),
        )
        for number in range(rows)
    ]
    shapes = BatchShapes(rows, (length,), num_targets=response, images=1, window=len(images[0]))
    return collate(single_rows(examples, rows), shapes, length, config)


def _grid(values: np.ndarray) -> Grid:
    frames, height, width = values.tolist()
    return frames, height, width
