"""Log-probabilities of given tokens, without holding all logits of a long batch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Float32, Int32

from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.training.mesh import row_shards

# Most float32 logits that a device holds at once (256 MiB), and tokens of a row that are scored at once:
# enough for matrix products to be fast.
MAX_LOGITS, _CHUNK = 2**26, 512


class TokenScores(NamedTuple):
    """Scores of given tokens.

    Attributes:
      log_probs: log-probability of each token.
      matches: True where the token is the most probable one.
    """

    log_probs: Float32[jax.Array, "rows targets"]
    matches: Bool[jax.Array, "rows targets"]


def score_tokens(
    model: Qwen3VL,
    hidden: Float[jax.Array, "rows targets hidden"],
    tokens: Int32[Array, "rows targets"],
    count: Int32[jax.Array, ""] | None = None,
    *,
    temperature: float | Float32[jax.Array, "rows targets"] = 1.0,
    max_logits: int = MAX_LOGITS,
) -> TokenScores:
    """Scores tokens by the hidden states that predict them.

    They are scored in chunks, one after another, and again in the backward pass, so that the logits of few
    tokens are in memory at once.

    Args:
      hidden: state before each token, which in a tree is not always that of the token's neighbour.
      count: tokens of a row that need a score, from the first; the chunks after them cost nothing. By default
        all.
      temperature: temperature of the softmax, one for all tokens or one for each.
      max_logits: most logits of a device that are in memory at once.
    """
    head = model.head()
    tokens = jnp.asarray(tokens)
    rows, length = tokens.shape
    # Chunks cut the token axis, not the rows, so that each device keeps its rows.
    local_rows = -(-rows // row_shards(model.attention.mesh))
    chunk = max(1, min(_CHUNK, length, max_logits // (local_rows * model.config.text.vocab_size)))
    chunks = -(-length // chunk)

    def score(part: tuple[jax.Array, ...]) -> TokenScores:
        hidden, tokens, *own = part
        logits = head(hidden) / (own[0][..., None] if own else temperature)
        # The picked logit minus the log-sum-exp, without a softmax over the vocabulary in memory.
        picked = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        return TokenScores(picked - jax.nn.logsumexp(logits, axis=-1), jnp.argmax(logits, axis=-1) == tokens)

    def skip(part: tuple[jax.Array, ...]) -> TokenScores:
        shape = part[1].shape
        return TokenScores(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, bool))

    # Checkpointed: otherwise the backward pass would keep the logits of all chunks.
    @jax.checkpoint
    def step(part: tuple[jax.Array, tuple[jax.Array, ...]]) -> TokenScores:
        number, scored = part
        if count is None:
            return score(scored)
        return jax.lax.cond(number * chunk < count, score, skip, scored)

    def cut(x: jax.Array, fill: float = 0) -> jax.Array:
        """Reshapes [rows, targets, ...] to [chunks, rows, chunk, ...]."""
        padding = ((0, 0), (0, chunks * chunk - length), *[(0, 0)] * (x.ndim - 2))
        x = jnp.pad(x, padding, constant_values=fill)
        return jnp.moveaxis(x.reshape(rows, chunks, chunk, *x.shape[2:]), 1, 0)

    parts = [cut(hidden), cut(tokens)]
    if jnp.ndim(temperature):
        parts.append(cut(jnp.asarray(temperature), fill=1))
    scored = jax.lax.map(step, (jnp.arange(chunks), tuple(parts)))
    return TokenScores(*(jnp.moveaxis(part, 0, 1).reshape(rows, -1)[:, :length] for part in scored))
