"""Screenshots to patches: the one resize of training, sampling and serving."""

from __future__ import annotations

import io
import math
import struct

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import VisionConfig
from rmsweb_jax.qwen3_vl.inputs import Grid

# As transformers' Qwen2-VL image processors, which refuse anything longer.
MAX_ASPECT = 200
# A few compressed kilobytes may claim more; no screen does.
MAX_SOURCE_PIXELS = 2**26


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
    """An upright RGB image on white, from PNG/JPEG bytes or an image of any mode.

    EXIF rotation is applied, as transformers does when it loads an image, and 16-bit grey keeps its range.

    Raises:
      UserError: the bytes are no image, or it is empty, too long, too large, animated or without RGB form.
    """
    what = f"of {len(source)} bytes" if isinstance(source, bytes) else f"of mode {source.mode}"
    try:
        image = Image.open(io.BytesIO(source)) if isinstance(source, bytes) else source
        _check(image)
        return _on_white(ImageOps.exif_transpose(image))
    except UnidentifiedImageError as error:
        raise UserError(f"an image {what} cannot be read (no known format); send a PNG or JPEG") from error
    # Pillow reports damaged chunks as any of these.
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise UserError(f"an image {what} cannot be read ({error}); send a PNG or JPEG") from error


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Width and height that `open_image` will give, from the header alone."""
    # Pillow would decode a whole PNG to look for EXIF behind its pixels, where nobody writes it.
    if image.format == "PNG" and "exif" not in image.info:
        return image.size
    width, height = image.size
    turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    return (height, width) if turned else (width, height)


def _check(image: Image.Image) -> None:
    width, height = image.size
    if not (width and height):
        raise UserError(f"an image of {width}x{height} pixels has no area; send one that shows something")
    size = f"an image of {width}x{height} pixels is"
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UserError(f"{size} over {MAX_ASPECT} times longer than wide; send a part of it")
    if width * height > MAX_SOURCE_PIXELS:
        raise UserError(f"{size} larger than {MAX_SOURCE_PIXELS:,}; send it smaller")
    # A phone's MPO is a photo that has a preview or a second view after it.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise UserError("an image is animated, and video is not supported; send one frame as a PNG or JPEG")


def _on_white(image: Image.Image) -> Image.Image:
    """RGB of any mode; ValueError where there is no such thing."""
    if image.mode.startswith("I;16"):
        # Pillow would cut every value over 255 to white.
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits a pixel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def image_patches(
    source: bytes | Image.Image, config: VisionConfig, max_pixels: int
) -> tuple[np.ndarray, Grid]:
    """Resizes, normalises and cuts an image.

    Args:
      max_pixels: of the resized image.

    Returns:
      Patches [h * w, 3 * 2 * p * p] float32 in merge-block order (the frame repeated in time), and the
      grid (1, h, w) in patches.

    Raises:
      UserError: as `open_image`.
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
