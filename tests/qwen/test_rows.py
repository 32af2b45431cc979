"""Padding, packing and branches never change what a token sees."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.inputs import image_starts, mrope_positions, response_positions, vision_inputs
from rmsweb_jax.qwen.lora import LoRAParam
from rmsweb_jax.qwen.model import MAX_LOGITS, Qwen3VL
from rmsweb_jax.qwen.text import REMAT_POLICIES
from rmsweb_jax.training.config import LoRAConfig
from tests.qwen.conftest import BASE, IMAGE_TOKEN
from tests.qwen.random_models import random_model
from tests.qwen.rows import hidden_log_probs, log_probs, predecessors, text_inputs

PROMPT = [5, 6, 7, 8, 9]
REPLIES = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]


@pytest.fixture(scope="module")
def model() -> Qwen3VL:
    return random_model(BASE)


def separate_log_probs(model):
    """Log-probabilities of each reply, each in a row of its own."""
    out = []
    for reply in REPLIES:
        scores = log_probs(model, text_inputs([PROMPT + reply], length=24))[0]
        out.append(np.asarray(scores[len(PROMPT) : len(PROMPT + reply)]))
    return out


def shared_row(left=0, length=24, gap=0):
    """One prompt with every reply as a branch, `gap` padding tokens between the branches."""
    inputs = text_inputs([PROMPT], length=length, left=left)
    at, places = left + len(PROMPT), []
    for reply in REPLIES:
        place = slice(at, at + len(reply))
        inputs.tokens[0, place] = reply
        inputs.until[0, place] = place.stop
        prompt_positions = inputs.positions[:, 0, left : left + len(PROMPT)]
        inputs.positions[:, 0, place] = response_positions(prompt_positions, len(reply))
        places.append(place)
        at += len(reply) + gap
    inputs.until[0, left : left + len(PROMPT)] = places[-1].stop
    return inputs, places


@pytest.mark.parametrize(("left", "gap"), [(0, 0), (3, 0), (0, 2)])
def test_branches_equal_separate_rows(model, left, gap):
    inputs, places = shared_row(left, 24, gap)
    scores = log_probs(model, inputs)[0]
    for place, expected in zip(places, separate_log_probs(model), strict=True):
        np.testing.assert_allclose(scores[place], expected, atol=1e-5)


def test_packed_samples_equal_separate_rows(model):
    rows = [PROMPT + reply for reply in REPLIES]
    inputs = text_inputs([list(itertools.chain(*rows))], length=24)
    at = 0
    for row in rows:
        inputs.until[0, at : at + len(row)] = at + len(row)
        inputs.positions[:, 0, at : at + len(row)] = np.arange(len(row))
        at += len(row)
    scores = log_probs(model, inputs)[0]
    at = 0
    for row in rows:
        alone = log_probs(model, text_inputs([row], length=24))[0, : len(row)]
        np.testing.assert_allclose(scores[at : at + len(row)], alone, atol=1e-5)
        assert scores[at] == 0.0
        at += len(row)


@functools.partial(jax.jit, static_argnames=("graphdef", "max_logits"))
def gradient(state, graphdef, inputs, max_logits):
    """Sum of the log-probabilities, scores and hidden states; and the gradient."""

    def loss(state):
        model = nnx.merge(graphdef, state)
        hidden = model(inputs)
        scores = hidden_log_probs(model, hidden, inputs, max_logits=max_logits)
        return scores.log_probs.sum(), (scores, hidden)

    return jax.value_and_grad(loss, has_aux=True)(state)


def test_padding_is_finite_in_values_and_gradients(model):
    graphdef, state = nnx.split(model)
    for prompt in (PROMPT, PROMPT[:2]):
        inputs = text_inputs([prompt], length=24, left=2)
        found = gradient(state, graphdef, inputs, MAX_LOGITS)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found))


def test_chunks_and_remat_change_nothing(model):
    inputs, _ = shared_row()
    graphdef, state = nnx.split(model)
    again = nnx.split(random_model(BASE, remat="full"))[0]
    (whole, (scores, _)), expected = gradient(state, graphdef, inputs, MAX_LOGITS)
    (chunked, (chunked_scores, _)), found = gradient(state, again, inputs, 97 * 3)
    np.testing.assert_allclose(chunked, whole, rtol=1e-5)
    np.testing.assert_array_equal(chunked_scores.matches, scores.matches)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


ADAPTERS = LoRAConfig(rank=4, alpha=8.0, dropout=0.3)


def adapter_gradients(remat: str) -> list[jax.Array]:
    """Gradients of the adapters with dropout, by the attention that training uses."""
    model = random_model(BASE, ADAPTERS, remat=remat)
    model.attention = AttentionConfig("blocks")
    graphdef, adapters, rest = nnx.split(model, LoRAParam, ...)
    # Long enough for a block, so that the kernel's named results are there to be saved.
    inputs, _ = shared_row(length=64)

    @jax.jit
    def compute(adapters):
        def loss(adapters):
            hidden = nnx.merge(graphdef, adapters, rest)(inputs, dropout_key=jax.random.key(0))
            return hidden_log_probs(model, hidden, inputs).log_probs.sum()

        return jax.grad(loss)(adapters)

    return jax.tree.leaves(compute(adapters))


@pytest.fixture(scope="module")
def saved_gradients() -> list[jax.Array]:
    return adapter_gradients("none")


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, marks=() if policy == "named" else pytest.mark.slow)
        for policy in REMAT_POLICIES
        if policy != "none"
    ],
)
def test_rematerialization_changes_no_gradient(saved_gradients, policy):
    for found, expected in zip(adapter_gradients(policy), saved_gradients, strict=True):
        assert np.linalg.norm(expected) > 0
        assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_predecessor_of_a_branch_is_the_prompts_end():
    # Padding, a prompt of three with branches of two and one; a prompt of one with a branch; padding.
    until = np.array([[1, 7, 7, 7, 6, 6, 7, 9, 9, 10]], np.int32)
    assert predecessors(until).tolist() == [[-1, -1, 1, 2, 3, 4, 3, -1, 7, -1]]


def test_image_positions_and_the_text_after_them():
    tokens = np.array([1, *[IMAGE_TOKEN] * 6, 2, 3], np.int32)
    positions = mrope_positions(tokens, [(1, 4, 6)], BASE)
    assert positions[:, 0].tolist() == [0, 0, 0]
    assert positions[:, 6].tolist() == [1, 2, 3]
    assert positions[:, 7].tolist() == [4, 4, 4]
    assert response_positions(positions, 2).tolist() == [[6, 7]] * 3


@pytest.mark.parametrize("grids", [[], [(1, 2, 4)], [(1, 4, 6), (1, 2, 2)]])
def test_grids_that_do_not_fit_the_tokens_are_refused(grids):
    tokens = np.array([1, *[IMAGE_TOKEN] * 6, 2], np.int32)
    # (1, 2, 4) leaves image tokens over, which then start an image that no grid describes.
    with pytest.raises(UserError, match="image"):
        mrope_positions(tokens, grids, BASE)


def test_windows_are_not_crossed():
    assert image_starts([(1, 4, 4), (1, 4, 4), (1, 2, 4)], 24) == [0, 24, 40]
    with pytest.raises(UserError, match="window"):
        image_starts([(1, 8, 8)], 24)


@pytest.mark.parametrize(
    ("shape", "grids"),
    [((12, BASE.vision.patch_dim), [(1, 4, 4)]), ((16, 7), [(1, 4, 4)]), ((16, BASE.vision.patch_dim), [])],
)
def test_patches_that_are_not_those_of_the_grid_are_refused(shape, grids):
    with pytest.raises(UserError, match="grid"):
        vision_inputs([np.zeros(shape, np.float32)], grids, BASE, 32)


def test_images_beyond_the_bucket_are_refused():
    patches = np.zeros((16, BASE.vision.patch_dim), np.float32)
    with pytest.raises(UserError, match="bucket"):
        vision_inputs([patches], [(1, 4, 4)], BASE, 12)
