"""Rows with a shared prompt against a row for each response: same loss, same gradient of every adapter."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Batch, Example, lay_out, on_mesh, spans
from rmsweb_jax.data.packing import Packer, Part, Rows, RowShape
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.sharding import param_shardings
from rmsweb_jax.rl.config import Objective
from rmsweb_jax.rl.rollout import MiniBatch, Turn
from rmsweb_jax.rl.step import VALUES, rl_steps, trees_of
from rmsweb_jax.sft.step import init_state, split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import Accumulated, Steps, adamw
from tests.prompts import as_prompt
from tests.rl.eight_rows import plain_batches, plain_rows
from tests.tiny import IMAGE_TOKEN, TINY

# Large coefficients, so that every term shows in the gradient.
OBJECTIVE = Objective(kl_coef=0.3, salvage_weight=0.5)
MESH = make_mesh()
SAMPLES = 8
# Two images or none, neither of them square: 2 x 6 and 6 x 4 patches.
GRIDS = ((1, 2, 6), (1, 6, 4))
WINDOW = 24
# Room for all groups in one row, so that one compiled program serves all plans.
WIDTH = 192
SHAPE = RowShape(WIDTH, 1, images=4, window=WINDOW)

Key = tuple[int, int]
Places = dict[Key, tuple[int, slice]]
LogProbs = dict[Key, np.ndarray]


class Reference(NamedTuple):
    """The policy, its programs, and what the plain layout says of the step.

    Attributes:
      old, ref: log-probabilities of every response, by group and sample: the policy's own with noise, so
        that some tokens are clipped.
      log_probs: of every response under the policy.
      total: gradient and sums.
    """

    params: Any
    frozen: Any
    steps: Steps
    old: LogProbs
    ref: LogProbs
    log_probs: LogProbs
    total: Accumulated


def make_turn(number: int, accepted: bool, images: bool) -> Turn:
    """A prompt of 20 to 30 tokens, a target of 6 and 8 responses of 1 to 8."""
    rng = np.random.default_rng(number)
    length = 20 + 3 * number
    tokens = rng.integers(0, 50, length + 6).astype(np.int32)
    if images:
        tokens[2:5] = tokens[7:13] = IMAGE_TOKEN
    grids = GRIDS if images else ()
    patches = tuple(
        rng.normal(size=(int(np.prod(grid)), TINY.vision.patch_dim)).astype(np.float32) for grid in grids
    )
    span = np.asarray([0, 0, 1, 1, 1, 0], bool)
    example = Example(f"prompt-{number}", tokens, length, span, patches, grids)
    responses = tuple(rng.integers(0, 50, size).astype(np.int32) for size in rng.permutation(SAMPLES) + 1)
    none = tuple(np.zeros(len(response), np.float32) for response in responses)
    advantages = rng.normal(size=SAMPLES) if accepted else np.zeros(SAMPLES)
    rewards = np.zeros(SAMPLES)
    return Turn(as_prompt(example), responses, none, np.zeros(SAMPLES, bool), rewards, advantages)


BATCH = MiniBatch(
    (make_turn(0, True, images=True), make_turn(1, True, images=False)),
    (make_turn(2, False, images=True),),
)


def make_policy() -> Qwen3VL:
    """The first of its two layers takes DeepStack features; adapters on the vision tower too."""
    model = Qwen3VL(TINY, rngs=nnx.Rngs(0))
    add_lora(model, LoRAConfig(rank=4, alpha=8.0, targets="attention", vision=True), nnx.Rngs(1))
    return model


def random_values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    scale = shape[-2] ** -0.5 if len(shape) > 1 else 0.5
    return (scale * rng.normal(size=shape)).astype(np.float32)


@pytest.fixture(scope="module")
def reference() -> Reference:
    model = nnx.eval_shape(make_policy)
    graphdef, params, frozen = split_model(model, "lora")
    rng = np.random.default_rng(5)
    # All random: with fresh adapters, whose B is 0, no gradient would reach A.
    params, frozen = (jax.tree.map(lambda x: random_values(rng, x.shape), part) for part in (params, frozen))
    params, frozen = (jax.device_put(part, param_shardings(part, MESH)) for part in (params, frozen))
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    steps = rl_steps(graphdef, init_state(params, optimizer, MESH), optimizer, OBJECTIVE, MESH)
    rows = plain_rows(BATCH, salvage=True)
    batches = plain_batches(rows, TINY, count=1, width=WIDTH, images=SHAPE.images)
    own = {}
    for batch, places in batches:
        scored = np.asarray(steps.log_probs(params, frozen, on_mesh(batch, MESH)))
        own |= {key: scored[place] for key, place in places.items()}
    old, ref = ({key: x + rng.normal(0, 1.0, x.shape) for key, x in own.items()} for _ in range(2))
    total = steps.zero(params)
    for batch, places in batches:
        total = steps.add(total, params, frozen, against(batch, places, old, ref))
    return Reference(params, frozen, steps, old, ref, own, total)


def against(batch: Batch, places: Places, old: LogProbs, ref: LogProbs) -> Batch:
    """A batch on the mesh, with old and reference log-probabilities at their places."""
    arrays = np.zeros((2, *batch.scored.tokens.shape), np.float32)
    for key, place in places.items():
        arrays[0][place], arrays[1][place] = old[key], ref[key]
    values = batch.scored.values | {"old_log_probs": arrays[0], "ref_log_probs": arrays[1]}
    return on_mesh(dataclasses.replace(batch, scored=dataclasses.replace(batch.scored, values=values)), MESH)


TREES = [lazy.make() for lazy in trees_of(BATCH, salvage=True)]
SIZES = [tree.size for tree in TREES]
ALL = tuple(range(SAMPLES))
EVEN, ODD = ALL[::2], ALL[1::2]
# The rows of a step, one a micro-batch but for the last plan.
PLANS: dict[str, list[Rows]] = {
    "one group a row": [((Part(0, ALL),),), ((Part(1, ALL),),), ((Part(2, (*ALL, SAMPLES)),),)],
    "packed": Packer(SHAPE, TINY).pack(SIZES),
    "cut groups": [
        ((Part(0, EVEN), Part(2, (*ODD, SAMPLES))),),
        ((Part(2, EVEN[:1]), Part(1, ALL)),),
        ((Part(2, EVEN[1:]), Part(0, ODD)),),
    ],
    "shards": [((Part(0, ALL), Part(1, EVEN)), (Part(2, (*ALL, SAMPLES)),), (Part(1, ODD),))],
}


def shared_batches(plan: list[Rows]) -> list[tuple[Batch, Places]]:
    shape = dataclasses.replace(SHAPE, rows=max(len(rows) for rows in plan))
    made = []
    for rows in plan:
        batch = lay_out(TREES.__getitem__, rows, shape, TINY, names=VALUES)
        places = {
            # The salvage target is behind the responses.
            (at.tree, at.branch if at.branch < SAMPLES else -1): (at.row, slice(at.start, at.stop))
            for at in spans(rows, SIZES)
        }
        made.append((batch, places))
    return made


def relative(ours: Any, theirs: Any) -> float:
    """The largest difference in a tensor, to its largest value."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def matrices(gradients: Any) -> dict[str, np.ndarray]:
    """Every adapter matrix of every layer by name."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        name = jax.tree_util.keystr(path)
        stack = np.asarray(leaf)
        for number, matrix in enumerate(stack if stack.ndim == 3 else stack[None]):
            found[f"{name} {number}"] = matrix
    return found


def test_all_groups_are_packed_into_one_row():
    ((row,),) = PLANS["packed"]
    assert len(row) == 3


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_loss_and_every_adapter_gradient_are_the_same(reference, plan):
    params, frozen, steps = reference.params, reference.frozen, reference.steps
    total, seen = steps.zero(params), set()
    for micro, places in shared_batches(plan):
        batch = against(micro, places, reference.old, reference.ref)
        scored = np.asarray(steps.log_probs(params, frozen, batch))
        for key, place in places.items():
            np.testing.assert_allclose(scored[place], reference.log_probs[key], atol=2e-5)
        total, seen = steps.add(total, params, frozen, batch), seen | set(places)
    assert seen == set(reference.log_probs) and len(seen) == 3 * SAMPLES + 1
    own, others = (jax.tree_util.tree_leaves_with_path(one.sums) for one in (total, reference.total))
    for (path, value), (_, expected) in zip(own, others, strict=True):
        name = jax.tree_util.keystr(path)
        # The sampler's policy is the trainer's, and nothing is replayed.
        if name in (".metrics['importance/capped'][0]", ".metrics['replay/loss']", ".metrics['replay/kl']"):
            assert float(value) == float(expected) == 0
            continue
        # Every term takes part, and so does every clip.
        assert float(expected) != 0, name
        assert relative(value, expected) < 1e-5, name
    ours, theirs = matrices(total.gradients), matrices(reference.total.gradients)
    assert len(theirs) == 2 * (2 * 2 + 4)
    for name, matrix in theirs.items():
        assert matrix.any(), name
        assert relative(ours[name], matrix) < 1e-5, name
