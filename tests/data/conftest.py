import pytest

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig

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
    image_token_id=60,
)


@pytest.fixture
def tiny_config() -> Qwen3VLConfig:
    return CONFIG
