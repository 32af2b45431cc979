"""Two samplers of the same random weights, ours and transformers' `generate`: what `proof_sampler` times."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from transformers import Qwen3VLForConditionalGeneration

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.pool import DecodePool, PromptState
from rmsweb_jax.decoding.sampler import PromptShapes, Responses, Sampler, SamplingParams
from rmsweb_jax.qwen3_vl.config import SIZES, Qwen3VLConfig
from rmsweb_jax.training.mesh import make_mesh

SAMPLES = 8
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


def make_prompt(config: Qwen3VLConfig, number: int, length: int, image: int = 0) -> Example:
    """A random prompt of `length` tokens, with a screenshot of `image` x `image` tokens unless that is 0."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, min(special_tokens(config)), length).astype(np.int32)
    patches, grids = (), ()
    if image:
        start, end, inside, _ = special_tokens(config)
        tokens[1 : image**2 + 3] = [start, *[inside] * image**2, end]
        side = image * config.vision.spatial_merge_size
        grids = ((1, side, side),)
        patches = (rng.standard_normal((side * side, config.vision.patch_dim), np.float32),)
    return Example(f"prompt-{number}", tokens, length, np.zeros(0, bool), patches, grids)


def make_sampler(config: Qwen3VLConfig, prompts: Sequence[Example], slots: int) -> Sampler:
    """A sampler with `slots` slots, for prompts padded to the longest of them."""
    window = max((int(np.prod(grid)) for prompt in prompts for grid in prompt.grids), default=0)
    width = max(prompt.prompt_length for prompt in prompts)
    shapes = PromptShapes(slots, (width,), images=int(window > 0), window=window)
    return Sampler(config, shapes, make_mesh())


@dataclasses.dataclass
class Run:
    """What one call took.

    Attributes:
      seconds: all of it.
      prefill: seconds until the prompts' caches were there.
      steps: decoding steps of all lanes.
      cache_bytes: keys and values at the end.
      responses: ours only.
    """

    seconds: float
    prefill: float
    steps: int
    cache_bytes: int
    responses: list[Responses] = dataclasses.field(default_factory=list)

    @property
    def decode(self) -> float:
        return self.seconds - self.prefill


class Timed(Generator):
    """A generator that waits for each prefill, tells its seconds, and counts decoding steps."""

    prefill_seconds, steps, cache_bytes = 0.0, 0, 0

    def prefill(self, *args: Any, **kwargs: Any) -> PromptState:
        start = time.perf_counter()
        asked = jax.block_until_ready(super().prefill(*args, **kwargs))
        self.prefill_seconds += time.perf_counter() - start
        return asked

    def decode(self, pool: DecodePool, **kwargs: Any) -> DecodePool:
        before = int(pool.state.step)
        pool = super().decode(pool, **kwargs)
        self.steps += int(pool.state.step) - before
        self.cache_bytes = pool_bytes(pool)
        return pool


def pool_bytes(pool: DecodePool) -> int:
    """Of the keys and values of prompts and responses."""
    prefix = pool.prompts.prefix
    return sum(leaf.nbytes for leaf in jax.tree.leaves((prefix.keys, prefix.values, pool.state.suffix)))


def timed_draw(
    policy: Timed,
    sampler: Sampler,
    prompts: Sequence[Example],
    seeds: Sequence[int],
    sampling: SamplingParams,
) -> Run:
    """Draws, and tells what it took."""
    policy.prefill_seconds, policy.steps = 0.0, 0
    start = time.perf_counter()
    responses = sampler.generate(policy, prompts, seeds, sampling)
    seconds = time.perf_counter() - start
    return Run(seconds, policy.prefill_seconds, policy.steps, policy.cache_bytes, responses)


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

    def generate(self, prompts: Sequence[Example], new: int, together: int, static: bool = False) -> Run:
        """Draws `SAMPLES` responses of `new` tokens to each prompt, `together` prompts a call."""
        forwards: list[float] = []

        def begin(*_: Any) -> None:
            forwards.append(-time.perf_counter())

        def end(*_: Any) -> None:
            forwards[-1] += time.perf_counter()

        hooks = [self._model.register_forward_pre_hook(begin), self._model.register_forward_hook(end)]
        total, prefill, steps, held = 0.0, 0.0, 0, 0
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
            steps += len(forwards) - 1
            layers = out.past_key_values.layers
            held += sum(part.nbytes for layer in layers for part in (layer.keys, layer.values))
        for hook in hooks:
            hook.remove()
        return Run(total, prefill, steps, held)

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
