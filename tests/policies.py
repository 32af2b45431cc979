"""A random policy, prompts with screenshots and results, for the tests of both training stages."""

import dataclasses
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from PIL import Image
from safetensors.numpy import load_file, save_file

from rmsweb_jax.qwen.checkpoint import load_model, resolve_model, save_model
from rmsweb_jax.qwen.config import DeltaConfig, Qwen3VLConfig
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, SftSample, TextPart

REPLY = (
    '{"evaluation_previous_goal":"Start","memory":"","next_goal":"Go",'
    '"action":[{"click_element_by_index":{"index":%d}}]}'
)


class KilledError(Exception):
    """Simulates `kill -9`: nothing after it runs."""


# A layer with a recurrence and one with attention, by what differs from one with attention.
RECURRENT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "head_dim": 16,
    "partial_rotary_factor": 0.5,
    "delta": DeltaConfig(
        interval=2,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_conv_kernel_dim=4,
    ),
}


def save_random_policy(folder: Path, **changes: Any) -> None:
    """Writes a model folder with the tiny base's tokenizer; `changes` are those of its decoder."""
    base = resolve_model("tiny_base")
    config = Qwen3VLConfig.from_hf(base / "config.json")
    settings: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "mrope_section": (2, 1, 1),
    }
    text = dataclasses.replace(config.text, **{**settings, **changes})
    vision = dataclasses.replace(
        config.vision,
        depth=1,
        hidden_size=8,
        intermediate_size=8,
        num_heads=1,
        out_hidden_size=16,
        deepstack_visual_indexes=() if text.delta else (0,),
    )
    config = dataclasses.replace(config, text=text, vision=vision)
    save_model(nnx.jit(lambda: Qwen3VL(config, rngs=nnx.Rngs(0), embedding_std=0.5))(), folder)
    for path in base.glob("tokenizer*"):
        shutil.copy(path, folder)


def random_messages(number: int, images: ImageStore, repeats: int) -> tuple[Message, ...]:
    """A system text, then a user text of `repeats` sentences with a screenshot of noise."""
    png = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 255, (64, 96, 3), np.uint8)
    Image.fromarray(noise).save(png, "PNG")
    user = (TextPart(text="Click the button. " * repeats), ImagePart(sha256=images.put(png.getvalue())))
    return (
        Message(role="system", content=(TextPart(text="You act in a browser."),)),
        Message(role="user", content=user),
    )


def write_corpus(folder: Path, repeats: Sequence[int]) -> None:
    """Samples `s0`, `s1`, ... of two to a task, with a screenshot and so many sentences each."""
    images = ImageStore(folder)
    samples = [
        SftSample(
            sample_id=f"s{number}",
            task_id=f"t{number // 2}",
            site="s",
            kind="action",
            messages=random_messages(number, images, times),
            response=REPLY % (number + 1),
        )
        for number, times in enumerate(repeats)
    ]
    write_dataset(folder, samples, "sft_samples")


def perturb(file: Path) -> None:
    """Adds noise to all weights of a safetensors file, which keeps its shapes."""
    rng = np.random.default_rng(0)
    tensors = load_file(file)
    noisy = {
        name: (value + rng.normal(0, 0.01, value.shape)).astype(value.dtype)
        for name, value in tensors.items()
    }
    save_file(noisy, file, {"format": "pt"})


def weights(folder: Path) -> dict[str, Any]:
    """All parameters of a model folder."""
    return nnx.to_pure_dict(nnx.state(load_model(folder)))
