import jax
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig, TextConfig, VisionConfig
from rmsweb_jax.qwen3_vl.lora import (
    LoRAConfig,
    LoRAParam,
    add_lora,
    count_parameters,
    merge_lora,
    to_peft_tensors,
)
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.qwen3_vl.conftest import BASE
from tests.qwen3_vl.rows import text_inputs

hidden = jax.jit(Qwen3VL.__call__, static_argnames="adapters")
TARGETS = ["all_linear", "attention"]


def make_model(targets: str, dropout: float = 0.0) -> Qwen3VL:
    model = Qwen3VL(BASE, rngs=nnx.Rngs(0), embedding_std=0.5)
    add_lora(model, LoRAConfig(rank=4, alpha=8, dropout=dropout, targets=targets), nnx.Rngs(1))
    return model


def randomise(model: Qwen3VL) -> None:
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(0.2 * rng.standard_normal(variable.shape, dtype=np.float32))


@pytest.mark.parametrize("targets", TARGETS)
def test_fresh_adapters_change_nothing_and_trained_ones_merge(targets):
    inputs = text_inputs([[1, 2, 3, 4, 5, 6]])
    model = make_model(targets)
    reference = np.asarray(hidden(model, inputs, adapters=False))
    np.testing.assert_array_equal(hidden(model, inputs), reference)
    randomise(model)
    trained = np.asarray(hidden(model, inputs))
    assert np.abs(trained - reference).max() > 0.1
    np.testing.assert_array_equal(hidden(model, inputs, adapters=False), reference)
    merge_lora(model)
    assert count_parameters(model)["adapters"] == 0
    np.testing.assert_allclose(hidden(model, inputs), trained, atol=1e-4)


def test_merged_model_takes_new_adapters():
    model = make_model("attention")
    with pytest.raises(ValueError, match="merge_lora"):
        add_lora(model, LoRAConfig(rank=2, alpha=2), nnx.Rngs(0))
    merge_lora(model)
    add_lora(model, LoRAConfig(rank=2, alpha=2), nnx.Rngs(0))
    assert count_parameters(model)["adapters"] > 0


def test_dropout_needs_a_key():
    inputs = text_inputs([[1, 2, 3, 4]])
    model = make_model("all_linear", dropout=0.5)
    randomise(model)
    np.testing.assert_array_equal(hidden(model, inputs), hidden(model, inputs))
    one, two = (np.asarray(hidden(model, inputs, dropout_key=jax.random.key(seed))) for seed in (0, 1))
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("targets", TARGETS)
def test_peft_export_reproduces_the_adapters(targets):
    model = make_model(targets)
    randomise(model)
    tensors = to_peft_tensors(model)
    per_layer = 7 if targets == "all_linear" else 4
    assert len(tensors) == 2 * per_layer * BASE.text.num_hidden_layers
    kernels = {}
    for merged in (False, True):
        if merged:
            merge_lora(model)
        attention = model.language_model.layers.self_attn
        kernels[merged] = [np.asarray(getattr(attention, f"{n}_proj").kernel[...]) for n in "qkvo"]
    for name, before, after in zip("qkvo", kernels[False], kernels[True], strict=True):
        for index in range(before.shape[0]):
            layer = BASE.num_deepstack + index
            prefix = f"base_model.model.model.language_model.layers.{layer}.self_attn.{name}_proj"
            a, b = tensors[f"{prefix}.lora_A.weight"], tensors[f"{prefix}.lora_B.weight"]
            np.testing.assert_allclose((after - before)[index], 2.0 * (b @ a).T, atol=1e-5)
    if targets == "attention":
        prefix = "base_model.model.model.language_model.layers.0.self_attn"
        shared = [tensors[f"{prefix}.{name}_proj.lora_A.weight"] for name in "qkv"]
        np.testing.assert_array_equal(shared[0], shared[1])
        np.testing.assert_array_equal(shared[0], shared[2])


def released(hidden: int, ffn: int, layers: int, heads: int) -> Qwen3VLConfig:
    return Qwen3VLConfig(
        text=TextConfig(151_936, hidden, ffn, layers, heads, 8, 128, (24, 20, 20)),
        vision=VisionConfig(27, 1152, 4304, 16, hidden, 2304, (8, 16, 24)),
        tie_word_embeddings=False,
    )


# Counts of the paper's adapters: 174.6 M and 536.9 M (SFT), 42.5 M and 117.4 M (RL).
@pytest.mark.parametrize(
    ("size", "config", "millions"),
    [
        ("8b", LoRAConfig(rank=64, alpha=128), 174.6),
        ("32b", LoRAConfig(rank=64, alpha=128), 536.9),
        ("8b", LoRAConfig(rank=64, alpha=128, targets="attention"), 42.5),
        ("32b", LoRAConfig(rank=64, alpha=128, targets="attention"), 117.4),
    ],
)
def test_trainable_parameters_of_the_released_sizes(size, config, millions):
    shape = {"8b": (4096, 12_288, 36, 32), "32b": (5120, 25_600, 64, 64)}[size]

    def build() -> Qwen3VL:
        model = Qwen3VL(released(*shape), rngs=nnx.Rngs(0))
        add_lora(model, config, nnx.Rngs(1))
        return model

    assert round(count_parameters(nnx.eval_shape(build))["adapters"] / 1e6, 1) == millions
