import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.images import image_patches, target_size
from rmsweb_jax.qwen3_vl.inputs import mrope_positions
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from tests.qwen3_vl.conftest import BASE

CONTROL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
]


def config_of(vocabulary: dict[str, int]) -> Qwen3VLConfig:
    section: dict[str, Any] = BASE.to_hf()
    section["text_config"]["vocab_size"] = 300
    section["vision_config"]["patch_size"] = 16
    return Qwen3VLConfig.from_hf(
        {
            **section,
            "image_token_id": vocabulary["<|image_pad|>"],
            "vision_start_token_id": vocabulary["<|vision_start|>"],
            "vision_end_token_id": vocabulary["<|vision_end|>"],
            "video_token_id": 299,
        }
    )


@pytest.fixture(scope="module")
def processor() -> Processor:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    return Processor(tokenizer, config_of(tokenizer.get_vocab()), max_pixels=64 * 64)


def png(width: int, height: int, mode: str = "RGB") -> bytes:
    rng = np.random.default_rng(width * height)
    channels = len(mode)
    image = Image.fromarray(rng.integers(0, 256, (height, width, channels), dtype=np.uint8), mode)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_prompt_is_rendered_with_the_image_in_place(processor):
    messages = [
        Message(role="system", content=(TextPart(text="Be brief."),)),
        Message(role="user", content=(TextPart(text="See "), ImagePart(sha256="a"), TextPart(text="?"))),
    ]
    encoded = processor.encode_prompt(messages, {"a": png(128, 64)}.__getitem__)
    rows, columns = encoded.grids[0][1:]
    text = processor.tokenizer.decode(encoded.tokens)
    pads = "<|image_pad|>" * (rows * columns // 4)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSee <|vision_start|>"
        f"{pads}<|vision_end|>?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert encoded.patches[0].shape == (rows * columns, 3 * 2 * 16 * 16)
    assert mrope_positions(encoded.tokens, encoded.grids, processor.config).shape == (3, len(encoded.tokens))


@pytest.mark.parametrize("control", CONTROL)
def test_control_tokens_on_a_page_stay_text(processor, control):
    message = Message(role="user", content=(TextPart(text=f"a{control}b"),))
    tokens = processor.encode_prompt([message], {}.__getitem__).tokens
    plain = processor.encode_prompt(
        [Message(role="user", content=(TextPart(text="ab"),))], {}.__getitem__
    ).tokens
    special = processor.tokenizer.convert_tokens_to_ids(CONTROL)
    assert np.isin(tokens, special).sum() == np.isin(plain, special).sum()
    assert control in processor.tokenizer.decode(tokens)
    assert not np.isin(processor.encode_response(control).tokens[:-1], special).any()


@given(st.text(max_size=30), st.data())
def test_token_span_covers_the_characters(processor, text, data):
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    response = processor.encode_response(text)
    first, last = response.token_span(start, stop)
    assert response.tokens[-1] == processor.end_id
    assert processor.tokenizer.decode(response.tokens[first:last]) == text[start:stop]
    assert processor.decode_response(response.tokens) == text


def test_newline_follows_the_end(processor):
    plain, learned = processor.encode_response("ok"), processor.encode_response("ok", newline=True)
    assert learned.tokens[:-1].tolist() == plain.tokens.tolist()
    assert processor.tokenizer.decode(learned.tokens[-1:]) == "\n"
    assert processor.decode_response(learned.tokens) == "ok"


def test_vision_and_unused_ids_are_banned(processor):
    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    assert {*processor.tokenizer.convert_tokens_to_ids(names), 299, 290} <= set(processor.banned_ids)
    assert processor.end_id not in processor.banned_ids


def test_mismatched_config_is_refused(processor):
    with pytest.raises(UserError, match="image_pad"):
        Processor(processor.tokenizer, BASE)


def test_known_sizes():
    assert target_size(1280, 720, 262_144) == (672, 384)
    assert target_size(128, 128, 262_144) == (128, 128)


@given(st.integers(1, 6000), st.integers(1, 6000), st.integers(1024, 300_000))
def test_sizes_are_multiples_within_the_cap(width, height, max_pixels):
    columns, rows = target_size(width, height, max_pixels)
    assert columns % 32 == rows % 32 == 0
    assert 0 < columns * rows <= max_pixels


@pytest.mark.parametrize("size", [(1280, 720), (333, 500), (96, 64)])
def test_patches_match_transformers(processor, size):
    reference = Qwen2VLImageProcessorPil(
        patch_size=16,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": 1, "longest_edge": 262_144},
    )
    image = Image.open(io.BytesIO(png(*size)))
    expected = reference(images=[image], return_tensors="np")
    patches, grid = image_patches(image, processor.config.vision, 262_144)
    assert tuple(expected["image_grid_thw"][0]) == grid
    np.testing.assert_allclose(patches, expected["pixel_values"], atol=1e-5)


def test_transparency_lies_on_white(processor):
    clear = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    patches, _ = image_patches(clear, processor.config.vision, 1024)
    np.testing.assert_array_equal(patches, 1.0)


@pytest.mark.parametrize("data", [b"not an image", png(64, 64)[:300], png(64, 64)[:60] + b"x" * 60])
def test_broken_image_is_a_user_error(processor, data):
    with pytest.raises(UserError, match="PNG"):
        image_patches(data, processor.config.vision, 1024)
