import pytest
from flax import nnx

from configs.sft import VARIANTS, get_config
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora, count_parameters
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.sft.step import TRAINABLE


@pytest.mark.parametrize(("variant", "warmup_ratio"), [("8b", 0.03), ("32b", 0.1)])
def test_paper_variants_hold_the_papers_values(variant, warmup_ratio):
    config = get_config(variant)
    assert config.lora.to_dict() == {"rank": 64, "alpha": 128.0, "dropout": 0.05, "vision": False}
    assert (config.trainable, config.dtype) == ("lora", "bfloat16")
    assert (config.max_length, config.max_pixels) == (12_000, 262_144)
    assert (config.epochs, config.batch_size, config.seed) == (3, 32, 42)
    assert (config.learning_rate, config.weight_decay, config.clip_norm) == (1e-4, 0.01, 1.0)
    assert config.warmup_ratio == warmup_ratio


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_hold_together(variant):
    config = get_config(variant)
    assert config.trainable in TRAINABLE
    assert config.batch_size % config.micro_batch_size == 0
    assert config.keys() == get_config("8b").keys()


@pytest.mark.parametrize(
    ("variant", "hidden", "intermediate", "layers", "heads", "millions"),
    [("8b", 4096, 12_288, 36, 32, 174.6), ("32b", 5120, 25_600, 64, 64, 536.9)],
)
def test_adapters_have_the_papers_size(variant, hidden, intermediate, layers, heads, millions):
    text = TextConfig(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        mrope_section=(24, 20, 20),
    )
    vision = VisionConfig(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_heads=16,
        out_hidden_size=hidden,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(8, 16, 24),
    )

    def build() -> Qwen3VL:
        model = Qwen3VL(Qwen3VLConfig(text, vision, tie_word_embeddings=False), rngs=nnx.Rngs(0))
        add_lora(model, LoRAConfig(**get_config(variant).lora), nnx.Rngs(0))
        return model

    counts = count_parameters(nnx.eval_shape(build))
    assert counts["adapters"] / 1e6 == pytest.approx(millions, abs=0.05)
