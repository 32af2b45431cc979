"""Screenshots to patches: the one resize of training, sampling and serving."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import VisionConfig
from rmsweb_jax.qwen3_vl.inputs import Grid


def target_size(width: int, height: int, max_pixels: int, unit: int = 32) -> tuple[int, int]:
    """Sides of the resized image: multiples of `unit`, aspect kept nearly, width * height <= max_pixels.

    1280x720 under 262,144 pixels gives 672x384.
    """
    most = max_pixels // unit**2
    if most < 1:
        raise UserError(f"max_pixels {max_pixels} is less than one token ({unit}x{unit}); raise it")
    columns, rows = max(1, round(width / unit)), max(1, round(height / unit))
    if columns * rows > most:
        shrink = math.sqrt(width * height / max_pixels)
        columns, rows = max(1, int(width / shrink / unit)), max(1, int(height / shrink / unit))
        # A very long image is as thin as one unit, and then shorter.
        columns, rows = min(columns, most // min(rows, most)), min(rows, most)
    return columns * unit, rows * unit


def open_image(source: bytes | Image.Image) -> Image.Image:
    """An RGB image on white from PNG/JPEG bytes or an image of any mode.

    Raises:
      UserError: the bytes are not an image.
    """
    if isinstance(source, bytes):
        size = len(source)
        try:
            source = Image.open(io.BytesIO(source))
            source.load()
        # Pillow reports damaged chunks as any of these.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(
                f"an image of {size} bytes cannot be read ({error}); send a PNG or JPEG"
            ) from error
    if source.has_transparency_data:
        source = source.convert("RGBA")
        white = Image.new("RGBA", source.size, "white")
        source = Image.alpha_composite(white, source)
    return source.convert("RGB")


def image_patches(
    source: bytes | Image.Image, config: VisionConfig, max_pixels: int
) -> tuple[np.ndarray, Grid]:
    """Resizes, normalises and cuts an image.

    Returns:
      Patches [h * w, 3 * 2 * p * p] float32 in merge-block order (the frame repeated in time), and the
      grid (1, h, w) in patches.
    """
    patch, merge = config.patch_size, config.spatial_merge_size
    image = open_image(source)
    image = image.resize(target_size(*image.size, max_pixels, patch * merge), Image.Resampling.BICUBIC)
    pixels = (np.asarray(image, np.float32) / 255 - 0.5) / 0.5
    height, width = pixels.shape[0] // patch, pixels.shape[1] // patch
    blocks = pixels.reshape(height // merge, merge, patch, width // merge, merge, patch, 3)
    blocks = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    frames = np.repeat(blocks, config.temporal_patch_size, axis=5)
    return np.ascontiguousarray(frames.reshape(height * width, -1)), (1, height, width)
