import pytest
from flax import nnx

from configs.sft import VARIANTS, get_config
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.lora import add_lora, count_parameters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.sft.step import TRAINABLE
from rmsweb_jax.training.config import LoRAConfig


@pytest.mark.parametrize(("variant", "warmup_ratio"), [("8b", 0.03), ("32b", 0.1)])
def test_paper_variants_hold_the_papers_values(variant, warmup_ratio):
    config = get_config(variant)
    lora = {"rank": 64, "alpha": 128.0, "dropout": 0.05, "vision": False}
    assert config.lora.to_dict() == lora
    assert (config.trainable, config.dtype) == ("lora", "bfloat16")
    assert (config.max_length, config.max_pixels) == (12_000, 262_144)
    assert (config.epochs, config.batch_size, config.seed) == (3, 32, 42)
    assert (config.learning_rate, config.weight_decay, config.clip_norm) == (1e-4, 0.01, 1.0)
    assert config.warmup_ratio == warmup_ratio


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_hold_together(variant):
    config = get_config(variant)
    assert config.trainable in TRAINABLE
    assert config.max_length <= config.row_tokens // config.row_multiple * config.row_multiple
    assert config.keys() == get_config("8b").keys()


@pytest.mark.parametrize(("variant", "millions"), [("8b", 174.6), ("32b", 536.9)])
def test_adapters_have_the_papers_size(variant, millions):
    def build() -> Qwen3VL:
        model = Qwen3VL(SIZES[variant], rngs=nnx.Rngs(0))
        add_lora(model, LoRAConfig(**get_config(variant).lora), nnx.Rngs(0))
        return model

    counts = count_parameters(nnx.eval_shape(build))
    assert counts["adapters"] / 1e6 == pytest.approx(millions, abs=0.05)
