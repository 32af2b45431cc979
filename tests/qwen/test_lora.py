import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.layers import LoRA
from rmsweb_jax.qwen.lora import (
    TARGETS,
    LoRAParam,
    add_lora,
    count_parameters,
    merge_lora,
    to_peft_tensors,
)
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.settings import from_config
from rmsweb_jax.training.config import LoRAConfig
from tests.qwen.conftest import BASE
from tests.qwen.random_models import random_model
from tests.qwen.references import lay_out, random_segment
from tests.qwen.rows import text_inputs

hidden = jax.jit(Qwen3VL.__call__, static_argnames="adapters")
IMAGE_INPUTS, _ = lay_out([[(0, random_segment(1, BASE, np.random.default_rng(0)))]], 32, BASE)
TEXT_INPUTS = text_inputs([[1, 2, 3, 4]])


@pytest.fixture(scope="module")
def base() -> Qwen3VL:
    return random_model(BASE)


def make_model(base: Qwen3VL, targets: str, *, dropout: float = 0.0, vision: bool = False) -> Qwen3VL:
    model = nnx.clone(base)
    config = LoRAConfig(rank=4, alpha=8, dropout=dropout, targets=targets, vision=vision)
    add_lora(model, config, nnx.Rngs(1))
    return model


def randomise(model: Qwen3VL) -> None:
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(jnp.asarray(0.2 * rng.standard_normal(variable.shape, dtype=np.float32)))


@pytest.mark.parametrize(("targets", "vision"), [("all_linear", False), ("attention", True)])
def test_fresh_adapters_change_nothing_and_trained_ones_merge(base, targets, vision):
    inputs = IMAGE_INPUTS if vision else TEXT_INPUTS
    # Dropout does nothing without a key.
    model = make_model(base, targets, dropout=0.5, vision=vision)
    reference = np.asarray(hidden(model, inputs, adapters=False))
    np.testing.assert_array_equal(hidden(model, inputs), reference)
    randomise(model)
    trained = np.asarray(hidden(model, inputs))
    assert np.abs(trained - reference).max() > 0.1
    np.testing.assert_array_equal(hidden(model, inputs, adapters=False), reference)
    merge_lora(model)
    assert count_parameters(model)["adapters"] == 0
    np.testing.assert_allclose(hidden(model, inputs), trained, atol=1e-4)


def test_merged_model_takes_new_adapters(base):
    model = make_model(base, "attention")
    with pytest.raises(ValueError, match="merge_lora"):
        add_lora(model, LoRAConfig(rank=2, alpha=2), nnx.Rngs(0))
    merge_lora(model)
    add_lora(model, LoRAConfig(rank=2, alpha=2), nnx.Rngs(0))
    assert count_parameters(model)["adapters"] > 0


@pytest.mark.parametrize("vision", [False, True])
def test_dropout_needs_a_key(base, vision):
    """With `vision` the decoder's adapters do nothing, so that what differs is the tower's dropout."""
    inputs = IMAGE_INPUTS if vision else TEXT_INPUTS
    model = make_model(base, "attention", dropout=0.5, vision=vision)
    randomise(model)
    if vision:
        zero = nnx.state(model.language_model, LoRAParam)
        nnx.update(model.language_model, jax.tree.map(jnp.zeros_like, zero))
    np.testing.assert_array_equal(hidden(model, inputs), hidden(model, inputs))
    one, two = (np.asarray(hidden(model, inputs, dropout_key=jax.random.key(seed))) for seed in (0, 1))
    assert np.abs(one - two).max() > 1e-3


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_the_rest(rate):
    size = 64
    lora = LoRA(
        (), size, size, ("embed", "mlp"), rank=size, alpha=float(size), dropout=rate, key=jax.random.key(0)
    )
    # Identities, so that what comes out is the adapter's input.
    lora.a.set_value(jnp.eye(size))
    lora.b.set_value(jnp.eye(size))
    x = jnp.ones((1000, size))
    dropped = np.asarray(lora(x, jax.random.key(1)))
    share = (dropped == 0).mean()
    # Five standard deviations of a share of so many draws.
    assert abs(share - rate) < 5 * (rate * (1 - rate) / x.size) ** 0.5
    np.testing.assert_allclose(dropped[dropped > 0], 1 / (1 - rate), rtol=1e-6)
    np.testing.assert_array_equal(lora(x, None), x)


@pytest.mark.parametrize("targets", TARGETS)
def test_peft_export_reproduces_the_adapters(base, targets):
    model = make_model(base, targets)
    randomise(model)
    tensors = to_peft_tensors(model)
    per_layer = 7 if targets == "all_linear" else 4
    assert len(tensors) == 2 * per_layer * BASE.text.num_hidden_layers
    kernels = {}
    for merged in (False, True):
        if merged:
            merge_lora(model)
        attention = model.language_model.layers[0].self_attn
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


def test_only_vision_blocks_get_vision_adapters(base):
    text, both = (make_model(base, "attention", vision=vision) for vision in (False, True))
    paths = {path[:2] for path, _ in nnx.to_flat_state(nnx.state(both, LoRAParam))}
    assert paths == {("language_model", "first_layers"), ("language_model", "layers"), ("visual", "blocks")}
    vision = BASE.vision
    sides = [(vision.hidden_size, size) for size in (3 * vision.hidden_size, vision.hidden_size)]
    sides += [(vision.hidden_size, vision.intermediate_size)] * 2
    more = count_parameters(both)["adapters"] - count_parameters(text)["adapters"]
    assert more == vision.depth * sum(4 * sum(side) for side in sides)


@pytest.mark.parametrize("values", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_impossible_adapters_are_refused(values):
    with pytest.raises(UserError, match=f"config.{next(iter(values))} is "):
        from_config(LoRAConfig, values)


# Numbers that the released checkpoints hold, as published with them.
@pytest.mark.parametrize(
    ("size", "count"), [("2b", 2_127_532_032), ("4b", 4_437_815_808), ("8b", 8_767_123_696)]
)
def test_released_sizes_have_the_released_number_of_parameters(size, count):
    model = nnx.eval_shape(lambda: Qwen3VL(SIZES[size], rngs=nnx.Rngs(0)))
    assert count_parameters(model) == {"base": count, "adapters": 0}


# Counts of the paper's adapters: 174.6 M and 536.9 M (SFT), 42.5 M and 117.4 M (RL).
@pytest.mark.parametrize(
    ("size", "targets", "millions"),
    [
        ("8b", "all_linear", 174.6),
        ("32b", "all_linear", 536.9),
        ("8b", "attention", 42.5),
        ("32b", "attention", 117.4),
    ],
)
def test_trainable_parameters_of_the_released_sizes(size, targets, millions):
    def build() -> Qwen3VL:
        model = Qwen3VL(SIZES[size], rngs=nnx.Rngs(0))
        add_lora(model, LoRAConfig(rank=64, alpha=128, targets=targets), nnx.Rngs(1))
        return model

    assert round(count_parameters(nnx.eval_shape(build))["adapters"] / 1e6, 1) == millions
