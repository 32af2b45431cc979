"""Layout does not reach what is learned: rows of one sample or of several, micro-batches of any size."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch, Example, on_mesh
from rmsweb_jax.data.packing import Packer, RowShape
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.sft.step import LossSums, init_state, loss_sums, sft_steps, split_model, target_scores
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Accumulated, Steps, adamw
from tests.sft.conftest import make_batch, make_example, make_tree, one_a_row, row_of
from tests.tiny import IMAGE_TOKEN, TINY


def packed(examples: Sequence[Example], shape: RowShape) -> list[Batch]:
    """The micro-batches of a training step."""
    plan = Packer(shape, TINY).pack([make_tree(example).size for example in examples])
    return [make_batch(examples, rows, shape) for rows in plan]


# Eight samples of unlike lengths (184 tokens, 36 targets), two of them without an image.
EXAMPLES = [make_example(number, 8 + 3 * number, 3 + number % 4, number % 4 != 3) for number in range(8)]
SINGLE = RowShape(width=48, rows=8, images=1, window=8)
PACKED = RowShape(width=96, rows=2, images=4, window=8)
# Rows that hold any of the samples, or all of them.
ROOMY = RowShape(width=192, rows=3, images=6, window=8)
LAYOUTS = {
    "8 rows": one_a_row(EXAMPLES, SINGLE),
    "2 rows": one_a_row(EXAMPLES, dataclasses.replace(SINGLE, rows=2)),
    "packed": packed(EXAMPLES, PACKED),
    # Wide enough for attention block by block; all others take the reference.
    "one row": packed(EXAMPLES, dataclasses.replace(ROOMY, rows=1)),
}
OTHERS = [name for name in LAYOUTS if name != "8 rows"]
CLIP = 1.0


class Trained(NamedTuple):
    """A model whose base and adapters both learn, in parts."""

    graphdef: Any
    params: Any
    frozen: Any


def random_value(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Perturbs all kinds of parameters: B and biases are not zero, scales not one."""
    value = rng.standard_normal(shape, np.float32)
    if name == "kernel":
        return value * np.float32(shape[-2] ** -0.5)
    return value * np.float32(0.2 if name == "embedding" else 0.1) + np.float32(name == "scale")


@pytest.fixture(scope="module")
def trained() -> Trained:
    """Every parameter of the base, and adapters."""

    def build() -> Qwen3VL:
        model = Qwen3VL(TINY, rngs=nnx.Rngs(0), attention=AttentionConfig("blocks"))
        add_lora(model, LoRAConfig(rank=4, alpha=8.0), nnx.Rngs(1))
        return model

    graphdef, params, frozen = split_model(nnx.eval_shape(build), "all")
    rng = np.random.default_rng(0)
    for path, variable in nnx.to_flat_state(params):
        variable.set_value(jnp.asarray(random_value(str(path[-1]), variable.shape, rng)))
    return Trained(graphdef, params, frozen)


class Trainer(NamedTuple):
    steps: Steps
    optimizer: optax.GradientTransformation
    mesh: Mesh

    def gradient(self, trained: Trained, batches: Sequence[Batch]) -> Accumulated:
        total = self.steps.zero(trained.params)
        for batch in batches:
            rows, key = on_mesh(batch, self.mesh), jax.random.key(0)
            total = self.steps.add(total, trained.params, trained.frozen, rows, key)
        return total

    def updated(self, trained: Trained, total: Accumulated) -> Any:
        """Parameters after a first step."""
        # The step donates its state, and the parameters are used again.
        params = jax.tree.map(jnp.copy, trained.params)
        state, _ = self.steps.update(init_state(params, self.optimizer, self.mesh), total)
        return state.params


@pytest.fixture(scope="module")
def trainer(trained: Trained) -> Trainer:
    mesh = make_mesh()
    optimizer = adamw(1e-4, weight_decay=0.01, clip_norm=CLIP)
    state = init_state(jax.tree.map(jnp.copy, trained.params), optimizer, mesh)
    return Trainer(sft_steps(trained.graphdef, state, optimizer, len(EXAMPLES), mesh), optimizer, mesh)


@pytest.fixture(scope="module")
def totals(trainer: Trainer, trained: Trained) -> dict[str, Accumulated]:
    """Loss sums and gradients of all samples by layout."""
    return {name: trainer.gradient(trained, batches) for name, batches in LAYOUTS.items()}


def flat(state: Any) -> dict[str, np.ndarray]:
    return {
        ".".join(map(str, path)): np.asarray(variable[...]) for path, variable in nnx.to_flat_state(state)
    }


def test_layouts_match_their_names():
    counts = {name: len(batches) for name, batches in LAYOUTS.items()}
    assert counts == {"8 rows": 1, "2 rows": 4, "packed": 1, "one row": 1}
    (batch,) = LAYOUTS["packed"]
    assert (np.asarray(batch.scored.branch).max(axis=1) >= 3).all()
    images = [(row[row >= 0] // 2).tolist() for row in batch.inputs.image_index]
    assert all(len(set(row)) >= 2 for row in images)


@pytest.mark.parametrize("layout", OTHERS)
def test_loss_and_gradients_do_not_depend_on_the_layout(totals, layout):
    ours, expected = totals[layout], totals["8 rows"]
    loss, expected_loss = (float(total.sums.loss) / len(EXAMPLES) for total in (ours, expected))
    assert loss == pytest.approx(expected_loss, rel=0, abs=1e-6)
    assert float(ours.sums.tokens) == sum(example.num_targets for example in EXAMPLES)
    chex.assert_trees_all_equal(ours.sums.replace(loss=0), expected.sums.replace(loss=0))
    gradients, wanted = flat(ours.gradients), flat(expected.gradients)
    assert sum(".lora." in name for name in gradients) == 28  # A and B of seven matrices, twice
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=0, atol=1e-6, err_msg=name)
        assert np.abs(gradient).max() > 1e-3, name


@pytest.mark.parametrize("layout", OTHERS)
def test_updated_parameters_do_not_depend_on_the_layout(trainer, trained, totals, layout):
    """AdamW's first step is g / (|g| + 1e-8): where g is rounding alone, so is its sign."""
    before = flat(trained.params)
    gradients = flat(totals["8 rows"].gradients)
    norm = np.sqrt(sum(np.square(gradient, dtype=float).sum() for gradient in gradients.values()))
    ours, expected = (flat(trainer.updated(trained, totals[name])) for name in (layout, "8 rows"))
    unsure = 0
    for name, gradient in gradients.items():
        clipped = np.abs(gradient) * min(1.0, CLIP / norm)
        sure = (clipped == 0) | (clipped > 1e-6)
        unsure += int((~sure).sum())
        np.testing.assert_allclose(ours[name][sure], expected[name][sure], rtol=0, atol=1e-6, err_msg=name)
        assert np.abs(ours[name] - before[name]).max() > 5e-5, name
    assert unsure <= 2e-3 * sum(gradient.size for gradient in gradients.values())


@functools.partial(jax.jit, static_argnums=0)
def losses(graphdef: Any, params: Any, frozen: Any, batch: Batch) -> tuple[LossSums, jax.Array]:
    """Loss sums, and the log-probability of each target."""
    scores = target_scores(nnx.merge(graphdef, params, frozen), batch)
    return loss_sums(scores, batch.scored), scores.log_probs


PLACEMENTS = st.tuples(
    st.permutations(range(len(EXAMPLES))),
    st.lists(st.integers(0, ROOMY.rows - 1), min_size=len(EXAMPLES), max_size=len(EXAMPLES)),
)


def in_rows(examples: Sequence[Example], order: Sequence[int], rows: Sequence[int]) -> Batch:
    """The examples in `order`, the n-th of them in row `rows[n]`."""
    held = [
        [number for number, own in zip(order, rows, strict=True) if own == row] for row in range(ROOMY.rows)
    ]
    return make_batch(examples, [row_of(numbers) for numbers in held], ROOMY)


@settings(max_examples=15)
@given(PLACEMENTS)
def test_any_partition_into_rows_gives_the_same_loss(totals, trained, placement):
    """Within 1e-6 of itself: float32 has a value of 5 in steps of 5e-7."""
    sums, _ = losses(*trained, in_rows(EXAMPLES, *placement))
    assert float(sums.loss) == pytest.approx(float(totals["8 rows"].sums.loss), rel=1e-6)
    assert float(sums.actions) == float(totals["8 rows"].sums.actions)


def changed(example: Example) -> Example:
    """Every text token another one, and another picture of the same size."""
    tokens = np.where(example.tokens == IMAGE_TOKEN, IMAGE_TOKEN, (example.tokens + 7) % 50)
    patches = tuple(patch[::-1] + np.float32(1.0) for patch in example.patches)
    return dataclasses.replace(example, tokens=tokens.astype(np.int32), patches=patches)


@settings(max_examples=10)
@given(PLACEMENTS, st.sets(st.integers(0, 7), min_size=1, max_size=7))
def test_a_samples_score_is_bit_exact_with_any_neighbours(trained, placement, others):
    order, rows = placement
    before = in_rows(EXAMPLES, order, rows)
    examples = [changed(example) if n in others else example for n, example in enumerate(EXAMPLES)]
    _, first = losses(*trained, before)
    _, second = losses(*trained, in_rows(examples, order, rows))
    for row in range(ROOMY.rows):
        held = [number for number, own in zip(order, rows, strict=True) if own == row]
        for branch, number in enumerate(held, 1):
            places = before.scored.branch[row] == branch
            same = np.array_equal(first[row, places], second[row, places])
            assert same == (number not in others)
