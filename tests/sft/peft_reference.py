"""The independent trainer: transformers' Qwen3-VL and PEFT in torch, one unpadded sample at a time.

Chat text, labels, loss, optimizer and schedule are transformers', PEFT's and torch's own. Only the cut-up
pixels come from this project (tests/qwen/test_images.py holds them to transformers' image processor).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from rmsweb_jax.qwen.inputs import Grid
from rmsweb_jax.records.schema import ImagePart, SftSample
from tests.references import peft, torch, transformers

IGNORED = -100


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run; `train_reference` fixes AdamW's betas and epsilon and the clip."""

    steps: int
    learning_rate: float
    warmup_ratio: float
    weight_decay: float
    clip_norm: float


class Screenshots(NamedTuple):
    """A sample's images, cut up."""

    patches: tuple[np.ndarray, ...]
    grids: tuple[Grid, ...]


class Curves(NamedTuple):
    """Curves over steps: loss before the update, gradient norm before clipping."""

    losses: list[float]
    norms: list[float]


def chat_text(sample: SftSample, grids: Sequence[Grid]) -> str:
    """The prompt as text; an image is a placeholder for every 2 x 2 patches."""
    sizes = iter(grids)

    def render(part: Any) -> str:
        if not isinstance(part, ImagePart):
            return part.text
        return f"<|vision_start|>{'<|image_pad|>' * (math.prod(next(sizes)) // 4)}<|vision_end|>"

    turns = [
        f"<|im_start|>{message.role}\n{''.join(map(render, message.content))}<|im_end|>\n"
        for message in sample.messages
    ]
    return "".join(turns) + "<|im_start|>assistant\n"


def torch_sample(
    sample: SftSample, screenshots: Screenshots, tokenizer: transformers.PreTrainedTokenizerBase
) -> dict[str, torch.Tensor]:
    """Inputs of the model; labels are the reply, its `<|im_end|>` and the newline."""
    prompt = tokenizer(chat_text(sample, screenshots.grids), add_special_tokens=False)["input_ids"]
    reply = tokenizer(f"{sample.response}<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*prompt, *reply]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.tensor([[IGNORED] * len(prompt) + reply]),
    }
    if screenshots.grids:
        image = torch.tensor(tokenizer.convert_tokens_to_ids("<|image_pad|>"))
        inputs["pixel_values"] = torch.tensor(np.concatenate(screenshots.patches))
        inputs["image_grid_thw"] = torch.tensor(screenshots.grids)
        inputs["mm_token_type_ids"] = torch.eq(ids, image).int()
    return inputs


def train_reference(
    model: Path, adapters: Path, batches: Sequence[Sequence[dict[str, torch.Tensor]]], settings: Settings
) -> tuple[Curves, dict[str, np.ndarray]]:
    """Trains the adapters on `batches`, one a step.

    Returns:
      The curves, and the trained adapters by PEFT's names.
    """
    base = transformers.Qwen3VLForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
    policy = peft.PeftModel.from_pretrained(base, adapters, is_trainable=True).train()
    trained = [value for value in policy.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, settings.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=settings.weight_decay
    )
    warmup = math.ceil(settings.warmup_ratio * settings.steps)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, warmup, settings.steps)
    curves = Curves([], [])
    for batch in batches:
        loss = 0.0
        for sample in batch:
            # Transformers' own loss: the mean over the labels that are not ignored.
            part = policy(**sample, use_cache=False).loss / len(batch)
            part.backward()
            loss += part.item()
        curves.losses.append(loss)
        curves.norms.append(float(torch.nn.utils.clip_grad_norm_(trained, settings.clip_norm)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    trained_folder = adapters.with_name("trained")
    policy.save_pretrained(str(trained_folder))
    return curves, load_file(trained_folder / "adapter_model.safetensors")
