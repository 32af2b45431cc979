"""Draws tokens from logits: from the whole distribution, or from a part of it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int32, Key

from rmsweb_jax.qwen.inputs import Array

# Logit of a token that is not drawn: finite, so that no difference of two of them is NaN.
BANNED = -1e30
# Tokens of a block of the vocabulary in `sample_tokens`.
_BLOCK = 128


class Restrictions(NamedTuple):
    """How each row restricts its draws, see `requests.Sampling`.

    Attributes:
      allowed: bits of the tokens that may be drawn, 32 a word, lowest first.
    """

    top_p: Float32[Array, " rows"]
    top_k: Int32[Array, " rows"]
    presence_penalty: Float32[Array, " rows"]
    frequency_penalty: Float32[Array, " rows"]
    allowed: Int32[Array, "rows words"]


def sample_tokens(
    logits: Float32[jax.Array, "rows vocab"], keys: Key[jax.Array, " rows"]
) -> Int32[jax.Array, " rows"]:
    """Draws one token a row from softmax(logits), by inverse transform sampling.

    Args:
      logits: values of -1e30 are never drawn.
      keys: a PRNG key for each row.
    """
    # One uniform a row costs less than the vocabulary's Gumbel noise. It is inverted in two levels, first the
    # block of the vocabulary and then the token in it, which keeps the float32 sums short and so exact.
    probs = jnp.exp(logits - logits.max(-1, keepdims=True))
    pad = -probs.shape[-1] % _BLOCK
    blocks = jnp.pad(probs, ((0, 0), (0, pad))).reshape(len(probs), -1, _BLOCK)
    sums = blocks.sum(-1)
    threshold = jax.vmap(jax.random.uniform)(keys)[:, None] * sums.sum(-1, keepdims=True)

    def choose(mass: jax.Array, target: jax.Array) -> jax.Array:
        reached = (_cumulative(mass) > target) & (mass > 0)
        # By rounding the sums may end below the target; then take the most probable.
        return first_true(
            jnp.where(reached.any(-1, keepdims=True), reached, mass == mass.max(-1, keepdims=True))
        )

    block = choose(sums, threshold)
    before = jnp.where(jnp.arange(sums.shape[-1]) < block[:, None], sums, 0).sum(-1, keepdims=True)
    inner = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return block * _BLOCK + choose(inner, threshold - before)


def _cumulative(mass: Float32[jax.Array, "rows columns"]) -> Float32[jax.Array, "rows columns"]:
    """Sums each row up to each column."""
    # A product, since CPUs compute `cumsum` of n columns in n**2 steps.
    ones = jnp.triu(jnp.ones((mass.shape[-1],) * 2, mass.dtype))
    return jnp.matmul(mass, ones, precision=jax.lax.Precision.HIGHEST)


def first_true(mask: Bool[jax.Array, "rows columns"]) -> Int32[jax.Array, " rows"]:
    """Returns the index of the first True of each row; the last column if there is none."""
    # A minimum, since CPUs compute `argmax` element by element.
    last = mask.shape[-1] - 1
    return jnp.where(mask, jnp.arange(last + 1, dtype=jnp.int32), last).min(-1)


def penalize(
    logits: Float32[jax.Array, "rows vocab"], limits: Restrictions, counts: Int32[jax.Array, "rows vocab"]
) -> Float32[jax.Array, "rows vocab"]:
    """Lowers the logits of tokens that were drawn, by OpenAI's penalties."""
    logits = logits - jnp.asarray(limits.frequency_penalty)[:, None] * counts
    return logits - jnp.asarray(limits.presence_penalty)[:, None] * (counts > 0)


def restrict(
    logits: Float32[jax.Array, "rows vocab"], limits: Restrictions
) -> Float32[jax.Array, "rows vocab"]:
    """Bans the tokens outside of the constraint, and of top_k and top_p at the logits' temperature."""
    logits = jnp.where(unpack_bits(jnp.asarray(limits.allowed), logits.shape[1]), logits, BANNED)
    # Probabilities over that of the most likely token.
    probs = jnp.exp(logits - logits.max(-1, keepdims=True))
    top_k, top_p = jnp.asarray(limits.top_k), jnp.asarray(limits.top_p)
    mass = top_p * probs.sum(-1)
    # Positive floats are in the order of their bits.
    bits = jax.lax.bitcast_convert_type(probs, jnp.int32)

    def add_bit(number: jax.Array, least: jax.Array) -> jax.Array:
        """Raises the bound by a bit where the tokens that reach it still have top_p, or are top_k."""
        bound = least | (jnp.int32(1) << (30 - number))
        reach = bits >= bound[:, None]
        enough = (top_p < 1) & (jnp.where(reach, probs, 0).sum(-1) >= mass)
        enough |= (top_k > 0) & (reach.sum(-1) >= top_k)
        return jnp.where(enough, bound, least)

    # A search by halves: sorting the vocabulary takes eight times as long.
    least = jax.lax.fori_loop(0, 31, add_bit, jnp.zeros(len(bits), jnp.int32))
    # The most likely token is always kept.
    kept = bits >= jnp.minimum(least, bits.max(-1))[:, None]
    return jnp.where(kept, logits, BANNED)


def unpack_bits(words: Int32[jax.Array, "rows words"], count: int) -> Bool[jax.Array, "rows bits"]:
    """Unpacks the first `count` bits of each row, lowest first."""
    bits = (words[:, :, None] >> jnp.arange(32, dtype=words.dtype)) & 1
    return bits.reshape(len(words), -1)[:, :count].astype(bool)
