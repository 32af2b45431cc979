from collections.abc import Sequence

import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Batch, Branch, Example, Tree, lay_out
from rmsweb_jax.data.packing import Part, Row, RowShape
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.sft.data import VALUES
from tests.tiny import IMAGE_TOKEN, TINY


def make_example(number: int, prompt: int, targets: int, image: bool = True) -> Example:
    """A random sample; images are 4 x 2 patches (two tokens)."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, 50, prompt + targets).astype(np.int32)
    if image:
        tokens[2:4] = IMAGE_TOKEN
    action_mask = np.zeros(targets, bool)
    action_mask[targets // 2 :] = number % 3 > 0
    grids = ((1, 4, 2),) if image else ()
    patches = tuple(rng.normal(size=(8, TINY.vision.patch_dim)).astype(np.float32) for _ in grids)
    return Example(f"sample-{number}", tokens, prompt, action_mask, patches, grids)


def make_tree(example: Example) -> Tree:
    """The example with its target, whose tokens weigh the same."""
    values = {"weight": 1 / example.num_targets, "action": example.action_mask}
    return Tree(example, (Branch(example.target, values),))


def row_of(numbers: Sequence[int]) -> Row:
    """A row that holds the examples of these numbers, with their targets."""
    return tuple(Part(number, (0,)) for number in numbers)


def make_batch(examples: Sequence[Example], rows: Sequence[Row], shape: RowShape) -> Batch:
    trees = [make_tree(example) for example in examples]
    return lay_out(trees.__getitem__, rows, shape, TINY, names=VALUES)


def one_a_row(examples: Sequence[Example], shape: RowShape) -> list[Batch]:
    """Micro-batches whose rows hold one example each, the longest first."""
    numbers = sorted(range(len(examples)), key=lambda number: -examples[number].length)
    rows = [row_of([number]) for number in numbers]
    starts = range(0, len(rows), shape.rows)
    return [make_batch(examples, rows[start : start + shape.rows], shape) for start in starts]


@pytest.fixture
def config() -> Qwen3VLConfig:
    return TINY


@pytest.fixture
def model() -> Qwen3VL:
    return Qwen3VL(TINY, rngs=nnx.Rngs(0), embedding_std=0.5)


@pytest.fixture
def examples() -> list[Example]:
    """Eight samples of unlike lengths, two of them without an image."""
    return [make_example(number, 8 + 3 * number, 3 + number % 4, number % 4 != 3) for number in range(8)]
