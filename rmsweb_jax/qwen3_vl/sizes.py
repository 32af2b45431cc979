"""Hyper-parameters of the released dense models, and of one that a test can run."""

from __future__ import annotations

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig


def _text(hidden: int, intermediate: int, layers: int, heads: int) -> TextConfig:
    return TextConfig(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        mrope_section=(24, 20, 20),
    )


def _small_vision(out: int) -> VisionConfig:
    return VisionConfig(
        depth=24,
        hidden_size=1024,
        intermediate_size=4096,
        num_heads=16,
        out_hidden_size=out,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(5, 11, 17),
    )


def _large_vision(out: int) -> VisionConfig:
    return VisionConfig(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_heads=16,
        out_hidden_size=out,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(8, 16, 24),
    )


_TINY = Qwen3VLConfig(
    text=TextConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mrope_section=(4, 2, 2),
    ),
    vision=VisionConfig(
        depth=4,
        hidden_size=32,
        intermediate_size=64,
        num_heads=2,
        out_hidden_size=64,
        num_position_embeddings=64,
        deepstack_visual_indexes=(0, 2, 3),
    ),
    tie_word_embeddings=True,
    image_token_id=510,
    video_token_id=511,
    vision_start_token_id=508,
    vision_end_token_id=509,
)

SIZES: dict[str, Qwen3VLConfig] = {
    "tiny": _TINY,
    "2b": Qwen3VLConfig(_text(2048, 6144, 28, 16), _small_vision(2048), tie_word_embeddings=True),
    "4b": Qwen3VLConfig(_text(2560, 9728, 36, 32), _small_vision(2560), tie_word_embeddings=True),
    "8b": Qwen3VLConfig(_text(4096, 12_288, 36, 32), _large_vision(4096), tie_word_embeddings=False),
    "32b": Qwen3VLConfig(_text(5120, 25_600, 64, 64), _large_vision(5120), tie_word_embeddings=False),
}
