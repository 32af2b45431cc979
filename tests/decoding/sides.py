"""Our engine and transformers' `generate` on the same random weights: what `make proof-sampler` times."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Responses, Sampling
from rmsweb_jax.decoding.sizes import EngineSizes, sizes_for
from rmsweb_jax.qwen.config import SIZES, Qwen3VLConfig
from rmsweb_jax.qwen.processor import image_patches
from tests.decoding.drawing import generate, requests

PROMPTS, SAMPLES = 4, 8
SPECIAL = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")


def thin() -> Qwen3VLConfig:
    """The 2B model at half its width with a quarter of its heads, 2 of its layers and a small vision tower.

    Prompts' caches to weights, attention to the other matrices' work and the head to the layers then keep
    the proportions of the whole model within a fifth; half the heads would double those of the caches.
    """
    whole = SIZES["2b"]
    words = 4_736
    text = dataclasses.replace(
        whole.text,
        vocab_size=words,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    vision = dataclasses.replace(
        whole.vision,
        depth=2,
        hidden_size=256,
        intermediate_size=1024,
        num_heads=4,
        out_hidden_size=1024,
        deepstack_visual_indexes=(0,),
    )
    special = dict(zip(SPECIAL, range(words - len(SPECIAL), words), strict=True))
    return dataclasses.replace(whole, text=text, vision=vision, **special)


MODELS = {
    "thin": (thin, "half the 2B model's width, 2 layers, 4 heads, 2 of keys and values, 4,736 tokens"),
    "tiny": (lambda: SIZES["tiny"], "the tests' size: hidden 64, 5 layers, 512 tokens"),
}


def special_tokens(config: Qwen3VLConfig) -> tuple[int, ...]:
    """Those that are never drawn."""
    return tuple(getattr(config, name) for name in SPECIAL)


def screenshot(config: Qwen3VLConfig, number: int, image: int) -> Image.Image:
    """A random picture of `image` x `image` tokens."""
    side = image * config.vision.spatial_merge_size * config.vision.patch_size
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def make_prompt(config: Qwen3VLConfig, number: int, length: int, image: int = 0) -> Example:
    """A random prompt of `length` tokens, with a screenshot of `image` x `image` tokens unless that is 0."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, min(special_tokens(config)), length).astype(np.int32)
    patches, grids = (), ()
    if image:
        start, end, inside, _ = special_tokens(config)
        tokens[1 : image**2 + 3] = [start, *[inside] * image**2, end]
        shown, grid = image_patches(screenshot(config, number, image), config.vision, 2**24)
        patches, grids = (shown,), (grid,)
    return Example(f"prompt-{number}", tokens, length, np.zeros(0, bool), patches, grids)


def make_prompts(config: Qwen3VLConfig, length: int, first: int = 0) -> list[Example]:
    """Prompts of one length; the first shows a screenshot on a quarter of it."""
    image = int((length // 4) ** 0.5)
    return [make_prompt(config, first + number, length, image * (number == 0)) for number in range(PROMPTS)]


def unlike_prompts(config: Qwen3VLConfig, count: int) -> list[Example]:
    """Prompts of 40 to 200 tokens; every other one shows a screenshot of 25."""
    lengths = np.random.default_rng(0).integers(40, 201, count)
    return [
        make_prompt(config, number, int(length), 5 * (number % 2)) for number, length in enumerate(lengths)
    ]


def make_sizes(prompts: Sequence[Example], new: int, lanes: int) -> EngineSizes:
    """Sizes for these prompts, as RL chooses them."""
    known = [(prompt.prompt_length, [len(patches) for patches in prompt.patches]) for prompt in prompts]
    return sizes_for(known, samples=SAMPLES, response_tokens=new, lanes=lanes)


@dataclasses.dataclass
class Run:
    """What one call took.

    Attributes:
      seconds: all of it.
      prefill: seconds until the prompts' caches were there.
      responses: ours only.
    """

    seconds: float
    prefill: float
    responses: list[Responses] = dataclasses.field(default_factory=list)

    @property
    def decode(self) -> float:
        return self.seconds - self.prefill


class Timed(Engine):
    """An engine that waits for each chunk of a prefill and counts its seconds."""

    prefill_seconds = 0.0

    def _run_chunk(self, *args: Any) -> Any:
        start = time.perf_counter()
        out = super()._run_chunk(*args)
        jax.block_until_ready(self._slots)
        self.prefill_seconds += time.perf_counter() - start
        return out

    def run(self, prompts: Sequence[Example], new: int) -> Run:
        """Draws `SAMPLES` responses of `new` tokens to each prompt; the engine's end token is none."""
        self.prefill_seconds, start = 0.0, time.perf_counter()
        responses = generate(self, requests(self, prompts, Sampling(SAMPLES, new)))
        return Run(time.perf_counter() - start, self.prefill_seconds, responses)


class Reference:
    """transformers' `generate` with sdpa attention and a dynamic cache, in float32 on all cores.

    Args:
      folder: of the weights.
    """

    def __init__(self, folder: Path):
        model: Any = Qwen3VLForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa"
        )
        self._model = model.eval()

    def generate(self, prompts: Sequence[Example], new: int, together: int) -> Run:
        """Draws `SAMPLES` responses of `new` tokens to each prompt, `together` prompts a call."""
        forwards: list[float] = []

        def begin(*_: Any) -> None:
            forwards.append(-time.perf_counter())

        def end(*_: Any) -> None:
            forwards[-1] += time.perf_counter()

        hooks = [self._model.register_forward_pre_hook(begin), self._model.register_forward_hook(end)]
        total, prefill = 0.0, 0.0
        for at in range(0, len(prompts), together):
            inputs = self._inputs(prompts[at : at + together])
            forwards.clear()
            start = time.perf_counter()
            with torch.no_grad():
                out = self._model.generate(
                    **inputs,
                    do_sample=True,
                    num_return_sequences=SAMPLES,
                    max_new_tokens=new,
                    use_cache=True,
                    return_dict_in_generate=True,
                    # The whole distribution, and no early end.
                    temperature=1.0,
                    top_k=0,
                    top_p=1.0,
                    eos_token_id=None,
                    pad_token_id=0,
                )
            total += time.perf_counter() - start
            assert out.sequences.shape[1] == inputs["input_ids"].shape[1] + new
            prefill += forwards[0]
        for hook in hooks:
            hook.remove()
        return Run(total, prefill)

    def log_probs(self, prompt: Example, response: np.ndarray) -> np.ndarray:
        """Of a response's tokens, by one pass over the whole sequence: [R]."""
        tokens = np.concatenate([prompt.tokens, response])
        inputs = self._inputs([dataclasses.replace(prompt, tokens=tokens)])
        with torch.no_grad():
            logits = self._model(**inputs, logits_to_keep=len(response) + 1).logits[0, :-1]
        picked = torch.from_numpy(response.astype(np.int64))[:, None]
        return torch.log_softmax(logits, -1).gather(1, picked)[:, 0].numpy()

    def _inputs(self, prompts: Sequence[Example]) -> dict[str, torch.Tensor]:
        tokens = torch.from_numpy(np.stack([prompt.tokens for prompt in prompts]).astype(np.int64))
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        patches = [image for prompt in prompts for image in prompt.patches]
        if patches:
            inputs["pixel_values"] = torch.from_numpy(np.concatenate(patches))
            inputs["image_grid_thw"] = torch.tensor([grid for prompt in prompts for grid in prompt.grids])
        inputs["mm_token_type_ids"] = (tokens == self._model.config.image_token_id).int()
        return inputs
