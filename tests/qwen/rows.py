"""Rows of text for the model's tests, and the log-probabilities of all of their tokens."""

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.qwen.inputs import Array, ModelInputs, tree_tables
from rmsweb_jax.qwen.model import MAX_LOGITS, Qwen3VL, TokenScores, score_tokens


def predecessors(until: Array) -> jax.Array:
    """Finds the position whose hidden state predicts each token: [B, T] int32, -1 for first tokens and
    padding.

    It is the last token before it that it sees: its neighbour, or the end of its prompt.
    """
    until = jnp.asarray(until)
    place = jnp.arange(until.shape[1])
    seen = (place < place[:, None]) & (place[:, None] < until[:, None, :])
    return jnp.where(seen, place, -1).max(2)


def token_log_probs(
    model: Qwen3VL,
    inputs: ModelInputs,
    *,
    adapters: bool = True,
    dropout_key: jax.Array | None = None,
    temperature: float = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Runs the model and scores every token of the batch; first tokens of a tree have 0 and False."""
    hidden = model(inputs, adapters=adapters, dropout_key=dropout_key)
    return hidden_log_probs(model, hidden, inputs, temperature=temperature, max_logits=max_logits)


def hidden_log_probs(
    model: Qwen3VL,
    hidden: jax.Array,
    inputs: ModelInputs,
    *,
    temperature: float = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Scores every token of the batch by the model's hidden states."""
    source = predecessors(inputs.until)
    hidden = jnp.take_along_axis(hidden, jnp.maximum(source, 0)[..., None], axis=1)
    scores = score_tokens(model, hidden, inputs.tokens, temperature=temperature, max_logits=max_logits)
    valid = source >= 0
    return TokenScores(jnp.where(valid, scores.log_probs, 0.0), scores.matches & valid)


@jax.jit
def log_probs(model: Qwen3VL, inputs: ModelInputs, temperature: float = 1.0) -> jax.Array:
    return token_log_probs(model, inputs, temperature=temperature).log_probs


@jax.jit
def logits(model: Qwen3VL, inputs: ModelInputs) -> jax.Array:
    return model.logits(model(inputs))


def text_inputs(rows, *, length=None, left=0) -> ModelInputs:
    """One sequence a row, padded to `length` with `left` padding tokens before it."""
    length = length or max(len(row) for row in rows) + left
    shape = (len(rows), length)
    inputs = ModelInputs(
        tokens=np.zeros(shape, np.int32),
        positions=np.zeros((3, *shape), np.int32),
        until=np.tile(np.arange(1, length + 1, dtype=np.int32), (len(rows), 1)),
        image_index=np.full(shape, -1, np.int32),
    )
    for number, row in enumerate(rows):
        place = slice(left, left + len(row))
        inputs.tokens[number, place] = row
        inputs.positions[:, number, place] = np.arange(len(row))
        inputs.until[number, place] = place.stop
    # Models without a recurrence do not read them.
    return inputs.replace(tables=tree_tables(np.asarray(inputs.until)))
