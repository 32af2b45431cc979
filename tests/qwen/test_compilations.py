"""A new image size within a window, or another number of images, compiles nothing."""

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example, lay_out_prompts
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.qwen.inputs import ModelInputs
from rmsweb_jax.qwen.model import Qwen3VL
from tests.compilations import compilations
from tests.tiny import IMAGE_TOKEN, TINY

SHAPE = RowShape(width=32, rows=2, images=2, window=32)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    with compilations() as found:
        yield found


def example(*sizes: tuple[int, int], text: int = 5) -> Example:
    """Images of height x width patches, then text."""
    rng = np.random.default_rng(len(sizes) + text)
    tokens: list[int] = []
    for height, width in sizes:
        tokens += [IMAGE_TOKEN] * (height * width // 4) + [1]
    tokens += [2 + number for number in range(text)]
    patches = tuple(rng.normal(size=(h * w, TINY.vision.patch_dim)).astype(np.float32) for h, w in sizes)
    grids = tuple((1, height, width) for height, width in sizes)
    return Example("sample", np.array(tokens, np.int32), len(tokens) - 1, np.ones(1, bool), patches, grids)


def inputs(*examples: Example) -> ModelInputs:
    return lay_out_prompts(examples, SHAPE, TINY).inputs


def test_image_sizes_and_numbers_share_a_program(compiled):
    graphdef, state = nnx.split(Qwen3VL(TINY, rngs=nnx.Rngs(0)))

    @jax.jit
    def gradient(state, inputs):
        return jax.grad(lambda state: nnx.merge(graphdef, state)(inputs).sum())(state)

    batches = [
        inputs(example((4, 4)), example((2, 2))),
        inputs(example((2, 8)), example((8, 2), text=9)),
        inputs(example((4, 8), (2, 6)), example(text=7)),
        inputs(example((6, 4))),
        inputs(example(), example()),
    ]
    gradient(state, batches[0])
    assert len(compiled) > 0
    compiled.clear()
    results = [gradient(state, batch) for batch in batches]
    assert compiled == []
    # The program sees what is in the images: sizes are not merely ignored.
    sums = {float(np.abs(result["visual"]["patch_embed"]["proj"]["kernel"][...]).sum()) for result in results}
    assert len(sums) == len(batches)


def test_another_width_is_another_program(compiled):
    graphdef, state = nnx.split(Qwen3VL(TINY, rngs=nnx.Rngs(0)))
    forward = jax.jit(lambda state, inputs: nnx.merge(graphdef, state)(inputs))
    forward(state, inputs(example((4, 4))))
    compiled.clear()
    wide = dataclasses.replace(SHAPE, width=2 * SHAPE.width)
    forward(state, lay_out_prompts([example((4, 4))], wide, TINY).inputs)
    assert len(compiled) == 1
