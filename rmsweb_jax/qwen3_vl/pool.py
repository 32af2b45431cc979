"""The slots in which prompts are decoded, and how prompts get into them.

A slot is one prompt's cache with the caches of its K samples. Programs have static shapes: prompts come and
go, the slots stay.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import BATCH, constrain_tree
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.cache import (
    PREFIX_SPECS,
    SUFFIX_SPECS,
    PrefixCache,
    SuffixCache,
    empty_suffix,
    ring_size,
)
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.decode_attention import keys_by_place
from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.qwen3_vl.stored import Stored


class Asked(NamedTuple):
    """Prompts that have been prefilled, and what is asked of them.

    Attributes:
      prefix: caches of G prompts.
      last_hidden: [G, hidden], of their last tokens.
      seeds, prompt_ids: [G] uint32; with a sample's number they decide its random numbers.
      temperature: [G] float32; 0 takes the most probable token.
    """

    prefix: PrefixCache
    last_hidden: jax.Array
    seeds: Array
    prompt_ids: Array
    temperature: Array


class Answers(NamedTuple):
    """The responses of a pool, K a slot; places of a response are a ring of R.

    Attributes:
      clock: [] int32, decoding steps that the pool has made.
      began: [G] int32, the clock before a slot's responses were fed: token i is at place (began + i) % R.
      fresh: [G] bool, prefilled and not yet sampled from.
      lengths: [G, K] int32, tokens so far.
      done: [G, K] bool, ended, cut, or never begun.
      last: [G, K] int32, the newest token, which the next step feeds.
      tokens: [G, K, R] int32, the end token included.
      log_probs: [G, K, R] float32, under the model at the sampling temperature (at 1 when greedy) and
        before banning, as the training forward computes them.
      suffix: keys and values of what has been fed.
    """

    clock: jax.Array
    began: jax.Array
    fresh: jax.Array
    lengths: jax.Array
    done: jax.Array
    last: jax.Array
    tokens: jax.Array
    log_probs: jax.Array
    suffix: SuffixCache


class HostAnswers(NamedTuple):
    """What of `Answers` is read by the host, as numpy and of all processes; see there."""

    began: np.ndarray
    lengths: np.ndarray
    done: np.ndarray
    tokens: np.ndarray
    log_probs: np.ndarray

    def response(self, slot: int, sample: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [R] int32 and log-probabilities [R] float32 so far."""
        places = (self.began[slot] + np.arange(self.lengths[slot, sample])) % self.tokens.shape[2]
        return self.tokens[slot, sample, places], self.log_probs[slot, sample, places]


def to_host(answers: Answers) -> HostAnswers:
    """Waits for them; with several processes all of them must call it."""
    arrays = HostAnswers(*(getattr(answers, name) for name in HostAnswers._fields))
    if jax.process_count() > 1:
        return jax.tree.map(lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True)), arrays)
    return jax.device_get(arrays)


class Pool(NamedTuple):
    """G slots of one width."""

    asked: Asked
    answers: Answers


_ROW = cast(Any, BATCH)
ASKED_SPECS = Asked(PREFIX_SPECS, _ROW, _ROW, _ROW, _ROW)
ANSWERS_SPECS = Answers(cast(Any, P()), *[_ROW] * 7, suffix=SUFFIX_SPECS)
POOL_SPECS = Pool(ASKED_SPECS, ANSWERS_SPECS)


@functools.partial(jax.jit, donate_argnums=0, static_argnames="mesh")
def insert_prompts(pool: Pool, asked: Asked, slots: Array, *, mesh: Mesh | None) -> Pool:
    """Each shard of the mesh's rows takes one prompt into one of its slots.

    Args:
      asked: one prompt a shard, [S, ...], in as many places as the pool's or fewer.
      slots: [S] int32, the slot among the shard's own; -1 leaves them as they are.
    """

    def local(pool: Pool, asked: Asked, slots: Array) -> Pool:
        slot, taken = jnp.maximum(slots[0], 0), slots[0] >= 0

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            # Places beyond the new prompt's keep what was there, and the mask hides them.
            start = (slot, *[0] * (new.ndim - 1))
            held = jax.lax.dynamic_slice(old, start, new.shape)
            return jax.lax.dynamic_update_slice(old, jnp.where(taken, new, held), start)

        prefix, answers = asked.prefix, pool.answers
        beyond = pool.asked.prefix.mask.shape[1] - prefix.mask.shape[1]
        mask = jnp.pad(prefix.mask, ((0, 0), (0, beyond)))
        asked = asked._replace(prefix=prefix._replace(mask=mask))
        begun = {"fresh": True, "lengths": 0, "done": False}
        reset = {
            name: put(getattr(answers, name), jnp.full_like(getattr(answers, name)[:1], value))
            for name, value in begun.items()
        }
        return Pool(jax.tree.map(put, pool.asked, asked), answers._replace(**reset))

    if mesh is None or mesh.size == 1:
        return local(pool, asked, slots)
    specs = (POOL_SPECS, ASKED_SPECS, BATCH)
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=POOL_SPECS)(pool, asked, slots)


@functools.partial(jax.jit, donate_argnums=0)
def end_samples(answers: Answers, ended: Array) -> Answers:
    """Lets go of samples that nobody waits for any longer, bool [G, K]."""
    return answers._replace(done=answers.done | ended)


@functools.partial(
    jax.jit,
    static_argnames=("config", "groups", "num_samples", "room", "dtype", "cache_dtype", "fresh", "attention"),
)
def empty_answers(
    *,
    config: TextConfig,
    groups: int,
    num_samples: int,
    room: int,
    dtype: Any,
    cache_dtype: str,
    fresh: bool,
    attention: AttentionConfig,
) -> Answers:
    """A pool's answers at the start: of prompts that all wait to be sampled from (`fresh`), or of none.

    Args:
      attention: the model's.
    """
    lanes = (groups, num_samples)
    suffix = empty_suffix(config, groups, num_samples, room, dtype, cache_dtype, attention)
    ring = ring_size(suffix)
    answers = Answers(
        # Token 0 is drawn in the step before the first.
        clock=jnp.ones((), jnp.int32),
        began=jnp.zeros(groups, jnp.int32),
        fresh=jnp.full(groups, fresh),
        lengths=jnp.zeros(lanes, jnp.int32),
        done=jnp.full(lanes, not fresh),
        last=jnp.zeros(lanes, jnp.int32),
        tokens=jnp.zeros((*lanes, ring), jnp.int32),
        log_probs=jnp.zeros((*lanes, ring), jnp.float32),
        suffix=suffix,
    )
    return constrain_tree(answers, ANSWERS_SPECS, attention.mesh)


@functools.partial(jax.jit, static_argnames=("slots", "width", "attention"))
def empty_asked(like: Asked, *, slots: int, width: int, attention: AttentionConfig) -> Asked:
    """Slots without a prompt, of `width` places, for prompts like those given.

    Args:
      attention: the model's.
    """
    asked = jax.tree.map(lambda x: jnp.zeros((slots, *x.shape[1:]), x.dtype), like)
    return constrain_tree(_resized(asked, width, attention), ASKED_SPECS, attention.mesh)


@functools.partial(jax.jit, static_argnames=("slots", "width", "attention"))
def enlarge_pool(pool: Pool, *, slots: int, width: int, attention: AttentionConfig) -> Pool:
    """The pool with free slots after its own, and places for prompts of `width` tokens.

    Args:
      slots, width: as many as it has or more.
      attention: the model's; the mesh must not split rows, as each shard has its own slots.
    """
    extra = slots - pool.answers.done.shape[0]

    def more(x: jax.Array, filling: Any = 0) -> jax.Array:
        padding = [(0, extra, 0), *[(0, 0, 0)] * (x.ndim - 1)]
        return jax.lax.pad(x, jnp.asarray(filling, x.dtype), padding)

    clock, done = pool.answers.clock, pool.answers.done
    answers = jax.tree.map(more, pool.answers._replace(clock=done))
    answers = answers._replace(clock=clock, done=more(done, True))
    asked = _resized(jax.tree.map(more, pool.asked), width, attention)
    return constrain_tree(Pool(asked, answers), POOL_SPECS, attention.mesh)


def _resized(asked: Asked, width: int, attention: AttentionConfig) -> Asked:
    """With `width` places for each prompt: the last ones fall away, or empty ones come after them."""
    prefix = asked.prefix
    extra = width - prefix.mask.shape[1]

    def places(x: jax.Array, axis: int) -> jax.Array:
        return jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, extra * (axis == at), 0) for at in range(x.ndim)])

    def stored(part: Stored, axis: int) -> Stored:
        return Stored(places(part.data, axis), None if part.scale is None else places(part.scale, 2))

    keys_axis = 2 if keys_by_place(attention) else 3
    prefix = prefix._replace(
        keys=tuple(stored(part, keys_axis) for part in prefix.keys),
        values=tuple(stored(part, 2) for part in prefix.values),
        mask=places(jnp.asarray(prefix.mask), 1),
    )
    return asked._replace(prefix=prefix)
