"""Sampling by continuous batching: prompts wait for a slot of a pool, where K samples of each are decoded.

Four programs of static shapes: preparing a policy's weights, prefill, inserting prompts into slots (see
`pool`), and decoding until slots become free.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Bool, Float32, Int32, Integer, Key, Num, UInt32

from rmsweb_jax.decoding.cache import (
    BLOCK,
    PrefixCache,
    RingCache,
    SuffixCache,
    decode_step,
    flush_block,
    prefill,
)
from rmsweb_jax.decoding.pool import (
    DECODE_SPECS,
    DecodePool,
    DecodeState,
    PromptState,
    empty_decode_state,
    empty_prompts,
    end_samples,
    enlarge_pool,
    insert_prompts,
)
from rmsweb_jax.decoding.quantized import CACHE_DTYPES
from rmsweb_jax.decoding.weights import DecodeWeights, decode_weights, output_axes
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import MAX_UNROLL
from rmsweb_jax.training.mesh import AXES, constrain, constrain_tree

# Logit of a banned token: finite, so that no difference of two of them is NaN.
_BANNED = -1e30
# Tokens of a block of the vocabulary in `sample_tokens`.
_SAMPLE_BLOCK = 128


class Pause(NamedTuple):
    """Conditions on which decoding returns before all responses have ended.

    Both are arrays and not static arguments, so that other values compile nothing.

    Attributes:
      free_slots: returns once this many slots are free; a number above that of all slots disables this.
      steps: returns after this many steps; with 0 the fresh prompts get their first token and no other.
    """

    free_slots: Int32[Array, ""]
    steps: Int32[Array, ""]


class Generated(NamedTuple):
    """K responses to each prompt.

    Attributes:
      tokens: with the end token; 0 after it.
      log_probs: see `DecodeState`; 0 after the end.
      lengths: tokens of a response; a truncated one has `max_new_tokens` and no end token.
    """

    tokens: Int32[jax.Array, "groups samples max_new_tokens"]
    log_probs: Float32[jax.Array, "groups samples max_new_tokens"]
    lengths: Int32[jax.Array, "groups samples"]


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
    pad = -probs.shape[-1] % _SAMPLE_BLOCK
    blocks = jnp.pad(probs, ((0, 0), (0, pad))).reshape(len(probs), -1, _SAMPLE_BLOCK)
    sums = blocks.sum(-1)
    threshold = jax.vmap(jax.random.uniform)(keys)[:, None] * sums.sum(-1, keepdims=True)

    def choose(mass: jax.Array, target: jax.Array) -> jax.Array:
        reached = (jnp.cumsum(mass, axis=-1) > target) & (mass > 0)
        # By rounding the sums may end below the target; then take the most probable.
        return jnp.where(reached.any(-1), jnp.argmax(reached, -1), jnp.argmax(mass, -1))

    block = choose(sums, threshold)
    before = jnp.where(jnp.arange(sums.shape[-1]) < block[:, None], sums, 0).sum(-1, keepdims=True)
    inner = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return (block * _SAMPLE_BLOCK + choose(inner, threshold - before)).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames=("graphdef", "adapters", "merge", "mesh"))
def prepare_weights(
    graphdef: Any, state: Any, *, adapters: bool, merge: bool, mesh: Mesh | None
) -> DecodeWeights:
    """Compiles `decode_weights` for a model given as graph and state."""
    return decode_weights(nnx.merge(graphdef, state), adapters=adapters, merge=merge, mesh=mesh)


@functools.partial(jax.jit, static_argnames=("graphdef", "adapters", "cache_dtype", "mesh"))
def prefill_prompts(
    graphdef: Any,
    state: Any,
    prompts: ModelInputs,
    *,
    adapters: bool,
    cache_dtype: str,
    mesh: Mesh | None,
) -> tuple[jax.Array, PrefixCache]:
    """Compiles `prefill` for a model given as graph and state."""
    model = nnx.merge(graphdef, state)
    return prefill(model, prompts, adapters=adapters, cache_dtype=cache_dtype, mesh=mesh)


@functools.partial(
    jax.jit, donate_argnums=2, static_argnames=("config", "max_new_tokens", "cache_dtype", "attention")
)
def decode_responses(
    weights: DecodeWeights,
    prompts: PromptState,
    state: DecodeState,
    banned: Bool[Array, " vocab"],
    eos: Int32[Array, ""],
    pause: Pause,
    allowed: Int32[Array, "groups samples words"] | None = None,
    *,
    config: TextConfig,
    max_new_tokens: int,
    cache_dtype: str,
    attention: AttentionConfig,
) -> DecodeState:
    """Decodes until all responses have ended, or a condition of `pause` holds.

    Args:
      state: donated.
      banned: tokens that are never drawn.
      eos: the token that ends a response.
      allowed: bit masks of the tokens that each sample may draw, 32 a word, lowest bit first; they hold for
        all steps of the call, so a grammar needs a call a token.
      max_new_tokens: a response is cut there.
      attention: that of the model.
    """
    mesh = attention.mesh
    groups, samples, ring = state.tokens.shape
    block = min(ring, BLOCK)
    rows = groups * samples
    keys = _row_keys(prompts.seeds, prompts.prompt_ids, samples)
    temperature = jnp.repeat(prompts.temperature, samples)[:, None]
    last_step = state.step + pause.steps
    if allowed is not None:
        banned = banned | ~_bits(jnp.asarray(allowed).reshape(rows, -1), banned.shape[0])

    def sample(hidden: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draws token `index` [groups] of every sample, given hidden states [groups, samples, hidden].

        Returns:
          Tokens and their log-probabilities, [groups, samples] each.
        """
        # Shard the vocabulary, not the hidden axis: the latter would all-reduce full [rows, vocab] logits.
        hidden = constrain(hidden.reshape(rows, -1), mesh, "data", None)
        # In float32: bfloat16 logits between 16 and 32 would be multiples of 1/8, and log-probabilities as
        # coarse.
        logits = jnp.matmul(hidden, weights.head, preferred_element_type=jnp.float32)
        logits = constrain(logits, mesh, "data", output_axes(weights.head.shape[1], mesh))
        # Then split rows over all devices, so that each one samples some rows from whole distributions.
        logits = constrain(logits, mesh, AXES, None)
        logits = logits / jnp.where(temperature > 0, temperature, 1.0)
        open_logits = jnp.where(banned, _BANNED, logits)
        # The key depends on the token's index in its response, not on the pool's step, so that a response
        # depends neither on its slot nor on the other requests of the pool.
        step_keys = jax.vmap(jax.random.fold_in)(keys, jnp.repeat(index, samples))
        sampled = sample_tokens(open_logits, step_keys)
        token = jnp.where(temperature[:, 0] > 0, sampled, jnp.argmax(open_logits, -1)).astype(jnp.int32)
        # Log-probabilities are those of the unrestricted distribution, which training computes again.
        picked = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
        log_prob = picked - jax.nn.logsumexp(logits, axis=-1)
        return token.reshape(groups, samples), log_prob.reshape(groups, samples)

    def record(
        state: DecodeState, drawn: tuple[jax.Array, jax.Array], active: jax.Array, position: jax.Array
    ) -> DecodeState:
        """Writes drawn tokens of the samples `active` [groups, samples] to a position of the ring buffer."""
        # All samples take part in every step. Those that have ended write back what is there, since the ring
        # buffer may still hold the beginning of their response.
        lengths = state.lengths + active
        tokens, log_probs = [
            jax.lax.dynamic_update_index_in_dim(
                old,
                jnp.where(active, new, jax.lax.dynamic_index_in_dim(old, position, 2, keepdims=False)),
                position,
                2,
            )
            for old, new in zip((state.tokens, state.log_probs), drawn, strict=True)
        ]
        ended = (drawn[0] == eos) | (lengths >= max_new_tokens)
        return state._replace(
            lengths=lengths,
            last=jnp.where(active, drawn[0], state.last),
            done=state.done | (active & ended),
            tokens=tokens,
            log_probs=log_probs,
        )

    def running(state: DecodeState) -> jax.Array:
        paused = state.done.all(1).sum() >= pause.free_slots
        return ~state.done.all() & ~paused & (state.step < last_step)

    def decode_block(state: DecodeState) -> DecodeState:
        """Decodes to the end of a block of the ring buffer.

        The ring buffer is not in the loop's state, since steps only read it (see `RingCache`).
        """
        suffix = state.suffix
        end = (state.step // block + 1) * block

        def step(state: DecodeState) -> DecodeState:
            num_fed = state.step - state.first_step
            hidden, recent = decode_step(
                weights,
                config,
                state.last,
                num_fed,
                state.step,
                prompts.prefix,
                SuffixCache(state.suffix.recent, suffix.ring),
                cache_dtype=cache_dtype,
                attention=attention,
            )
            state = state._replace(suffix=SuffixCache(recent, RingCache((), ())))
            state = record(state, sample(hidden, num_fed), ~state.done, state.step % ring)
            return state._replace(step=state.step + 1)

        # `step` reads the ring buffer from the enclosing scope, as a constant of this loop.
        state = state._replace(suffix=SuffixCache(suffix.recent, RingCache((), ())))
        state = jax.lax.while_loop(lambda state: running(state) & (state.step < end), step, state)
        suffix = flush_block(SuffixCache(state.suffix.recent, suffix.ring), state.step, attention)
        return state._replace(suffix=suffix)

    # The first token of a fresh prompt is drawn from its last hidden state, which prefill has computed. It
    # counts as drawn in the step before the current one, so that from now on all slots feed one token a step.
    hidden = jnp.broadcast_to(prompts.last_hidden[:, None], (groups, samples, prompts.last_hidden.shape[-1]))
    active = jnp.broadcast_to(state.fresh[:, None], state.done.shape)
    before = state.step - 1
    state = record(state, sample(hidden, jnp.zeros(groups, jnp.int32)), active, before % ring)
    state = state._replace(
        first_step=jnp.where(state.fresh, before, state.first_step), fresh=jnp.zeros_like(state.fresh)
    )
    # The result has the structure and the shardings of the donated state. With another order of its arrays
    # XLA would copy all caches.
    return constrain_tree(jax.lax.while_loop(running, decode_block, state), DECODE_SPECS, mesh)


def _bits(words: Int32[jax.Array, "rows words"], count: int) -> Bool[jax.Array, "rows bits"]:
    """Unpacks the first `count` bits of each row, lowest first."""
    bits = (words[:, :, None] >> jnp.arange(32, dtype=words.dtype)) & 1
    return bits.reshape(len(words), -1)[:, :count].astype(bool)


@functools.partial(jax.jit, static_argnames="num_samples")
def _row_keys(
    seeds: UInt32[Array, " groups"], prompt_ids: UInt32[Array, " groups"], num_samples: int
) -> Key[jax.Array, " rows"]:
    """Makes a PRNG key for each sample from its seed, its prompt's id and its index."""

    def group(seed: Array, prompt_id: Array) -> jax.Array:
        # Folded in one after the other: a sample's key depends on nothing else.
        key = jax.random.fold_in(jax.random.key(seed), prompt_id)
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_samples))

    return jax.vmap(group)(seeds, prompt_ids).reshape(-1)


def _unstacked(model: Qwen3VL) -> Qwen3VL:
    """Returns the model in the form whose prefill is fastest: on CPUs a copy with few layers is un-stacked.

    There a program that takes a stack of layers apart copies each layer's weights in every call.
    """
    few = len(model.language_model.first_layers) and model.config.text.num_hidden_layers <= 2 * MAX_UNROLL
    if not few or jax.default_backend() != "cpu" or model.attention.mesh is not None:
        return model
    model = nnx.merge(*nnx.split(model))
    language = model.language_model
    language.first_layers, language.layers = nnx.List(language.list_layers()), nnx.data(None)
    return model


class Generator:
    """Samples from one policy, whose weights it prepares once.

    Args:
      model: on the mesh of its `attention`, if that has one; the prompts of a call must then divide over
        `data` and `fsdp`.
      adapters: False samples from the reference policy.
      merge: True merges adapters into the weights, False keeps them separate; see `decode_weights`.
      cache_dtype: one of `CACHE_DTYPES`.

    Raises:
      ValueError: the cache's dtype is unknown.
    """

    def __init__(
        self, model: Qwen3VL, *, adapters: bool = True, merge: bool = True, cache_dtype: str = "model"
    ):
        if cache_dtype not in CACHE_DTYPES:
            raise ValueError(f"the cache's dtype is {cache_dtype!r}, not one of {CACHE_DTYPES}")
        self.config = model.config
        self.mesh = model.attention.mesh
        self._attention = model.attention
        self._dtype = model.dtype
        self._graphdef, self._state = nnx.split(_unstacked(model))
        self._adapters, self._cache_dtype = adapters, cache_dtype
        self._weights = prepare_weights(
            self._graphdef, self._state, adapters=adapters, merge=merge, mesh=self.mesh
        )

    def prefill(
        self,
        prompts: ModelInputs,
        *,
        seeds: UInt32[Array, " groups"],
        prompt_ids: UInt32[Array, " groups"],
        temperature: Float32[Array, " groups"],
    ) -> PromptState:
        """Runs prompts, one a row, padded on either side; every batch shape compiles a program.

        Args:
          seeds, prompt_ids, temperature: see `PromptState`.
        """
        last_hidden, prefix = prefill_prompts(
            self._graphdef,
            self._state,
            prompts,
            adapters=self._adapters,
            cache_dtype=self._cache_dtype,
            mesh=self.mesh,
        )
        return PromptState(prefix, last_hidden, seeds, prompt_ids, temperature)

    def empty_pool(
        self, like: PromptState, *, slots: int, width: int, num_samples: int, max_new_tokens: int
    ) -> DecodePool:
        """Allocates a pool of free slots for prompts with the dtypes of `like`.

        Args:
          slots: over all devices.
          width: tokens that a prompt may have.
          max_new_tokens: tokens that a response may have.
        """
        prompts = empty_prompts(like, slots=slots, width=width, attention=self._attention)
        return DecodePool(prompts, self._empty_state(slots, num_samples, max_new_tokens, fresh=False))

    def _empty_state(self, groups: int, num_samples: int, max_new_tokens: int, *, fresh: bool) -> DecodeState:
        return empty_decode_state(
            config=self.config.text,
            groups=groups,
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
            dtype=self._dtype,
            cache_dtype=self._cache_dtype,
            fresh=fresh,
            attention=self._attention,
        )

    def insert(self, pool: DecodePool, prompts: PromptState, slots: Int32[Array, " shards"]) -> DecodePool:
        """Puts prompts into slots, see `insert_prompts`; the pool is donated."""
        return insert_prompts(pool, prompts, slots, mesh=self.mesh)

    def enlarge(self, pool: DecodePool, *, slots: int, width: int) -> DecodePool:
        """Copies a pool to a larger one, see `enlarge_pool`."""
        return enlarge_pool(pool, slots=slots, width=width, attention=self._attention)

    def end(self, pool: DecodePool, ended: Bool[Array, "groups samples"]) -> DecodePool:
        """Ends samples that are no longer needed; the pool is donated."""
        return DecodePool(pool.prompts, end_samples(pool.state, ended))

    def decode(
        self,
        pool: DecodePool,
        *,
        max_new_tokens: int,
        eos: int,
        banned: Sequence[int] = (),
        free_slots: int | None = None,
        steps: int | None = None,
        allowed: Int32[Array, "groups samples words"] | None = None,
    ) -> DecodePool:
        """Decodes the pool's responses, see `decode_responses`; the pool is donated.

        Args:
          banned: token ids that are never drawn.
          free_slots, steps: see `Pause`; None disables the condition.
        """
        # An array argument, as is `eos`: other banned tokens compile nothing.
        mask = np.zeros(self.config.text.vocab_size, bool)
        mask[list(banned)] = True
        never = np.iinfo(np.int32).max
        state = decode_responses(
            self._weights,
            pool.prompts,
            pool.state,
            mask,
            np.int32(eos),
            Pause(
                free_slots=np.asarray(never if free_slots is None else free_slots, np.int32),
                # Halved, because the program adds it to the number of the current step.
                steps=np.asarray(never // 2 if steps is None else steps, np.int32),
            ),
            allowed,
            config=self.config.text,
            max_new_tokens=max_new_tokens,
            cache_dtype=self._cache_dtype,
            attention=self._attention,
        )
        return DecodePool(pool.prompts, state)

    def __call__(
        self,
        prompts: ModelInputs,
        *,
        num_samples: int,
        max_new_tokens: int,
        eos: int,
        seed: int | Integer[Array, " groups"] = 0,
        prompt_ids: Integer[Array, " groups"] | None = None,
        temperature: float | Num[Array, " groups"] = 1.0,
        banned: Sequence[int] = (),
    ) -> Generated:
        """Samples `num_samples` responses to each prompt, all of them at once.

        A response depends only on its prompt and (seed, prompt id, sample index): neither the other prompts
        of the batch nor the padding changes it, up to rounding.

        Args:
          prompts: one prompt a row, padded on either side.
          max_new_tokens: a response is cut there; each value compiles a program.
          eos: the token that ends a response, usually `<|im_end|>`.
          seed: one for all prompts, or one each.
          prompt_ids: the row numbers by default.
          temperature: one for all prompts, or one each; 0 selects greedy decoding.
          banned: token ids that are never drawn, such as the vision tokens.
        """
        groups = prompts.tokens.shape[0]
        ids = np.arange(groups) if prompt_ids is None else np.asarray(prompt_ids)
        state = self.prefill(
            prompts,
            seeds=np.broadcast_to(np.asarray(seed, np.uint32), groups),
            prompt_ids=ids.astype(np.uint32),
            temperature=np.broadcast_to(np.asarray(temperature, np.float32), groups),
        )
        pool = DecodePool(state, self._empty_state(groups, num_samples, max_new_tokens, fresh=True))
        done = self.decode(pool, max_new_tokens=max_new_tokens, eos=eos, banned=banned).state
        # All responses began in step 0, so that their tokens begin at position 0 of the ring buffer.
        tokens, log_probs = (part[..., :max_new_tokens] for part in (done.tokens, done.log_probs))
        return Generated(tokens, log_probs, done.lengths)
