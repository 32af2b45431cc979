import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL

IMAGE_TOKEN = 60

CONFIG = Qwen3VLConfig(
    text=TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
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


def make_example(number: int, prompt: int, targets: int, image: bool = True) -> Example:
    """A random sample; images are 4 x 2 patches (two tokens)."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, 50, prompt + targets).astype(np.int32)
    if image:
        tokens[2:4] = IMAGE_TOKEN
    action_mask = np.zeros(targets, bool)
    action_mask[targets // 2 :] = number % 3 > 0
    grids = ((1, 4, 2),) if image else ()
    patches = tuple(rng.normal(size=(8, CONFIG.vision.patch_dim)).astype(np.float32) for _ in grids)
    return Example(f"sample-{number}", tokens, prompt, action_mask, patches, grids)


@pytest.fixture
def config() -> Qwen3VLConfig:
    return CONFIG


@pytest.fixture
def model() -> Qwen3VL:
    return Qwen3VL(CONFIG, rngs=nnx.Rngs(0), embedding_std=0.5)


@pytest.fixture
def examples() -> list[Example]:
    """Eight samples of unlike lengths, two of them without an image."""
    return [make_example(number, 8 + 3 * number, 3 + number % 4, number % 4 != 3) for number in range(8)]
