import dataclasses

import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import Turn
from rmsweb_jax.training.config import LoRAConfig
from tests.prompts import as_prompt
from tests.tiny import IMAGE_TOKEN, TINY

EOS = 59

# One layer: these tests compile many programs.
CONFIG = dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, num_hidden_layers=1))


def _prompt(number: int, length: int = 12, targets: int = 4, image: bool = True) -> Prompt:
    """A random prompt; images are 4 x 2 patches (two tokens)."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, 50, length + targets).astype(np.int32)
    if image:
        tokens[2:4] = IMAGE_TOKEN
    tokens[-1] = EOS
    span = np.zeros(targets, bool)
    span[1:-1] = True
    grids = ((1, 4, 2),) if image else ()
    patches = tuple(rng.normal(size=(8, CONFIG.vision.patch_dim)).astype(np.float32) for _ in grids)
    example = Example(f"prompt-{number}", tokens, length, span, patches, grids)
    return as_prompt(example, str(number))


def _turn(number: int, samples: int = 8, accepted: bool = True, **prompt) -> Turn:
    """Random responses of 1 to 6 tokens with random advantages."""
    rng = np.random.default_rng(1000 + number)
    responses = tuple(rng.integers(0, 50, rng.integers(1, 7)).astype(np.int32) for _ in range(samples))
    rewards = rng.choice([0.0, 0.3, 0.7, 1.0], samples)
    advantages = rng.normal(size=samples) if accepted else np.zeros(samples)
    log_probs = tuple(np.zeros(len(response), np.float32) for response in responses)
    source = _prompt(number, **prompt)
    return Turn(source, responses, log_probs, np.zeros(samples, bool), rewards, advantages)


@pytest.fixture(scope="module")
def config() -> Qwen3VLConfig:
    return CONFIG


@pytest.fixture(scope="module")
def model() -> Qwen3VL:
    """A random policy with adapters that do nothing yet."""
    model = nnx.jit(lambda: Qwen3VL(CONFIG, rngs=nnx.Rngs(0), embedding_std=0.5))()
    add_lora(model, LoRAConfig(rank=4, alpha=8.0, targets="attention"), nnx.Rngs(1))
    return model


@pytest.fixture(scope="module")
def make_prompt():
    return _prompt


@pytest.fixture(scope="module")
def make_turn():
    return _turn
