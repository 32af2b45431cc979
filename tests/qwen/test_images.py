"""Images of any mode are resized as in the reference; invalid ones are refused in one line."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from rmsweb_jax.errors import UserError
from rmsweb_jax.export.folder import write_processor
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.processor import Processor, image_patches, open_image, target_size, upright_size
from tests.qwen.conftest import BASE
from tests.references import transformers

CAP = 262_144


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_of(rows: np.ndarray, depth: int, color_type: int, claimed: tuple[int, int] | None = None) -> bytes:
    """A PNG that Pillow cannot write: 16-bit samples [height, width * channels], or a size that is a lie."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    channels = {0: 1, 2: 3}[color_type]
    size = claimed or (rows.shape[1] // channels, len(rows))
    header = struct.pack(">IIBBBBB", *size, depth, color_type, 0, 0, 0)
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in rows)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def test_known_sizes():
    assert target_size(1280, 720, CAP) == (672, 384)
    assert target_size(128, 128, CAP) == (128, 128)


@given(st.integers(1, 6000), st.integers(1, 6000), st.integers(1024, 300_000))
def test_sizes_are_multiples_within_the_cap(width, height, max_pixels):
    columns, rows = target_size(width, height, max_pixels)
    assert columns % 32 == rows % 32 == 0
    assert 0 < columns * rows <= max_pixels


@given(st.integers(1, 3000), st.integers(1, 3000))
@example(1, 150)
@example(200, 1)
@example(15, 3000)
@example(16, 17)
def test_sizes_are_transformers_own(width, height):
    # Beyond this aspect a side is one token, and the reference then exceeds the cap.
    if max(width, height) <= 200 * min(width, height):
        reference = transformers.models.qwen2_vl.image_processing_pil_qwen2_vl
        expected = reference.smart_resize(height, width, factor=32, min_pixels=32**2, max_pixels=CAP)[::-1]
        assert target_size(width, height, CAP) == expected or expected[0] * expected[1] > CAP


@pytest.mark.parametrize("size", [(1280, 720), (333, 500), (96, 64), (40, 500), (700, 90)])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_patches_match_transformers(size, mode):
    reference = transformers.Qwen2VLImageProcessorPil(
        patch_size=BASE.vision.patch_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": 1, "longest_edge": 16_384},
    )
    image = noise(*size).convert(mode)
    expected = reference(images=[image], return_tensors="np")
    patches, grid = image_patches(image, BASE.vision, 16_384)
    assert tuple(expected["image_grid_thw"][0]) == grid
    np.testing.assert_allclose(patches, expected["pixel_values"], atol=1e-5)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P"])
def test_transparency_is_composed_on_white(mode):
    clear = Image.new("RGBA", (32, 32), (0, 0, 0, 0)).convert("RGBA" if mode == "P" else mode)
    data = encoded(clear.quantize(), transparency=0) if mode == "P" else clear
    patches, _ = image_patches(data, BASE.vision, 1024)
    np.testing.assert_array_equal(patches, 1.0)


def test_half_transparency_is_mixed():
    image = open_image(Image.new("RGBA", (2, 2), (0, 0, 255, 128)))
    np.testing.assert_allclose(image.getpixel((0, 0)), (127, 127, 255), atol=1)


def test_cmyk_and_palette_keep_their_colors():
    red = Image.new("RGB", (32, 32), (255, 0, 0))
    jpeg = encoded(red.convert("CMYK"), "JPEG", quality=100)
    for source in (red.convert("CMYK"), jpeg, red.quantize(4), encoded(red.quantize(4))):
        np.testing.assert_allclose(open_image(source).getpixel((9, 9)), (255, 0, 0), atol=3)


def test_sixteen_bits_keep_their_range():
    ramp = np.arange(0, 65_536, 257, np.uint16).reshape(16, 16)
    expected = np.arange(256).reshape(16, 16)
    for source in (Image.fromarray(ramp), png_of(ramp, 16, 0)):
        np.testing.assert_array_equal(np.asarray(open_image(source))[..., 0], expected)
    colored = np.asarray(open_image(png_of(np.repeat(ramp, 3, axis=1), 16, 2)))
    np.testing.assert_array_equal(colored, np.repeat(expected[..., None], 3, axis=2))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_exif_rotation_is_applied(orientation, kind):
    # Upright, the light corner is at the top left of a wide picture.
    upright = Image.new("L", (96, 32))
    upright.paste(255, (0, 0, 16, 16))
    turns = [
        None,
        Image.Transpose.FLIP_LEFT_RIGHT,
        Image.Transpose.ROTATE_180,
        Image.Transpose.FLIP_TOP_BOTTOM,
        Image.Transpose.TRANSPOSE,
        Image.Transpose.ROTATE_90,
        Image.Transpose.TRANSVERSE,
        Image.Transpose.ROTATE_270,
    ]
    turn = turns[orientation - 1]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stored = upright if turn is None else upright.transpose(turn)
    data = encoded(stored, kind, exif=exif)
    image = open_image(data)
    np.testing.assert_allclose(np.asarray(image)[..., 0], np.asarray(upright), atol=12)
    assert upright_size(Image.open(io.BytesIO(data))) == image.size == upright.size
    np.testing.assert_array_equal(open_image(image), image)
    assert image_patches(data, BASE.vision, CAP)[1] == (1, 8, 24)


def animation(kind: str) -> bytes:
    return encoded(noise(8, 8), kind, save_all=True, append_images=[Image.new("RGB", (8, 8))])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Image.new("RGB", (0, 5)), "0x5 pixels has no area"),
        (Image.new("RGB", (7, 0)), "7x0 pixels has no area"),
        (Image.new("L", (201, 1)), "201x1 pixels is over 200"),
        (encoded(Image.new("L", (2, 500))), "2x500 pixels is over 200"),
        (png_of(np.zeros((1, 1)), 16, 0, (9000, 9000)), "9000x9000 pixels is larger"),
        (png_of(np.zeros((1, 1)), 16, 0, (90_000, 90_000)), "bomb"),
        (Image.new("F", (8, 8)), "32 bits"),
        (Image.new("La", (8, 8)), "La"),
        (animation("GIF"), "animated"),
        (animation("WEBP"), "animated"),
        (animation("PNG"), "animated"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "no known format"),
        (b"not an image", "PNG or JPEG"),
        (b"", "PNG or JPEG"),
        (encoded(noise(64, 64))[:300], "PNG or JPEG"),
        (encoded(noise(64, 64))[:60] + b"x" * 60, "PNG or JPEG"),
    ],
)
def test_invalid_images_give_one_line(source, message):
    with pytest.raises(UserError, match=message) as refused:
        image_patches(source, BASE.vision, CAP)
    assert "\n" not in str(refused.value)


def test_an_aspect_of_200_works():
    assert image_patches(noise(400, 2), BASE.vision, CAP)[1] == (1, 2, 30)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Processor, transformers.Qwen2VLImageProcessorPil]:
    """The packaged model's processor, and transformers' by the files that the export writes for it."""
    folder = tmp_path_factory.mktemp("exported")
    write_processor(resolve_model("tiny_base"), folder, CAP)
    settings = json.loads((folder / "preprocessor_config.json").read_bytes())
    del settings["image_processor_type"], settings["processor_class"]
    return Processor.from_pretrained("tiny_base", CAP), transformers.Qwen2VLImageProcessorPil(**settings)


@pytest.mark.parametrize(
    "size",
    [
        *((1, 1), (1, 150), (200, 1), (3, 7), (15, 15), (16, 16), (15, 40), (40, 15)),
        *((17, 31), (31, 33), (15, 2900), (2000, 11), (48, 48), (1280, 720)),
    ],
)
def test_small_images_are_those_of_the_exported_preprocessor(exported, size):
    ours, theirs = exported
    image = noise(*size)
    expected = theirs(images=[image], return_tensors="np")
    patches, grid = image_patches(image, ours.config.vision, ours.max_pixels)
    assert tuple(expected["image_grid_thw"][0]) == grid
    np.testing.assert_array_equal(patches, expected["pixel_values"])


PICTURES = [
    encoded(noise(24, 16), kind, **options)
    for kind, options in [("PNG", {}), ("JPEG", {}), ("GIF", {}), ("WEBP", {"lossless": True}), ("TIFF", {})]
]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
@given(st.sampled_from(PICTURES), st.data())
def test_damage_never_ends_in_anything_else(picture, data):
    damaged = bytearray(picture)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, min(200, len(damaged) - 1)))] = data.draw(st.integers(0, 255))
    try:
        image = open_image(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert image.mode == "RGB"
