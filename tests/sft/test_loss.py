import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import on_mesh
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.qwen.lora import add_lora
from rmsweb_jax.sft.step import init_state, sft_loss, sft_steps, split_model
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.step import adamw
from tests.sft.conftest import one_a_row

SHAPE = RowShape(width=48, rows=8, images=1, window=8)


# Compiled once for all tests: the model's graph is the same in each.
@functools.partial(jax.jit, static_argnums=(0, 3))
def loss_and_gradient(graphdef, params, batch, batch_size):
    def part(params):
        loss, (sums, _) = sft_loss(nnx.merge(graphdef, params), batch, batch_size)
        return loss, sums

    return jax.value_and_grad(part, has_aux=True)(params)


@functools.partial(jax.jit, static_argnums=0)
def all_logits(graphdef, params, inputs):
    model = nnx.merge(graphdef, params)
    return model.logits(model(inputs))


def gradient(model, examples, shape: RowShape):
    """Summed loss and gradient of all parameters over micro-batches of these rows."""
    graphdef, params = nnx.split(model)
    loss, total = 0.0, None
    for batch in one_a_row(examples, shape):
        (value, _), grads = loss_and_gradient(graphdef, params, batch, len(examples))
        loss += float(value)
        total = grads if total is None else jax.tree.map(jnp.add, total, grads)
    return loss, total


def test_loss_is_the_mean_of_sequence_means(model, examples):
    """Against the definition, one unpadded sample at a time."""
    means = []
    graphdef, params = nnx.split(model)
    for example in examples[2:4]:  # With an image, and without.
        (batch,) = one_a_row([example], RowShape(example.length, 1, len(example.grids), 8))
        logits = all_logits(graphdef, params, batch.inputs)[0]
        log_probs = np.asarray(jax.nn.log_softmax(logits[:-1]))
        nll = -log_probs[np.arange(len(log_probs)), example.tokens[1:]]
        means.append(float(nll[example.prompt_length - 1 :].mean()))
    loss, _ = gradient(model, examples[2:4], SHAPE)
    assert loss == pytest.approx(np.mean(means), rel=1e-5)


def test_padding_does_not_reach_the_loss(model, examples):
    (batch,) = one_a_row(examples[:3], SHAPE)
    graphdef, params = nnx.split(model)
    lengths = np.zeros((SHAPE.rows, 1), int)
    lengths[:3, 0] = sorted((example.length for example in examples[:3]), reverse=True)
    held = np.arange(SHAPE.width) < lengths
    assert not held.all(axis=1).any() and batch.inputs.tokens[held].any()
    other = batch.inputs.replace(tokens=np.where(held, batch.inputs.tokens, 7))
    first = loss_and_gradient(graphdef, params, batch, 8)
    second = loss_and_gradient(graphdef, params, batch.replace(inputs=other), 8)
    chex.assert_trees_all_equal(first, second)


def test_accuracies_count_spans_that_are_right_to_the_last_token(model, examples, config):
    (batch,) = one_a_row(examples, SHAPE)
    graphdef, params = nnx.split(model)
    logits = all_logits(graphdef, params, batch.inputs)
    places = np.take_along_axis(np.asarray(logits.argmax(-1)), batch.scored.index, axis=1)
    right = batch.replace(scored=batch.scored.replace(tokens=places))
    (_, sums), _ = loss_and_gradient(graphdef, params, right, 8)
    with_action = sum(bool(example.action_mask.any()) for example in examples)
    assert float(sums.actions) == float(sums.exact_actions) == with_action
    assert float(sums.correct) == float(sums.tokens) == sum(example.num_targets for example in examples)

    action = batch.scored.values["action"]
    row = int(np.flatnonzero(action.sum(1))[0])
    place = int(np.flatnonzero(action[row])[-1])
    places[row, place] = (places[row, place] + 1) % config.text.vocab_size
    wrong = right.replace(scored=right.scored.replace(tokens=places))
    (_, sums), _ = loss_and_gradient(graphdef, params, wrong, 8)
    assert float(sums.exact_actions) == with_action - 1
    assert float(sums.correct) == float(sums.tokens) - 1


def test_steps_train_adapters_alone(model, examples):
    add_lora(model, LoRAConfig(rank=2, alpha=4.0, dropout=0.1), nnx.Rngs(1))
    mesh = make_mesh()
    graphdef, params, frozen = split_model(model, "lora")
    before = jax.tree.map(np.asarray, frozen)
    optimizer = adamw(1e-2, weight_decay=0.01, clip_norm=1.0)
    state = init_state(params, optimizer, mesh)
    steps = sft_steps(graphdef, state, optimizer, len(examples), mesh)
    losses = []
    for step in range(12):
        total = steps.zero(state.params)
        for batch in one_a_row(examples, SHAPE):
            total = steps.add(total, state.params, frozen, on_mesh(batch, mesh), jax.random.key(step))
        state, metrics = steps.update(state, total)
        losses.append(float(metrics["loss/train"]))
    assert losses[-1] < 0.9 * losses[0]
    assert float(metrics["norm/gradient"]) > 0 and float(metrics["norm/update"]) > 0
    chex.assert_trees_all_equal(jax.tree.map(np.asarray, frozen), before)
    assert jax.tree.leaves(frozen)
