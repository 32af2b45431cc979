import dataclasses

import pytest

from rmsweb_jax.qwen.config import DeltaConfig, Qwen3VLConfig, TextConfig, VisionConfig
from tests.qwen.references import IMAGE_TOKEN
from tests.qwen.references import reference_model as reference_model

BASE = Qwen3VLConfig(
    text=TextConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mrope_section=(4, 2, 2),
        rope_theta=50_000.0,
    ),
    vision=VisionConfig(
        depth=2,
        hidden_size=32,
        intermediate_size=40,
        num_heads=2,
        out_hidden_size=48,
        num_position_embeddings=25,
        deepstack_visual_indexes=(0,),
        patch_size=4,
    ),
    tie_word_embeddings=True,
    image_token_id=IMAGE_TOKEN,
    video_token_id=91,
    vision_start_token_id=92,
    vision_end_token_id=93,
)


def variants() -> dict[str, Qwen3VLConfig]:
    """Tiny configurations that differ in every structural respect."""
    text, vision = BASE.text, BASE.vision
    return {
        "tied": BASE,
        "untied": dataclasses.replace(
            BASE,
            tie_word_embeddings=False,
            text=dataclasses.replace(text, head_dim=8, mrope_section=(2, 1, 1)),
            vision=dataclasses.replace(vision, depth=3, deepstack_visual_indexes=(0, 1, 2), num_heads=4),
        ),
        "long": dataclasses.replace(
            BASE,
            text=dataclasses.replace(
                text, num_key_value_heads=1, num_hidden_layers=11, mrope_section=(3, 3, 2)
            ),
            vision=dataclasses.replace(
                vision, depth=10, deepstack_visual_indexes=(7,), num_position_embeddings=49
            ),
        ),
        "recurrent": dataclasses.replace(
            BASE,
            text=dataclasses.replace(
                text,
                num_hidden_layers=4,
                head_dim=32,
                partial_rotary_factor=0.25,
                mrope_section=(2, 1, 1),
                delta=DeltaConfig(
                    interval=2,
                    linear_num_key_heads=2,
                    linear_num_value_heads=4,
                    linear_key_head_dim=8,
                    linear_value_head_dim=8,
                    linear_conv_kernel_dim=4,
                ),
            ),
            vision=dataclasses.replace(vision, deepstack_visual_indexes=()),
        ),
    }


@pytest.fixture(scope="session")
def tiny_config() -> Qwen3VLConfig:
    return BASE
