"""Log-probabilities of given tokens under the model, without holding all logits of a long batch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.model import Qwen3VL

# Logits of at most this many float32 values (256 MiB) are held at once.
MAX_LOGITS = 2**26


class TokenLogProbs(NamedTuple):
    """Per token of the batch, given the tokens that it may see; first tokens of a segment have 0 and False.

    Attributes:
      log_probs: [B, T] float32, log p(tokens[t] | ...).
      matches: [B, T] bool, whether the token is the most probable one.
    """

    log_probs: jax.Array
    matches: jax.Array


def predecessors(segment_ids: Array, slot_ids: Array | None) -> jax.Array:
    """Position whose hidden state predicts each token: [B, T] int32, -1 for first tokens and padding.

    That is the token before it, and for the first token of a response slot the last token of the prompt.
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


def _score(
    model: Qwen3VL, hidden: jax.Array, targets: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """hidden [M, D], targets [M] -> log-probabilities and top-1 matches [M]."""
    logits = model.logits(hidden) / temperature
    picked = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return picked - jax.nn.logsumexp(logits, axis=-1), jnp.argmax(logits, axis=-1) == targets


def token_log_probs(
    model: Qwen3VL,
    inputs: ModelInputs,
    *,
    adapters: bool = True,
    dropout_key: jax.Array | None = None,
    temperature: float = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenLogProbs:
    """Runs the model and scores every token of the batch.

    When [B * T, V] logits would exceed `max_logits` values, chunks of tokens are scored one after
    another, and scored again in the backward pass.
    """
    hidden = model(inputs, adapters=adapters, dropout_key=dropout_key)
    source = predecessors(inputs.segment_ids, inputs.slot_ids)
    hidden = jnp.take_along_axis(hidden, jnp.maximum(source, 0)[..., None], axis=1)
    flat, targets = hidden.reshape(-1, hidden.shape[-1]), jnp.asarray(inputs.tokens).reshape(-1)
    chunk = max(1, max_logits // model.config.text.vocab_size)
    if len(targets) <= chunk:
        log_probs, matches = _score(model, flat, targets, temperature)
    else:
        count = -(-len(targets) // chunk)
        pad = count * chunk - len(targets)
        parts = jnp.pad(flat, ((0, pad), (0, 0))), jnp.pad(targets, (0, pad))
        parts = tuple(part.reshape(count, chunk, *part.shape[1:]) for part in parts)
        step = jax.checkpoint(lambda part: _score(model, part[0], part[1], temperature))
        scored = jax.lax.map(step, parts)
        log_probs, matches = (part.reshape(-1)[: len(targets)] for part in scored)
    valid = source >= 0
    return TokenLogProbs(
        jnp.where(valid, log_probs.reshape(source.shape), 0.0), matches.reshape(source.shape) & valid
    )
