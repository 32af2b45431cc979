"""The smallest Qwen3-VL that has every part: what tests without a checkpoint build on."""

from rmsweb_jax.qwen.config import Qwen3VLConfig, TextConfig, VisionConfig

IMAGE_TOKEN = 60

TINY = Qwen3VLConfig(
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
