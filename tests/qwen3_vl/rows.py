"""Rows of text for the model's tests, and the log-probabilities of all of their tokens."""

import jax
import jax.numpy as jnp
import numpy as np

from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.logprobs import MAX_LOGITS, TokenScores, score_tokens
from rmsweb_jax.qwen3_vl.model import Qwen3VL


def predecessors(segment_ids: Array, slot_ids: Array | None) -> jax.Array:
    """Finds the position whose hidden state predicts each token: [B, T] int32, -1 for first tokens and
    padding.

    It is the token before, and for the first token of a response slot the last token of the prompt.
    """
    segment_ids = jnp.asarray(segment_ids)
    slot_ids = jnp.zeros_like(segment_ids) if slot_ids is None else jnp.asarray(slot_ids)
    index = jnp.broadcast_to(jnp.arange(segment_ids.shape[1]), segment_ids.shape)

    def shifted(values: jax.Array, fill: int) -> jax.Array:
        return jnp.pad(values[:, :-1], ((0, 0), (1, 0)), constant_values=fill)

    last_prompt = jax.lax.cummax(jnp.where((slot_ids == 0) & (segment_ids > 0), index, -1), axis=1)
    before_is_mine = (shifted(slot_ids, -1) == slot_ids) & (shifted(segment_ids, 0) == segment_ids)
    candidate = jnp.where(before_is_mine, index - 1, shifted(last_prompt, -1))
    segment = jnp.take_along_axis(segment_ids, jnp.maximum(candidate, 0), axis=1)
    valid = (candidate >= 0) & (segment == segment_ids) & (segment_ids > 0)
    return jnp.where(valid, candidate, -1)


def token_log_probs(
    model: Qwen3VL,
    inputs: ModelInputs,
    *,
    adapters: bool = True,
    dropout_key: jax.Array | None = None,
    temperature: float = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Runs the model and scores every token of the batch; first tokens of a segment have 0 and False."""
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
    source = predecessors(inputs.segment_ids, inputs.slot_ids)
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
    """One segment a row, padded to `length` with `left` padding tokens before it."""
    length = length or max(len(row) for row in rows) + left
    shape = (len(rows), length)
    inputs = ModelInputs(
        tokens=np.zeros(shape, np.int32),
        positions=np.zeros((3, *shape), np.int32),
        segment_ids=np.zeros(shape, np.int32),
        slot_ids=np.zeros(shape, np.int32),
        image_index=np.full(shape, -1, np.int32),
    )
    for number, row in enumerate(rows):
        place = slice(left, left + len(row))
        inputs.tokens[number, place] = row
        inputs.positions[:, number, place] = np.arange(len(row))
        inputs.segment_ids[number, place] = 1
    return inputs
