"""A fresh tiny Qwen3-VL for a tokenizer, and its export."""

from __future__ import annotations

import shutil
from pathlib import Path

import jax.numpy as jnp
from flax import nnx
from tokenizers import Tokenizer

from rmsweb_jax.base.settings import ModelSettings
from rmsweb_jax.base.tokenizer import token_ids
from rmsweb_jax.qwen3_vl.checkpoint import save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL


def model_config(settings: ModelSettings, tokenizer: Tokenizer) -> Qwen3VLConfig:
    """The architecture of `configs/base.py`; every vision block's output enters the decoder."""
    names = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    image, video, start, end = token_ids(tokenizer, names)
    text = TextConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=settings.num_attention_heads,
        num_key_value_heads=settings.num_key_value_heads,
        head_dim=settings.head_dim,
        mrope_section=settings.mrope_section,
        rope_theta=settings.rope_theta,
        max_position_embeddings=settings.max_position_embeddings,
    )
    vision = VisionConfig(
        depth=settings.vision_depth,
        hidden_size=settings.vision_hidden_size,
        intermediate_size=settings.vision_intermediate_size,
        num_heads=settings.vision_heads,
        out_hidden_size=settings.hidden_size,
        num_position_embeddings=settings.vision_positions,
        deepstack_visual_indexes=tuple(range(settings.vision_depth)),
    )
    return Qwen3VLConfig(
        text=text,
        vision=vision,
        tie_word_embeddings=True,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )


def fresh_model(settings: ModelSettings, tokenizer: Tokenizer, seed: int) -> Qwen3VL:
    """Matrices at 1 / sqrt(fan-in), embeddings and attention temperature as the settings say."""
    config = model_config(settings, tokenizer)
    model = Qwen3VL(config, rngs=nnx.Rngs(seed), embedding_std=settings.embedding_std)
    decoder = model.language_model
    for layer in [*decoder.first_layers, *([decoder.layers] if decoder.layers is not None else [])]:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.scale.set_value(jnp.full_like(norm.scale[...], settings.qk_norm))
    return model


def export_model(model: Qwen3VL, tokenizer_folder: Path, folder: Path) -> None:
    """Writes a model folder in bfloat16, with the tokenizer of `tokenizer_folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_folder / name, folder / name)
    save_model(model, folder, jnp.bfloat16)
