"""The analytic counts against the compiler's, where that counts everything: unrolled, plain attention."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.flops import Work, causal_pairs, forward_flops, training_flops
from rmsweb_jax.qwen.inputs import ModelInputs, VisionInputs
from rmsweb_jax.qwen.lora import add_lora, count_parameters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.tree_attention.rule import visible_pairs
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.training.config import LoRAConfig
from tests.tiny import TINY

ROWS, WIDTH, WINDOW = 2, 64, 64
# Wide and two layers deep: matrix products outweigh everything else, and scans are unrolled.
WIDE = dataclasses.replace(
    TINY,
    text=dataclasses.replace(
        TINY.text,
        vocab_size=2048,
        hidden_size=512,
        intermediate_size=1024,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        mrope_section=(16, 8, 8),
    ),
    vision=dataclasses.replace(
        TINY.vision, depth=2, hidden_size=256, intermediate_size=512, out_hidden_size=512, patch_size=16
    ),
)
PATCHES = ROWS * WINDOW
# The plain reference multiplies hidden pairs too, and skips the keys after a block of queries.
REFERENCE_PAIRS = WIDTH * WIDTH


def abstract_inputs() -> ModelInputs:
    def array(*shape: int, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype)

    vision = VisionInputs(
        array(PATCHES, WIDE.vision.patch_dim, dtype=jnp.float32),
        array(PATCHES),
        array(PATCHES, 4),
        array(PATCHES, 4, dtype=jnp.float32),
        array(PATCHES, 2),
        window=WINDOW,
    )
    row = array(ROWS, WIDTH)
    return ModelInputs(row, array(3, ROWS, WIDTH), row, row, vision)


def work() -> Work:
    return Work(ROWS * WIDTH, ROWS * REFERENCE_PAIRS, ROWS * WIDTH, PATCHES, ROWS * WINDOW**2)


def compiler_flops(function, *arguments) -> float:
    return jax.jit(function).lower(*arguments).cost_analysis()["flops"]


def test_forward_flops_equal_the_compilers():
    graphdef, state = nnx.split(nnx.eval_shape(lambda: Qwen3VL(WIDE, rngs=nnx.Rngs(0))))

    def forward(state, inputs):
        model = nnx.merge(graphdef, state)
        return model.logits(model(inputs))

    counted = compiler_flops(forward, state, abstract_inputs())
    # Norms, softmax and rotary embedding are the compiler's alone.
    assert forward_flops(WIDE, work()) == pytest.approx(counted, rel=0.04)
    assert forward_flops(WIDE, work()) < counted


def test_gradient_flops_equal_the_compilers():
    def make():
        model = Qwen3VL(WIDE, rngs=nnx.Rngs(0))
        add_lora(model, LoRAConfig(rank=32, alpha=32.0), nnx.Rngs(0))
        return model

    model = nnx.eval_shape(make)
    graphdef, params, frozen = split_model(model, "lora")

    def loss(params, frozen, inputs):
        model = nnx.merge(graphdef, params, frozen)
        return jax.nn.logsumexp(model.logits(model(inputs)), axis=-1).sum()

    counted = compiler_flops(jax.grad(loss), params, frozen, abstract_inputs())
    flops = training_flops(WIDE, work(), count_parameters(model)["adapters"], "none")
    assert flops.useful == pytest.approx(counted, rel=0.05)


def test_gradient_flops_of_all_weights_equal_the_compilers():
    graphdef, params, frozen = split_model(nnx.eval_shape(lambda: Qwen3VL(WIDE, rngs=nnx.Rngs(0))), "all")

    def loss(params, frozen, inputs):
        model = nnx.merge(graphdef, params, frozen)
        return jax.nn.logsumexp(model.logits(model(inputs)), axis=-1).sum()

    counted = compiler_flops(jax.grad(loss), params, frozen, abstract_inputs())
    flops = training_flops(WIDE, work(), 0, "none", trainable="all")
    assert flops.useful == pytest.approx(counted, rel=0.05)


def test_gradient_of_all_weights_by_hand():
    text, vision = TINY.text, TINY.vision
    attention = text.hidden_size * (2 * text.query_dim + 2 * text.kv_dim)
    weights = text.num_hidden_layers * (attention + 3 * text.hidden_size * text.intermediate_size)
    decoder = 2 * 10 * weights + 2 * text.num_hidden_layers * 2 * text.query_dim * 40
    head = 2 * 6 * text.hidden_size * text.vocab_size
    flops = training_flops(TINY, Work(10, 40, 6), 0, "none", trainable="all")
    assert flops.useful == 3 * (decoder + head) and flops.executed == flops.useful + head
    patches = training_flops(TINY, Work(0, 0, 0, 8, 64), 0, "none", trainable="all").useful
    embed = 2 * 8 * vision.patch_dim * vision.hidden_size
    assert patches == 3 * forward_flops(TINY, Work(0, 0, 0, 8, 64)) - embed


@pytest.mark.parametrize("prompt, branches", [(7, (3, 1, 3, 4)), (1, (1,)), (16, (5, 2)), (4, ())])
def test_pairs_are_those_of_the_mask(prompt, branches):
    ends = prompt + np.cumsum(branches, dtype=int)
    width = prompt + sum(branches)
    until = np.concatenate([np.full(prompt, width), np.repeat(ends, branches)]).astype(np.int32)
    assert TreeSize(prompt, branches).work.pairs == int(visible_pairs(until[None]).sum())
    assert causal_pairs(width) == int(visible_pairs(np.full((1, width), width, np.int32)).sum())


def test_full_remat_with_a_frozen_base_keeps_mfu_under_two_thirds():
    length = 14_336
    flops = training_flops(SIZES["8b"], Work(length, causal_pairs(length), 2048), 174_600_000, "full")
    assert 0.6 < flops.useful / flops.executed < 0.7
