"""Sampling: a prefill, then one jitted loop over response positions for all samples of all prompts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from rmsweb_jax.mesh import AXES, constrain
from rmsweb_jax.qwen3_vl.cache import PrefixCache, decode_step, empty_suffix, prefill
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.fused import DecodeWeights, decode_weights
from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.model import Qwen3VL

_BANNED = -1e30
_SAMPLE_BLOCK = 128


class Generated(NamedTuple):
    """Responses of K samples to each of G prompts.

    Attributes:
      tokens: [G, K, R] int32, the end token included; 0 after it.
      log_probs: [G, K, R] float32, under the model at the sampling temperature (at 1 when greedy) and
        before banning, as the training forward computes them; 0 after the end.
      lengths: [G, K] int32, tokens a response has; a truncated one has R and no end token.
    """

    tokens: jax.Array
    log_probs: jax.Array
    lengths: jax.Array


def sample_tokens(logits: jax.Array, keys: jax.Array) -> jax.Array:
    """Draws from softmax(logits) by inverting the distribution function with one uniform a row.

    Args:
      logits: [M, V] float32; values of -1e30 are never drawn.
      keys: [M] PRNG keys.

    Returns:
      [M] int32. Two levels of sums cost less than V random numbers, and keep float32 sums short.
    """
    probs = jnp.exp(logits - logits.max(-1, keepdims=True))
    pad = -probs.shape[-1] % _SAMPLE_BLOCK
    blocks = jnp.pad(probs, ((0, 0), (0, pad))).reshape(len(probs), -1, _SAMPLE_BLOCK)
    sums = blocks.sum(-1)
    threshold = jax.vmap(jax.random.uniform)(keys)[:, None] * sums.sum(-1, keepdims=True)

    def choose(mass: jax.Array, left: jax.Array) -> jax.Array:
        reached = (jnp.cumsum(mass, axis=-1) > left) & (mass > 0)
        # Rounding can leave nothing reached; the largest then stands in.
        return jnp.where(reached.any(-1), jnp.argmax(reached, -1), jnp.argmax(mass, -1))

    block = choose(sums, threshold)
    before = jnp.where(jnp.arange(sums.shape[-1]) < block[:, None], sums, 0).sum(-1, keepdims=True)
    inner = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return (block * _SAMPLE_BLOCK + choose(inner, threshold - before)).astype(jnp.int32)


class _Loop(NamedTuple):
    step: jax.Array
    suffix: Any
    tokens: jax.Array
    log_probs: jax.Array
    last: jax.Array
    done: jax.Array


@functools.partial(jax.jit, static_argnames=("graphdef", "adapters", "mesh"))
def prepare_weights(graphdef: Any, state: Any, *, adapters: bool, mesh: Mesh | None) -> DecodeWeights:
    """The first program: `decode_weights` of a split model."""
    return decode_weights(nnx.merge(graphdef, state), adapters=adapters, mesh=mesh)


@functools.partial(jax.jit, static_argnames=("graphdef", "adapters", "mesh"))
def prefill_prompts(
    graphdef: Any, state: Any, prompts: ModelInputs, *, adapters: bool, mesh: Mesh | None
) -> tuple[jax.Array, PrefixCache]:
    """The second program: `prefill` of a split model."""
    return prefill(nnx.merge(graphdef, state), prompts, adapters=adapters, mesh=mesh)


@functools.partial(jax.jit, static_argnames=("config", "num_samples", "max_new_tokens", "mesh"))
def decode_responses(
    weights: DecodeWeights,
    last_hidden: jax.Array,
    prefix: PrefixCache,
    keys: jax.Array,
    temperature: jax.Array,
    banned: jax.Array,
    eos: jax.Array,
    *,
    config: TextConfig,
    num_samples: int,
    max_new_tokens: int,
    mesh: Mesh | None,
) -> Generated:
    """The third program: all steps until every sample has ended.

    Args:
      last_hidden: [G, hidden], of the last prompt tokens.
      keys: [G * K] PRNG keys.
      temperature: [G].
      banned: [V] bool.
      eos: [] int32.
    """
    groups = len(last_hidden)
    rows = groups * num_samples
    row_temperature = jnp.repeat(temperature, num_samples)[:, None]

    def draw(hidden: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = jnp.matmul(hidden.reshape(rows, -1), weights.head, preferred_element_type=jnp.float32)
        # Every device draws for some of the rows, from whole distributions.
        logits = constrain(logits, mesh, AXES, None)
        logits = logits / jnp.where(row_temperature > 0, row_temperature, 1.0)
        allowed = jnp.where(banned, _BANNED, logits)
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        sampled = sample_tokens(allowed, step_keys)
        token = jnp.where(row_temperature[:, 0] > 0, sampled, jnp.argmax(allowed, -1)).astype(jnp.int32)
        picked = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
        log_prob = picked - jax.nn.logsumexp(logits, axis=-1)
        return token.reshape(groups, num_samples), log_prob.reshape(groups, num_samples)

    def record(loop: _Loop, token: jax.Array, log_prob: jax.Array) -> _Loop:
        token, log_prob = jnp.where(loop.done, 0, token), jnp.where(loop.done, 0.0, log_prob)
        return loop._replace(
            step=loop.step + 1,
            tokens=jax.lax.dynamic_update_index_in_dim(loop.tokens, token, loop.step, 2),
            log_probs=jax.lax.dynamic_update_index_in_dim(loop.log_probs, log_prob, loop.step, 2),
            last=token,
            done=loop.done | (token == eos),
        )

    def body(loop: _Loop) -> _Loop:
        fed = loop.step - 1
        hidden, suffix = decode_step(weights, config, loop.last, fed, prefix, loop.suffix, mesh)
        return record(loop._replace(suffix=suffix), *draw(hidden, loop.step))

    shape = (groups, num_samples)
    start = _Loop(
        step=jnp.int32(0),
        suffix=empty_suffix(prefix, num_samples, max_new_tokens, mesh),
        tokens=jnp.zeros((*shape, max_new_tokens), jnp.int32),
        log_probs=jnp.zeros((*shape, max_new_tokens), jnp.float32),
        last=jnp.zeros(shape, jnp.int32),
        done=jnp.zeros(shape, bool),
    )
    first = jnp.broadcast_to(last_hidden[:, None], (*shape, last_hidden.shape[-1]))
    loop = record(start, *draw(first, start.step))
    loop = jax.lax.while_loop(lambda loop: (loop.step < max_new_tokens) & ~loop.done.all(), body, loop)
    ended = loop.tokens == eos
    lengths = jnp.where(loop.done, jnp.argmax(ended, -1) + 1, max_new_tokens)
    return Generated(loop.tokens, loop.log_probs, lengths.astype(jnp.int32))


class Generator:
    """Samples from one policy, whose weights it prepares once.

    Args:
      model: on the mesh of its `attention`, when that has one; then the prompts of a call must divide over
        `data` and `fsdp`.
      adapters: False samples from the reference policy.
    """

    def __init__(self, model: Qwen3VL, *, adapters: bool = True):
        self.config = model.config
        self._graphdef, self._state = nnx.split(model)
        self._static = {"adapters": adapters, "mesh": model.attention.mesh}
        self._weights = prepare_weights(self._graphdef, self._state, **self._static)

    def __call__(
        self,
        prompts: ModelInputs,
        *,
        num_samples: int,
        max_new_tokens: int,
        eos: int,
        seed: int | Array = 0,
        prompt_ids: Array | None = None,
        temperature: float | Array = 1.0,
        banned: Sequence[int] = (),
    ) -> Generated:
        """Samples `num_samples` responses to each prompt.

        A response depends on its prompt and (seed, prompt id, sample index) alone: neither the other prompts
        of the batch nor the padding changes it, up to rounding.

        Args:
          prompts: [G, P], one prompt a row, padded on either side; pad G and P to buckets: each
            compiles once.
          max_new_tokens: R, also compiled in.
          eos: the token that ends a response, usually `<|im_end|>`.
          seed: one for all prompts, or [G].
          prompt_ids: [G]; the row numbers by default.
          temperature: one for all prompts, or [G]; 0 takes the most probable token.
          banned: token ids that are never drawn, as the vision tokens.
        """
        groups = prompts.tokens.shape[0]
        ids = np.arange(groups) if prompt_ids is None else np.asarray(prompt_ids)
        mask = np.zeros(self.config.text.vocab_size, bool)
        mask[list(banned)] = True
        last_hidden, prefix = prefill_prompts(self._graphdef, self._state, prompts, **self._static)
        return decode_responses(
            self._weights,
            last_hidden,
            prefix,
            _row_keys(np.broadcast_to(np.asarray(seed), groups), ids, num_samples),
            np.broadcast_to(np.asarray(temperature, np.float32), groups),
            mask,
            np.int32(eos),
            config=self.config.text,
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
            mesh=self._static["mesh"],
        )


@functools.partial(jax.jit, static_argnames="num_samples")
def _row_keys(seeds: jax.Array, prompt_ids: jax.Array, num_samples: int) -> jax.Array:
    """[G] seeds and ids -> [G * K] keys."""

    def group(seed: jax.Array, prompt_id: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), prompt_id)
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_samples))

    return jax.vmap(group)(seeds, prompt_ids).reshape(-1)
