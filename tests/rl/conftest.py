import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.rl.rollout import Group, Prompt

IMAGE_TOKEN, EOS = 60, 59

CONFIG = Qwen3VLConfig(
    text=TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        mrope_section=(4, 2, 2),
        rope_theta=10_000.0,
    ),
    vision=VisionConfig(
        depth=1,
        hidden_size=16,
        intermediate_size=24,
        num_heads=2,
        out_hidden_size=32,
        num_position_embeddings=16,
        deepstack_visual_indexes=(0,),
        patch_size=4,
    ),
    tie_word_embeddings=True,
    image_token_id=IMAGE_TOKEN,
    video_token_id=61,
    vision_start_token_id=62,
    vision_end_token_id=63,
)


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
    return Prompt(example.sample_id, example, str(number))


def _group(number: int, samples: int = 8, accepted: bool = True, **prompt) -> Group:
    """Random responses of 1 to 6 tokens with random advantages."""
    rng = np.random.default_rng(1000 + number)
    responses = tuple(rng.integers(0, 50, rng.integers(1, 7)).astype(np.int32) for _ in range(samples))
    rewards = rng.choice([0.0, 0.3, 0.7, 1.0], samples)
    advantages = rng.normal(size=samples) if accepted else np.zeros(samples)
    log_probs = tuple(np.zeros(len(response), np.float32) for response in responses)
    source = _prompt(number, **prompt)
    return Group(source, responses, log_probs, np.zeros(samples, bool), rewards, advantages, accepted)


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
def make_group():
    return _group
