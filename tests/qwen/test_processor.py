import io
import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import mrope_positions
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from tests.qwen.conftest import BASE

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
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    return Processor(tokenizer, config_of(tokenizer.get_vocab()), max_pixels=64 * 64)


def decode(processor: Processor, tokens: np.ndarray) -> str:
    return processor.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)


def png(width: int, height: int) -> bytes:
    pixels = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_prompt_is_rendered_with_the_image_in_place(processor):
    messages = [
        Message(role="system", content=(TextPart(text="Be brief."),)),
        Message(role="user", content=(TextPart(text="See "), ImagePart(sha256="a"), TextPart(text="?"))),
    ]
    encoded = processor.encode_prompt(messages, {"a": png(128, 64)}.__getitem__)
    rows, columns = encoded.grids[0][1:]
    text = decode(processor, encoded.tokens)
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
    special = [processor.tokenizer.token_to_id(name) for name in CONTROL]
    assert np.isin(tokens, special).sum() == np.isin(plain, special).sum()
    assert control in decode(processor, tokens)
    assert not np.isin(processor.encode_response(control).tokens[:-1], special).any()


@given(st.text(max_size=30), st.data())
def test_token_span_covers_the_characters(processor, text, data):
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    response = processor.encode_response(text)
    first, last = response.token_span(start, stop)
    assert response.tokens[-1] == processor.end_id
    assert decode(processor, response.tokens[first:last]) == text[start:stop]
    assert processor.decode_response(response.tokens) == text


def test_newline_follows_the_end(processor):
    plain, learned = processor.encode_response("ok"), processor.encode_response("ok", newline=True)
    assert learned.tokens[:-1].tolist() == plain.tokens.tolist()
    assert decode(processor, learned.tokens[-1:]) == "\n"
    assert processor.decode_response(learned.tokens) == "ok"


def test_a_control_token_stays_in_a_reply(processor):
    """A reply with one is not the reply without it."""
    stray = np.insert(processor.encode_response("ok").tokens, 0, processor.start_id)
    assert processor.decode_response(stray) == "<|im_start|>ok"


def test_vision_and_unused_ids_are_banned(processor):
    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    assert {*map(processor.tokenizer.token_to_id, names), 299, 290} <= set(processor.banned_ids)
    assert processor.end_id not in processor.banned_ids


def test_mismatched_config_is_refused(processor):
    with pytest.raises(UserError, match=r"image_pad\|> is \d+ in the tokenizer and 90 in config"):
        Processor(processor.tokenizer, BASE)


def without(processor, name: str) -> Tokenizer:
    """The tokenizer of a text model, say: `name` is not in its vocabulary."""
    data = json.loads(processor.tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] != name]
    return Tokenizer.from_str(json.dumps(data))


@pytest.mark.parametrize("name", ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|im_end|>"])
def test_tokenizer_without_a_control_token_is_refused(processor, name):
    with pytest.raises(UserError, match=re.escape(name)):
        Processor(without(processor, name), processor.config)


def test_video_part_is_refused(processor):
    video = SimpleNamespace(type="video_url", video_url={"url": "data:video/mp4;base64,AAAA"})
    message = Message.model_construct(role="user", content=(TextPart(text="See"), video))
    with pytest.raises(UserError, match="video_url"):
        processor.encode_prompt([message], {}.__getitem__)
    with pytest.raises(ValidationError, match="video"):
        Message.model_validate({"role": "user", "content": [{"type": "video", "sha256": "a"}]})


def test_image_that_was_not_given_is_a_user_error(processor):
    message = Message(role="user", content=(ImagePart(sha256="a"), ImagePart(sha256="b")))
    with pytest.raises(UserError, match="image b"):
        processor.encode_prompt([message], {"a": png(64, 64)}.__getitem__)


@pytest.mark.parametrize("change", ["one image less", "one image more", "another size", "images swapped"])
def test_placeholders_that_do_not_match_the_images_are_refused(processor, change):
    sizes = {"a": (64, 64), "b": (64, 32)}
    message = Message(role="user", content=(ImagePart(sha256="a"), TextPart(text=" "), ImagePart(sha256="b")))
    resolve = {name: png(*size) for name, size in sizes.items()}.__getitem__
    encoded = processor.encode_prompt([message], resolve)
    first, second = encoded.grids
    grids = {
        "one image less": [first],
        "one image more": [first, second, second],
        "another size": [first, first],
        "images swapped": [second, first],
    }[change]
    with pytest.raises(UserError, match="image"):
        mrope_positions(encoded.tokens, grids, processor.config)


def test_only_system_texts_of_a_common_length_are_kept(processor):
    def encode(text: str) -> int:
        return len(
            processor.prompt_tokens([Message(role="system", content=(TextPart(text=text),))], {}.get)[0]
        )

    kept = processor._encode_system.cache_info().currsize
    assert encode("x" * 100_000) - encode("y") == 99_999
    assert encode("z" * 60_000) == encode("z" * 60_000)
    assert processor._encode_system.cache_info().currsize == kept + 2
