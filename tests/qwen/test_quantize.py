"""A decoder with int8 weights: what it does to the logits, training, sampling and the export."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from rmsweb_jax.data.batching import Example, lay_out_prompts
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen.inputs import ModelInputs
from rmsweb_jax.qwen.layers import Linear
from rmsweb_jax.qwen.lora import LoRAParam, add_lora, count_parameters, layer_stacks, merge_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.quantize import is_quantized, move_adapters, quantize_base
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.sft.train import export
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from tests.decoding.drawing import draw, with_sizes
from tests.policies import REPLY, random_messages
from tests.qwen.random_models import random_model
from tests.tiny import TINY

ADAPTERS = LoRAConfig(rank=4, alpha=8.0, targets="all_linear")


TOKENS = np.random.default_rng(0).integers(0, 50, 24).astype(np.int32)


def inputs(tokens: np.ndarray = TOKENS) -> ModelInputs:
    """One row of 32 places."""
    example = Example("s", np.append(tokens, 0).astype(np.int32), len(tokens), np.zeros(1, bool))
    return lay_out_prompts([example], RowShape(32, 1), TINY).inputs


def log_probs(model: Qwen3VL, tokens: np.ndarray = TOKENS) -> jax.Array:
    """Of all next tokens, [1, tokens, vocabulary]."""
    return jax.nn.log_softmax(model.logits(model(inputs(tokens))), axis=-1)[:, : len(tokens)]


@pytest.fixture(scope="module")
def models() -> tuple[Qwen3VL, Qwen3VL]:
    """The same model, and with int8 weights."""
    quantized = random_model(TINY, ADAPTERS)
    quantize_base(quantized)
    return random_model(TINY, ADAPTERS), quantized


def kernels(model: Qwen3VL) -> list[Linear]:
    return [
        stack.linear(name) for stack in layer_stacks(model) if stack.is_decoder() for name in stack.names()
    ]


def test_weights_are_within_half_a_step_of_each_output(models):
    for linear, small in zip(*map(kernels, models), strict=True):
        assert small.kernel.dtype == jnp.int8
        step = np.abs(linear.kernel[...]).max(-2, keepdims=True) / 127
        assert (np.abs(small.weight() - linear.kernel[...]) <= 0.501 * step).all()


@pytest.mark.slow
def test_the_tiny_bases_predictions_move_little(tmp_path):
    model = load_model("tiny_base")
    images = ImageStore(tmp_path)
    encoder = Encoder.load(resolve_model("tiny_base"), images, max_pixels=16_384)
    messages = random_messages(0, images, repeats=3)
    sample = SftSample(
        sample_id="s", task_id="t", site="s", kind="action", messages=messages, response=REPLY % 3
    )
    example = encoder.example(sample)
    shape = RowShape(-(-example.length // 64) * 64, 1, len(example.patches), len(example.patches[0]))
    whole = dataclasses.replace(example, prompt_length=example.length)
    inputs = lay_out_prompts([whole], shape, model.config).inputs

    def predictions() -> np.ndarray:
        return np.asarray(jax.nn.log_softmax(model.logits(model(inputs)), -1))[0, : example.length]

    before = predictions()
    quantize_base(model)
    moved = predictions()
    likely = np.exp(before) > 0.01
    # Measured: 0.044 in the mean, and the same best token at 98.6 % of the places.
    assert 1e-4 < np.abs(moved - before)[likely].mean() < 0.1
    assert (moved.argmax(-1) == before.argmax(-1)).mean() > 0.95


@pytest.mark.slow
def test_gradients_are_those_of_the_weights_as_they_count(models):
    same = random_model(TINY, ADAPTERS)
    for linear, small in zip(kernels(same), kernels(models[1]), strict=True):
        linear.kernel.set_value(small.weight())

    def gradients(model: Qwen3VL) -> list[jax.Array]:
        graphdef, params, frozen = split_model(model, "lora")

        def loss(params: nnx.State) -> jax.Array:
            return log_probs(nnx.merge(graphdef, params, frozen))[..., 3].sum()

        return jax.tree.leaves(jax.grad(loss)(params))

    for one, other in zip(gradients(models[1]), gradients(same), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_decoding_computes_what_training_does(models):
    (drawn,) = draw(models[1], [TOKENS], Sampling(2, 4), seeds=1, sizes=with_sizes(prompt_width=24))
    length = len(TOKENS)
    for sample in range(2):
        tokens = np.append(TOKENS, drawn.tokens[sample])
        scored = log_probs(models[1], tokens)[0]
        expected = [scored[length - 1 + number, tokens[length + number]] for number in range(4)]
        np.testing.assert_allclose(drawn.log_probs[sample], expected, atol=1e-3)


def test_adapters_are_exported_onto_the_weights_as_they_were():
    quantized = random_model(TINY, ADAPTERS)
    quantize_base(quantized)
    assert is_quantized(quantized)
    whole, expected = random_model(TINY), random_model(TINY, ADAPTERS)
    move_adapters(quantized, whole)
    assert not count_parameters(quantized)["adapters"] and not is_quantized(whole)
    for model in (whole, expected):
        merge_lora(model)
    for one, other in zip(*(jax.tree.leaves(nnx.state(model)) for model in (whole, expected)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_export_is_that_of_a_model_that_was_never_quantized(tmp_path):
    source = resolve_model("tiny_base")
    models = [load_model(source) for _ in range(2)]
    quantize_base(models[0])
    for model in models:
        add_lora(model, ADAPTERS, nnx.Rngs(3))
        # Fresh ones would add nothing.
        nnx.update(model, jax.tree.map(lambda x: x + 0.01, nnx.state(model, LoRAParam)))
    with pytest.raises(ValueError, match="quantized"):
        merge_lora(models[0])
    for number, model in enumerate(models):
        export(model, source, tmp_path / str(number), ADAPTERS, "tiny_base")
    one, other = (load_file(tmp_path / str(number) / "export" / "model.safetensors") for number in range(2))
    chex.assert_trees_all_equal(one, other)
    assert (tmp_path / "0" / "adapters" / "adapter_config.json").exists()


def test_a_model_folder_is_loaded_and_has_its_shardings():
    mesh = make_mesh()
    model = load_model("tiny_base", mesh=mesh)
    quantize_base(model)
    assert is_quantized(model)
    state = nnx.state(model, nnx.Param)
    assert jax.tree.map(lambda leaf: leaf.sharding.spec, state) == jax.tree.map(
        lambda sharding: sharding.spec, param_shardings(state, mesh)
    )


def test_weights_that_are_trained_are_not_quantized():
    with pytest.raises(UserError, match="quantize=int8 is for a frozen base"):
        SftConfig(corpus="c", trainable="all", quantize="int8")
