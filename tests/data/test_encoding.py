import io

import numpy as np
import pytest
from PIL import Image

from rmsweb_jax.data.batching import Branch, Tree
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, SftSample, TextPart

REPLY = '{"evaluation_previous_goal":"Start","memory":"","next_goal":"Go","action":[{"go_back":{}}]}'
END = "<|im_end|>\n"


@pytest.fixture
def store(tmp_path) -> ImageStore:
    return ImageStore(tmp_path)


@pytest.fixture
def encoder(store) -> Encoder:
    return Encoder.load(resolve_model("tiny_base"), store, max_pixels=16_384)


def sample(store: ImageStore, kind="action", response=REPLY) -> SftSample:
    png = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (180, 320, 3), np.uint8)).save(png, "PNG")
    parts = (TextPart(text="A page\n[1]<button />"), ImagePart(sha256=store.put(png.getvalue())))
    return SftSample(
        sample_id="s",
        task_id="t",
        site="s",
        kind=kind,
        messages=(
            Message(role="system", content=(TextPart(text="Act."),)),
            Message(role="user", content=parts),
        ),
        response=response,
    )


def decode(encoder: Encoder, tokens) -> str:
    return encoder.processor.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)


def test_target_is_the_reply_with_its_end_and_newline(encoder, store):
    example = encoder.example(sample(store))
    assert decode(encoder, example.tokens[example.prompt_length :]) == REPLY + END
    assert decode(encoder, example.tokens[: example.prompt_length]).endswith("<|im_start|>assistant\n")


def test_action_mask_is_the_action_list(encoder, store):
    example = encoder.example(sample(store))
    span = decode(encoder, example.tokens[example.prompt_length :][example.action_mask])
    assert '[{"go_back":{}}]' in span
    assert "next_goal" not in span and "im_end" not in span


def test_extractions_have_no_action_span(encoder, store):
    example = encoder.example(sample(store, kind="text", response="The price is 3."))
    assert not example.action_mask.any()


def test_measure_agrees_with_the_example(encoder, store):
    record = sample(store)
    example, measure = encoder.example(record), encoder.size(record)
    assert (measure.length, measure.num_targets) == (example.length, example.num_targets)
    assert measure.prompt_length == example.prompt_length
    assert measure.patches == tuple(len(patches) for patches in example.patches)
    assert (example.tokens == encoder.config.image_token_id).sum() == sum(measure.patches) // 4 > 0
    branch = Branch(example.target)
    assert measure.tree == Tree(example, (branch,)).size


def test_a_missing_screenshot_is_one_line(encoder, store):
    record = sample(store)
    store.path(record.messages[1].content[1].sha256).unlink()
    with pytest.raises(UserError, match="missing screenshot"):
        encoder.size(record)
    with pytest.raises(UserError, match="missing screenshot"):
        encoder.example(record)


def test_a_reply_without_actions_is_one_line(encoder, store):
    with pytest.raises(UserError, match="sample s"):
        encoder.example(sample(store, response="hello"))
