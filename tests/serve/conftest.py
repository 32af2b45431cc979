"""A random tiny model folder, and the engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flax import nnx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rmsweb_jax.qwen3_vl.checkpoint import load_model, save_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.engine import Engine, EngineConfig

CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)
SHAPES = EngineConfig(
    batch_sizes=(1, 4), prompt_widths=(64, 128), max_new_tokens=12, max_images=1, warm_widths=0
)
MAX_PIXELS = 64 * 64


def model_config(vocabulary: dict[str, int]) -> Qwen3VLConfig:
    return Qwen3VLConfig(
        text=TextConfig(
            vocab_size=len(vocabulary),
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
        ),
        tie_word_embeddings=True,
        image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"],
        vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"],
    )


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with random weights and one token a byte."""
    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.save_pretrained(folder)
    config = model_config(tokenizer.get_vocab())
    save_model(Qwen3VL(config, rngs=nnx.Rngs(0), embedding_std=0.3), folder)
    return folder


@pytest.fixture(scope="session")
def engine(model_folder: Path) -> Iterator[Engine]:
    engine = Engine(load_model(model_folder), Processor.from_pretrained(model_folder, MAX_PIXELS), SHAPES)
    engine.start()
    yield engine
    engine.close()
