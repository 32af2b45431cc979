"""Sampling by continuous batching: prompts wait for a slot of a pool, where K samples of each are decoded.

Four programs of static shapes: weights prepared once a policy, prefill, insertion of prompts into slots (see
`pool`), and decoding until slots fall free.
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

from rmsweb_jax.mesh import AXES, constrain, constrain_tree
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.cache import (
    BLOCK,
    PrefixCache,
    Settled,
    SuffixCache,
    decode_step,
    prefill,
    settle,
)
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.fused import DecodeWeights, decode_weights, output_axes
from rmsweb_jax.qwen3_vl.inputs import Array, ModelInputs
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.pool import (
    ANSWERS_SPECS,
    Answers,
    Asked,
    Pool,
    empty_answers,
    empty_asked,
    end_samples,
    enlarge_pool,
    insert_prompts,
)
from rmsweb_jax.qwen3_vl.stored import CACHE_DTYPES
from rmsweb_jax.qwen3_vl.text import MAX_UNROLL

_BANNED = -1e30
_SAMPLE_BLOCK = 128


class Pause(NamedTuple):
    """When decoding returns although responses have not ended.

    Attributes:
      free_slots: [] int32, as soon as so many slots are free; more than there are: never.
      steps: [] int32, after so many steps; with 0 new prompts get their first token and that is all.
    """

    free_slots: Array
    steps: Array


class Generated(NamedTuple):
    """Responses of K samples to each of G prompts.

    Attributes:
      tokens: [G, K, R] int32, the end token included; 0 after it.
      log_probs: [G, K, R] float32, see `Answers`; 0 after the end.
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


@functools.partial(jax.jit, static_argnames=("graphdef", "adapters", "merge", "mesh"))
def prepare_weights(
    graphdef: Any, state: Any, *, adapters: bool, merge: bool, mesh: Mesh | None
) -> DecodeWeights:
    """`decode_weights` of a split model."""
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
    """`prefill` of a split model."""
    model = nnx.merge(graphdef, state)
    return prefill(model, prompts, adapters=adapters, cache_dtype=cache_dtype, mesh=mesh)


@functools.partial(jax.jit, donate_argnums=2, static_argnames=("config", "room", "cache_dtype", "attention"))
def decode_responses(
    weights: DecodeWeights,
    asked: Asked,
    answers: Answers,
    banned: Array,
    eos: Array,
    pause: Pause,
    allowed: Array | None = None,
    *,
    config: TextConfig,
    room: int,
    cache_dtype: str,
    attention: AttentionConfig,
) -> Answers:
    """Steps until all responses have ended, or it is to pause.

    Args:
      banned: [V] bool.
      eos: [] int32.
      allowed: [G, K, W] int32, a bit for each of at least V tokens: what may be drawn next, until it pauses.
      room: tokens a response may have.
      attention: the model's.
    """
    mesh = attention.mesh
    groups, samples, ring = answers.tokens.shape
    block = min(ring, BLOCK)
    rows = groups * samples
    keys = _row_keys(asked.seeds, asked.prompt_ids, samples)
    temperature = jnp.repeat(asked.temperature, samples)[:, None]
    limit = answers.clock + pause.steps
    if allowed is not None:
        banned = banned | ~_bits(jnp.asarray(allowed).reshape(rows, -1), banned.shape[0])

    def draw(hidden: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Token `number` [G] of every sample and its log-probability, by the states [G, K, hidden]."""
        # Whole states meet a part of the words each: sums over parts of the states would be rows of words.
        hidden = constrain(hidden.reshape(rows, -1), mesh, "data", None)
        logits = jnp.matmul(hidden, weights.head, preferred_element_type=jnp.float32)
        logits = constrain(logits, mesh, "data", output_axes(weights.head.shape[1], mesh))
        # Every device draws for some of the rows, from whole distributions.
        logits = constrain(logits, mesh, AXES, None)
        logits = logits / jnp.where(temperature > 0, temperature, 1.0)
        open_logits = jnp.where(banned, _BANNED, logits)
        step_keys = jax.vmap(jax.random.fold_in)(keys, jnp.repeat(number, samples))
        sampled = sample_tokens(open_logits, step_keys)
        token = jnp.where(temperature[:, 0] > 0, sampled, jnp.argmax(open_logits, -1)).astype(jnp.int32)
        picked = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
        log_prob = picked - jax.nn.logsumexp(logits, axis=-1)
        return token.reshape(groups, samples), log_prob.reshape(groups, samples)

    def record(
        answers: Answers, drawn: tuple[jax.Array, jax.Array], who: jax.Array, at: jax.Array
    ) -> Answers:
        """Notes what was drawn for the samples `who` [G, K] at place `at` of the ring."""
        lengths = answers.lengths + who
        kept = [
            jax.lax.dynamic_update_index_in_dim(
                old, jnp.where(who, new, jax.lax.dynamic_index_in_dim(old, at, 2, keepdims=False)), at, 2
            )
            for old, new in zip((answers.tokens, answers.log_probs), drawn, strict=True)
        ]
        ended = (drawn[0] == eos) | (lengths >= room)
        return answers._replace(
            lengths=lengths,
            last=jnp.where(who, drawn[0], answers.last),
            done=answers.done | (who & ended),
            tokens=kept[0],
            log_probs=kept[1],
        )

    def going_on(answers: Answers) -> jax.Array:
        free = answers.done.all(1).sum() >= pause.free_slots
        return ~answers.done.all() & ~free & (answers.clock < limit)

    def until_settled(answers: Answers) -> Answers:
        """Steps to the end of a block of the ring; what is settled is not in the loop's state."""
        suffix = answers.suffix
        end = (answers.clock // block + 1) * block

        def step(answers: Answers) -> Answers:
            fed = answers.clock - answers.began
            hidden, recent = decode_step(
                weights,
                config,
                answers.last,
                fed,
                answers.clock,
                asked.prefix,
                SuffixCache(answers.suffix.recent, suffix.settled),
                cache_dtype=cache_dtype,
                attention=attention,
            )
            answers = answers._replace(suffix=SuffixCache(recent, Settled((), ())))
            answers = record(answers, draw(hidden, fed), ~answers.done, answers.clock % ring)
            return answers._replace(clock=answers.clock + 1)

        state = answers._replace(suffix=SuffixCache(suffix.recent, Settled((), ())))
        state = jax.lax.while_loop(lambda state: going_on(state) & (state.clock < end), step, state)
        suffix = settle(SuffixCache(state.suffix.recent, suffix.settled), state.clock, attention)
        return state._replace(suffix=suffix)

    # The first token of a new prompt is drawn from its last hidden state, as if in the step before.
    first = jnp.broadcast_to(asked.last_hidden[:, None], (groups, samples, asked.last_hidden.shape[-1]))
    who = jnp.broadcast_to(answers.fresh[:, None], answers.done.shape)
    before = answers.clock - 1
    answers = record(answers, draw(first, jnp.zeros(groups, jnp.int32)), who, before % ring)
    answers = answers._replace(
        began=jnp.where(answers.fresh, before, answers.began), fresh=jnp.zeros_like(answers.fresh)
    )
    return constrain_tree(jax.lax.while_loop(going_on, until_settled, answers), ANSWERS_SPECS, mesh)


def _bits(words: jax.Array, count: int) -> jax.Array:
    """The first `count` bits of each row, lowest first: [M, W] int32 -> [M, count] bool."""
    bits = (words[:, :, None] >> jnp.arange(32, dtype=words.dtype)) & 1
    return bits.reshape(len(words), -1)[:, :count].astype(bool)


@functools.partial(jax.jit, static_argnames="num_samples")
def _row_keys(seeds: jax.Array, prompt_ids: jax.Array, num_samples: int) -> jax.Array:
    """[G] seeds and ids -> [G * K] keys."""

    def group(seed: jax.Array, prompt_id: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), prompt_id)
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num_samples))

    return jax.vmap(group)(seeds, prompt_ids).reshape(-1)


def _unstacked(model: Qwen3VL) -> Qwen3VL:
    """The model as its prefill is fastest: on CPUs a copy whose few layers are not stacked.

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
      model: on the mesh of its `attention`, when that has one; then the prompts of a call must divide over
        `data` and `fsdp`.
      adapters: False samples from the reference policy.
      merge: whether adapters are merged into the weights or applied beside them, see `decode_weights`.
      cache_dtype: one of `CACHE_DTYPES`.
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

    def prefill(self, prompts: ModelInputs, *, seeds: Array, prompt_ids: Array, temperature: Array) -> Asked:
        """Runs prompts [G, P], padded on either side; pad G and P to buckets: each compiles once.

        Args:
          seeds, prompt_ids: [G] uint32.
          temperature: [G] float32.
        """
        last_hidden, prefix = prefill_prompts(
            self._graphdef,
            self._state,
            prompts,
            adapters=self._adapters,
            cache_dtype=self._cache_dtype,
            mesh=self.mesh,
        )
        return Asked(prefix, last_hidden, seeds, prompt_ids, temperature)

    def empty_pool(self, like: Asked, *, slots: int, width: int, num_samples: int, room: int) -> Pool:
        """Free slots for prompts like those given.

        Args:
          slots: G, over all devices.
          width: P, tokens a prompt may have.
          room: R, tokens a response may have.
        """
        asked = empty_asked(like, slots=slots, width=width, attention=self._attention)
        return Pool(asked, self._answers(slots, num_samples, room, False))

    def _answers(self, groups: int, num_samples: int, room: int, fresh: bool) -> Answers:
        return empty_answers(
            config=self.config.text,
            groups=groups,
            num_samples=num_samples,
            room=room,
            dtype=self._dtype,
            cache_dtype=self._cache_dtype,
            fresh=fresh,
            attention=self._attention,
        )

    def insert(self, pool: Pool, asked: Asked, slots: Array) -> Pool:
        """See `insert_prompts`; the pool given is used up."""
        return insert_prompts(pool, asked, slots, mesh=self.mesh)

    def enlarge(self, pool: Pool, *, slots: int, width: int) -> Pool:
        """See `enlarge_pool`."""
        return enlarge_pool(pool, slots=slots, width=width, attention=self._attention)

    def end(self, pool: Pool, ended: Array) -> Pool:
        """See `end_samples`; the pool given is used up."""
        return Pool(pool.asked, end_samples(pool.answers, ended))

    def decode(
        self,
        pool: Pool,
        *,
        room: int,
        eos: int,
        banned: Sequence[int] = (),
        free_slots: int | None = None,
        steps: int | None = None,
        allowed: Array | None = None,
    ) -> Pool:
        """See `decode_responses`; the pool given is used up.

        Args:
          free_slots, steps: see `Pause`; None: it does not pause for that.
        """
        mask = np.zeros(self.config.text.vocab_size, bool)
        mask[list(banned)] = True
        never = np.iinfo(np.int32).max
        answers = decode_responses(
            self._weights,
            pool.asked,
            pool.answers,
            mask,
            np.int32(eos),
            Pause(
                free_slots=np.asarray(never if free_slots is None else free_slots, np.int32),
                # Halved, so that the clock can be added.
                steps=np.asarray(never // 2 if steps is None else steps, np.int32),
            ),
            allowed,
            config=self.config.text,
            room=room,
            cache_dtype=self._cache_dtype,
            attention=self._attention,
        )
        return Pool(pool.asked, answers)

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
        """Samples `num_samples` responses to each prompt, all of them at once.

        A response depends on its prompt and (seed, prompt id, sample index) alone: neither the other prompts
        of the batch nor the padding changes it, up to rounding.

        Args:
          prompts: [G, P], one prompt a row, padded on either side.
          max_new_tokens: R, also compiled in.
          eos: the token that ends a response, usually `<|im_end|>`.
          seed: one for all prompts, or [G].
          prompt_ids: [G]; the row numbers by default.
          temperature: one for all prompts, or [G]; 0 takes the most probable token.
          banned: token ids that are never drawn, as the vision tokens.
        """
        groups = prompts.tokens.shape[0]
        ids = np.arange(groups) if prompt_ids is None else np.asarray(prompt_ids)
        asked = self.prefill(
            prompts,
            seeds=np.broadcast_to(np.asarray(seed, np.uint32), groups),
            prompt_ids=ids.astype(np.uint32),
            temperature=np.broadcast_to(np.asarray(temperature, np.float32), groups),
        )
        pool = Pool(asked, self._answers(groups, num_samples, max_new_tokens, True))
        answers = self.decode(pool, room=max_new_tokens, eos=eos, banned=banned).answers
        # All began together, so that the ring begins at its place 0.
        tokens, log_probs = (part[..., :max_new_tokens] for part in (answers.tokens, answers.log_probs))
        return Generated(tokens, log_probs, answers.lengths)
