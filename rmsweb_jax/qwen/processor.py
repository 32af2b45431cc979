"""Encodes chat messages as tokens and patches, and decodes replies to text.

System: `<|im_start|>system\\n...<|im_end|>\\n`; user: `<|im_start|>user\\n...<|im_end|>\\n`; the prompt ends
with `<|im_start|>assistant\\n`, in Qwen3.5 also an empty thought; a reply ends with `<|im_end|>`, and `\\n`
follows. Only this module writes control tokens: text that looks like one, for example on a web page, is
encoded as plain text.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import os
import struct
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32, Int32, Integer
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from tokenizers import Tokenizer

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.config import Qwen3VLConfig, VisionConfig
from rmsweb_jax.qwen.inputs import Grid
from rmsweb_jax.records.schema import ImagePart, Message, TextPart

# Longest side over shortest; transformers' Qwen2-VL image processors refuse longer images.
MAX_ASPECT = 200
# More than any screen has; a few compressed kilobytes may claim more (a decompression bomb).
MAX_SOURCE_PIXELS = 2**26


def target_size(width: int, height: int, max_pixels: int, unit: int = 32) -> tuple[int, int]:
    """Computes the size of a resized image, at most `max_pixels` in multiples of `unit`.

    The aspect ratio is kept as nearly as that allows. Example: 1280x720 with 262,144 pixels gives 672x384.
    An image that is thinner than half a unit is scaled to the area of one unit at least, as transformers does
    with `shortest_edge` = unit^2, which the exported preprocessor_config.json says.

    Raises:
      UserError: `max_pixels` is less than one unit.
    """
    most = max_pixels // unit**2
    if most < 1:
        raise UserError(f"max_pixels {max_pixels} is less than one token ({unit}x{unit}); raise it")
    columns, rows = round(width / unit), round(height / unit)
    if columns * rows > most:
        shrink = math.sqrt(width * height / max_pixels)
        columns, rows = max(1, int(width / shrink / unit)), max(1, int(height / shrink / unit))
    elif columns * rows < 1:
        grow = math.sqrt(unit**2 / (width * height))
        columns, rows = math.ceil(width * grow / unit), math.ceil(height * grow / unit)
    # A very long image is as thin as one unit, and then shorter.
    columns, rows = min(columns, most // min(rows, most)), min(rows, most)
    return columns * unit, rows * unit


# Pillow reports damaged files by any of these.
BAD_IMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


def open_image(source: bytes | Image.Image) -> Image.Image:
    """Converts an encoded image, or one of any mode, to RGB on white.

    EXIF rotation is applied, as transformers does on loading, and 16-bit grey keeps its range.

    Raises:
      UserError: the bytes are not an image, or it is empty, too long, too large, animated or has no RGB form.
    """
    what = f"of {len(source)} bytes" if isinstance(source, bytes) else f"of mode {source.mode}"
    try:
        image = Image.open(io.BytesIO(source)) if isinstance(source, bytes) else source
        check_image(image)
        return _on_white(ImageOps.exif_transpose(image))
    except BAD_IMAGE as error:
        # Pillow's own message has the address of a buffer.
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else error
        raise UserError(f"an image {what} cannot be read ({reason}); send a PNG or JPEG") from error


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Returns the width and height of `open_image`'s result; reads the header only."""
    # To look for EXIF after the pixels, where no program writes it, Pillow would decode the whole PNG.
    if image.format == "PNG" and "exif" not in image.info:
        return image.size
    width, height = image.size
    turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    return (height, width) if turned else (width, height)


def check_image(image: Image.Image) -> None:
    """Refuses an image that `open_image` does not convert; reads the header only.

    Raises:
      UserError: it is empty, too long, too large or animated.
    """
    width, height = image.size
    if not (width and height):
        raise UserError(f"an image of {width}x{height} pixels has no area; send one that shows something")
    size = f"an image of {width}x{height} pixels is"
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UserError(f"{size} over {MAX_ASPECT} times longer than wide; send a part of it")
    if width * height > MAX_SOURCE_PIXELS:
        raise UserError(f"{size} larger than {MAX_SOURCE_PIXELS:,}; send it smaller")
    # The MPO files of phones count as animated, but are a photo and its preview or second view.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise UserError("an image is animated, and video is not supported; send one frame as a PNG or JPEG")


def _on_white(image: Image.Image) -> Image.Image:
    """Converts an image of any mode to RGB; raises ValueError for modes without an RGB form."""
    if image.mode.startswith("I;16"):
        # Pillow would clip all values over 255 to white.
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits a pixel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def image_grid(width: int, height: int, config: VisionConfig, max_pixels: int) -> Grid:
    """Computes the grid (1, height, width) of patches of an image of this size in pixels."""
    unit = config.patch_size * config.spatial_merge_size
    columns, rows = target_size(width, height, max_pixels, unit)
    return 1, rows // config.patch_size, columns // config.patch_size


def image_patches(
    source: bytes | Image.Image, config: VisionConfig, max_pixels: int
) -> tuple[Float32[np.ndarray, "patches patch_dim"], Grid]:
    """Resizes and normalizes an image, and cuts it into patches.

    Args:
      max_pixels: limit for the resized image.

    Returns:
      Patches in merge-block order, with the frame repeated in time, and the grid (1, height, width).

    Raises:
      UserError: the image cannot be used, see `open_image`.
    """
    patch, merge = config.patch_size, config.spatial_merge_size
    image = open_image(source)
    grid = image_grid(*image.size, config, max_pixels)
    _, height, width = grid
    image = image.resize((width * patch, height * patch), Image.Resampling.BICUBIC)
    # Mean and standard deviation are 0.5 on all channels.
    pixels = (np.asarray(image, np.float32) / 255 - 0.5) / 0.5
    blocks = pixels.reshape(height // merge, merge, patch, width // merge, merge, patch, 3)
    # [block rows, block columns, merge rows, merge columns, channels, 1, patch rows, patch columns]
    blocks = blocks.transpose(0, 3, 1, 4, 6, 2, 5)[:, :, :, :, :, None]
    # The model expects pairs of video frames; a still image is repeated.
    frames = np.repeat(blocks, config.temporal_patch_size, axis=5)
    return np.ascontiguousarray(frames.reshape(height * width, -1)), grid


MAX_PIXELS = 262_144
# System texts whose tokens are cached, and characters of the longest: a server's clients may send any text.
_SYSTEM_TEXTS, _SYSTEM_CHARS = 64, 65_536
# Returns the image of a SHA-256; raises KeyError if there is none.
ImageResolver = Callable[[str], bytes | Image.Image]

_VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")


@dataclasses.dataclass(frozen=True)
class EncodedPrompt:
    """A tokenized prompt with its images.

    Attributes:
      tokens: with a token for each merged patch of an image.
      patches: patches of each image in merge-block order.
      grids: grid of each image.
    """

    tokens: Int32[np.ndarray, " tokens"]
    patches: tuple[Float32[np.ndarray, "_ patch_dim"], ...]
    grids: tuple[Grid, ...]


@dataclasses.dataclass(frozen=True)
class EncodedResponse:
    """A tokenized reply.

    Attributes:
      tokens: with `<|im_end|>`, and the newline if asked for.
      offsets: first and last + 1 character of each token; an empty range at the text's end for control
        tokens.
    """

    tokens: Int32[np.ndarray, " tokens"]
    offsets: Int32[np.ndarray, "tokens 2"]

    def token_span(self, start: int, stop: int) -> tuple[int, int]:
        """Returns the range of tokens that overlap the characters [start, stop); (0, 0) if none does."""
        touched = np.flatnonzero((self.offsets[:, 1] > start) & (self.offsets[:, 0] < stop))
        return (int(touched[0]), int(touched[-1]) + 1) if len(touched) else (0, 0)


class Processor:
    """The tokenizer and image processor of a model; safe to share between threads.

    Args:
      tokenizer: its vocabulary must hold Qwen's control tokens; it is set to encode all text as plain text.
      config: that of the model.
      max_pixels: limit for resized images.

    Raises:
      UserError: the tokenizer lacks a control token, or disagrees with the config about one.
    """

    def __init__(self, tokenizer: Tokenizer, config: Qwen3VLConfig, max_pixels: int = MAX_PIXELS):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Special tokens in a text are encoded as characters, so that a web page cannot end a message.
        tokenizer.encode_special_tokens = True
        self.tokenizer = tokenizer
        # System texts are long, and the same in a whole corpus.
        self._encode_system = functools.lru_cache(_SYSTEM_TEXTS)(self.encode_text)
        self.config = config
        self.max_pixels = max_pixels
        vocabulary = tokenizer.get_vocab()
        expected = {
            "<|image_pad|>": config.image_token_id,
            "<|vision_start|>": config.vision_start_token_id,
            "<|vision_end|>": config.vision_end_token_id,
        }
        missing = [name for name in ("<|im_start|>", "<|im_end|>", *expected) if name not in vocabulary]
        if missing:
            raise UserError(
                f"the tokenizer lacks {', '.join(missing)}: not Qwen3-VL's own; take the model's files"
            )
        for name, token in expected.items():
            if vocabulary[name] != token:
                raise UserError(
                    f"{name} is {vocabulary[name]} in the tokenizer and {token} in config.json; "
                    "take both from one model"
                )
        if max(vocabulary.values()) >= config.text.vocab_size:
            raise UserError(
                "the tokenizer has more tokens than config.json's vocab_size; take the model's own files"
            )
        self.start_id: int = vocabulary["<|im_start|>"]
        self.end_id: int = vocabulary["<|im_end|>"]
        self._newline = self.encode_text("\n")
        self._opening = self.encode_text("assistant\n")
        if config.text.delta is not None and "<think>" in vocabulary:
            # As Qwen3.5's own template without thinking: a reply is what follows an empty thought.
            blank = self.encode_text("\n\n")
            self._opening += [vocabulary["<think>"], *blank, vocabulary["</think>"], *blank]
        # The most characters that a token stands for.
        self.longest_token: int = max(map(len, vocabulary))
        vision = {vocabulary[name] for name in _VISION_TOKENS if name in vocabulary}
        unused = set(range(config.text.vocab_size)) - set(vocabulary.values())
        # Sampling must never draw these. An image token without an image would break the batch that trains on
        # it, and embedding rows that belong to no token cannot be decoded.
        self.banned_ids: tuple[int, ...] = tuple(sorted(vision | {config.video_token_id} | unused))

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> Processor:
        """Reads tokenizer and config of a model: a folder, or a name as for `resolve_model`."""
        folder = resolve_model(folder)
        config = Qwen3VLConfig.from_hf(folder / "config.json")
        path = folder / "tokenizer.json"
        if not path.exists():
            raise UserError(f"{folder} has no tokenizer.json; copy the tokenizer of its base model there")
        try:
            # Not transformers' AutoTokenizer, which takes longer to import than all other packages together.
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # The package raises nothing more specific.
            raise UserError(f"{path} is no tokenizer: {error}; copy that of its base model there") from error
        return cls(tokenizer, config, max_pixels)

    def encode_prompt(self, messages: Sequence[Message], images: ImageResolver) -> EncodedPrompt:
        """Encodes messages up to where the assistant's reply begins.

        Args:
          images: returns the image of a SHA-256.

        Raises:
          UserError: a part is neither text nor image, or an image is missing or cannot be used.
        """
        patches: list[np.ndarray] = []

        def cut(sha256: str) -> Grid:
            try:
                source = images(sha256)
            except KeyError as error:
                raise UserError(
                    f"a message shows image {sha256}, which was not given; give an image for each image part"
                ) from error
            image, grid = image_patches(source, self.config.vision, self.max_pixels)
            patches.append(image)
            return grid

        tokens, grids = self.prompt_tokens(messages, cut)
        return EncodedPrompt(np.asarray(tokens, np.int32), tuple(patches), grids)

    def prompt_tokens(
        self, messages: Sequence[Message], get_grid: Callable[[str], Grid]
    ) -> tuple[list[int], tuple[Grid, ...]]:
        """Tokenizes messages up to where the assistant's reply begins.

        Args:
          get_grid: SHA-256 of an image -> its grid; called once for each image part, in order.

        Returns:
          The tokens, and the grid of each image.

        Raises:
          UserError: a part is neither text nor image.
        """
        tokens: list[int] = []
        grids: list[Grid] = []
        for message in messages:
            tokens.append(self.start_id)
            text = f"{message.role}\n"
            # Text parts are joined before they are tokenized, since a token may span two of them.
            for part in message.content:
                if isinstance(part, ImagePart):
                    grids.append(get_grid(part.sha256))
                    tokens += self._encode(message.role, text) + self._image_tokens(grids[-1])
                    text = ""
                elif isinstance(part, TextPart):
                    text += part.text
                else:
                    kind = getattr(part, "type", type(part).__name__)
                    raise UserError(
                        f"a {message.role} message has a part of type {kind!r}, only text and image are "
                        "supported; send single frames of a video"
                    )
            tokens += [*self._encode(message.role, text), self.end_id, *self._newline]
        return [*tokens, self.start_id, *self._opening], tuple(grids)

    def encode_response(self, text: str, *, newline: bool = False) -> EncodedResponse:
        """Encodes a reply with its `<|im_end|>`, and if `newline` the newline after it (for SFT)."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        end = (len(text), len(text))
        after = self._newline if newline else []
        tokens = [*encoding.ids, self.end_id, *after]
        offsets = [*encoding.offsets, end, *(end for _ in after)]
        return EncodedResponse(np.asarray(tokens, np.int32), np.asarray(offsets, np.int32))

    def decode_response(self, tokens: Sequence[int] | Integer[np.ndarray, " tokens"]) -> str:
        """Decodes a reply up to its `<|im_end|>`; control tokens before it are kept, as they are no reply."""
        ids = [int(token) for token in tokens]
        ids = ids[: ids.index(self.end_id)] if self.end_id in ids else ids
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode_text(self, text: str) -> list[int]:
        """Encodes plain text; text that looks like a control token is encoded as characters."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids if text else []

    def _encode(self, role: str, text: str) -> list[int]:
        cached = role == "system" and len(text) <= _SYSTEM_CHARS
        return self._encode_system(text) if cached else self.encode_text(text)

    def _image_tokens(self, grid: Grid) -> list[int]:
        count = int(np.prod(grid)) // self.config.vision.merge_unit
        config = self.config
        return [config.vision_start_token_id, *[config.image_token_id] * count, config.vision_end_token_id]
