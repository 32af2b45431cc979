"""Slots in which prompts are decoded, and how prompts enter and leave them (continuous batching).

A slot holds the cache of one prompt and the caches of its K samples. Compiled programs have static shapes, so
the slots of a pool stay while prompts come and go.
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
from jaxtyping import Bool, Float, Float32, Int32, UInt32

from rmsweb_jax.decoding.attention import keys_by_position
from rmsweb_jax.decoding.cache import (
    PREFIX_SPECS,
    SUFFIX_SPECS,
    PrefixCache,
    SuffixCache,
    empty_suffix,
    ring_size,
)
from rmsweb_jax.decoding.quantized import CacheArray
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.training.mesh import BATCH, constrain_tree


class PromptState(NamedTuple):
    """Prefilled prompts and their sampling parameters; decoding reads them and does not change them.

    Attributes:
      prefix: KV cache of the prompts.
      last_hidden: hidden state of each prompt's last token.
      seeds, prompt_ids: with the index of a sample they determine its random numbers.
      temperature: 0 selects greedy decoding.
    """

    prefix: PrefixCache
    last_hidden: Float[jax.Array, "groups hidden"]
    seeds: UInt32[Array, " groups"]
    prompt_ids: UInt32[Array, " groups"]
    temperature: Float32[Array, " groups"]


class DecodeState(NamedTuple):
    """The responses of a pool, as far as they are decoded; all samples share one ring buffer position.

    Attributes:
      step: decoding steps that the pool has made.
      first_step: the step in which a slot's first token counts as drawn; its token i is at position
        `(first_step + i) % ring`.
      fresh: True for slots that are prefilled and have no token yet.
      lengths: tokens so far.
      done: True for samples that ended, were cut, or have not begun.
      last: the newest token, which the next step feeds.
      tokens: with the end token.
      log_probs: of the tokens under the model at the sampling temperature (at 1 for greedy decoding), before
        tokens are banned, as the training forward computes them.
      suffix: KV cache of the tokens that are fed.
    """

    step: Int32[jax.Array, ""]
    first_step: Int32[jax.Array, " groups"]
    fresh: Bool[jax.Array, " groups"]
    lengths: Int32[jax.Array, "groups samples"]
    done: Bool[jax.Array, "groups samples"]
    last: Int32[jax.Array, "groups samples"]
    tokens: Int32[jax.Array, "groups samples ring"]
    log_probs: Float32[jax.Array, "groups samples ring"]
    suffix: SuffixCache


class HostResponses(NamedTuple):
    """The fields of `DecodeState` that the host reads, as numpy arrays with the rows of all processes."""

    first_step: Int32[np.ndarray, " groups"]
    lengths: Int32[np.ndarray, "groups samples"]
    done: Bool[np.ndarray, "groups samples"]
    tokens: Int32[np.ndarray, "groups samples ring"]
    log_probs: Float32[np.ndarray, "groups samples ring"]

    def response(
        self, slot: int, sample: int
    ) -> tuple[Int32[np.ndarray, " tokens"], Float32[np.ndarray, " tokens"]]:
        """Tokens and log-probabilities of one sample so far, in order."""
        positions = (self.first_step[slot] + np.arange(self.lengths[slot, sample])) % self.tokens.shape[2]
        return self.tokens[slot, sample, positions], self.log_probs[slot, sample, positions]


def to_host(state: DecodeState) -> HostResponses:
    """Waits for the responses and copies them; with several processes all of them must call this."""
    arrays = HostResponses(*(getattr(state, name) for name in HostResponses._fields))
    if jax.process_count() > 1:
        # Every process needs all rows: all of them decide alike which slots are free.
        return jax.tree.map(lambda x: np.asarray(multihost_utils.process_allgather(x, tiled=True)), arrays)
    return jax.device_get(arrays)


class DecodePool(NamedTuple):
    """Slots of one width: their prompts, and the responses to these."""

    prompts: PromptState
    state: DecodeState


# Everything of a slot is on the devices of its shard; only the step is the same everywhere.
_ROW = cast(Any, BATCH)
PROMPT_SPECS = PromptState(PREFIX_SPECS, _ROW, _ROW, _ROW, _ROW)
DECODE_SPECS = DecodeState(cast(Any, P()), *[_ROW] * 7, suffix=SUFFIX_SPECS)
POOL_SPECS = DecodePool(PROMPT_SPECS, DECODE_SPECS)


@functools.partial(jax.jit, donate_argnums=0, static_argnames="mesh")
def insert_prompts(
    pool: DecodePool, prompts: PromptState, slots: Int32[Array, " shards"], *, mesh: Mesh | None
) -> DecodePool:
    """Puts one prompt into one slot of each shard of the mesh's rows.

    Args:
      pool: donated.
      prompts: one for each shard, no wider than the pool.
      slots: the slot among the shard's own, or -1 to leave the shard as it is.
    """

    # A shard owns its slots, so that the write needs no communication.
    def local(pool: DecodePool, prompts: PromptState, slots: Array) -> DecodePool:
        # All shards run one program: a shard without a prompt writes its slot 0 back unchanged.
        slot, taken = jnp.maximum(slots[0], 0), slots[0] >= 0

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            # Positions beyond the new prompt keep what was there; the mask hides them.
            start = (slot, *[0] * (new.ndim - 1))
            current = jax.lax.dynamic_slice(old, start, new.shape)
            return jax.lax.dynamic_update_slice(old, jnp.where(taken, new, current), start)

        prefix, state = prompts.prefix, pool.state
        beyond = pool.prompts.prefix.mask.shape[1] - prefix.mask.shape[1]
        mask = jnp.pad(prefix.mask, ((0, 0), (0, beyond)))
        prompts = prompts._replace(prefix=prefix._replace(mask=mask))
        # The other fields are overwritten before they are read, so the old responses need not be cleared.
        begun = {"fresh": True, "lengths": 0, "done": False}
        reset = {
            name: put(getattr(state, name), jnp.full_like(getattr(state, name)[:1], value))
            for name, value in begun.items()
        }
        return DecodePool(jax.tree.map(put, pool.prompts, prompts), state._replace(**reset))

    if mesh is None or mesh.size == 1:
        return local(pool, prompts, slots)
    # By shard_map: the partitioner does not know that a slot's number is local to its shard.
    specs = (POOL_SPECS, PROMPT_SPECS, BATCH)
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=POOL_SPECS)(pool, prompts, slots)


@functools.partial(jax.jit, donate_argnums=0)
def end_samples(state: DecodeState, ended: Bool[Array, "groups samples"]) -> DecodeState:
    """Ends the given samples, which are no longer needed; `state` is donated."""
    return state._replace(done=state.done | ended)


@functools.partial(
    jax.jit,
    static_argnames=(
        "config",
        "groups",
        "num_samples",
        "max_new_tokens",
        "dtype",
        "cache_dtype",
        "fresh",
        "attention",
    ),
)
def empty_decode_state(
    *,
    config: TextConfig,
    groups: int,
    num_samples: int,
    max_new_tokens: int,
    dtype: Any,
    cache_dtype: str,
    fresh: bool,
    attention: AttentionConfig,
) -> DecodeState:
    """Allocates the responses of a pool.

    Args:
      max_new_tokens: tokens that a response may have; the ring buffer holds at least as many.
      fresh: True if all slots hold prefilled prompts, False if all of them are free.
      attention: that of the model.
    """
    shape = (groups, num_samples)
    suffix = empty_suffix(config, groups, num_samples, max_new_tokens, dtype, cache_dtype, attention)
    ring = ring_size(suffix)
    state = DecodeState(
        # A new prompt's first token counts as drawn in the step before the current one.
        step=jnp.ones((), jnp.int32),
        first_step=jnp.zeros(groups, jnp.int32),
        fresh=jnp.full(groups, fresh),
        lengths=jnp.zeros(shape, jnp.int32),
        done=jnp.full(shape, not fresh),
        last=jnp.zeros(shape, jnp.int32),
        tokens=jnp.zeros((*shape, ring), jnp.int32),
        log_probs=jnp.zeros((*shape, ring), jnp.float32),
        suffix=suffix,
    )
    return constrain_tree(state, DECODE_SPECS, attention.mesh)


@functools.partial(jax.jit, static_argnames=("slots", "width", "attention"))
def empty_prompts(like: PromptState, *, slots: int, width: int, attention: AttentionConfig) -> PromptState:
    """Allocates free slots for prompts of up to `width` tokens, with the dtypes of `like`.

    Args:
      attention: that of the model.
    """
    prompts = jax.tree.map(lambda x: jnp.zeros((slots, *x.shape[1:]), x.dtype), like)
    return constrain_tree(_resized(prompts, width, attention), PROMPT_SPECS, attention.mesh)


@functools.partial(jax.jit, static_argnames=("slots", "width", "attention"))
def enlarge_pool(pool: DecodePool, *, slots: int, width: int, attention: AttentionConfig) -> DecodePool:
    """Copies a pool to a larger one, with free slots after its own and width for longer prompts.

    Args:
      slots, width: at least those of the pool.
      attention: that of the model; its mesh must not split rows, since each shard has its own slots.
    """
    # Running requests keep their slots and positions; the caches are copied once.
    extra = slots - pool.state.done.shape[0]

    def more(x: jax.Array, filling: Any = 0) -> jax.Array:
        padding = [(0, extra, 0), *[(0, 0, 0)] * (x.ndim - 1)]
        return jax.lax.pad(x, jnp.asarray(filling, x.dtype), padding)

    step, done = pool.state.step, pool.state.done
    # `step` is a scalar and cannot be padded: any array takes its place meanwhile.
    state = jax.tree.map(more, pool.state._replace(step=done))
    # New slots are free, that is all of their samples are done.
    state = state._replace(step=step, done=more(done, True))
    prompts = _resized(jax.tree.map(more, pool.prompts), width, attention)
    return constrain_tree(DecodePool(prompts, state), POOL_SPECS, attention.mesh)


def _resized(prompts: PromptState, width: int, attention: AttentionConfig) -> PromptState:
    """Cuts or pads the position axis of the prompts' caches to `width`."""
    prefix = prompts.prefix
    extra = width - prefix.mask.shape[1]

    def resized(x: jax.Array, axis: int) -> jax.Array:
        return jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, extra * (axis == at), 0) for at in range(x.ndim)])

    def cached(part: CacheArray, axis: int) -> CacheArray:
        return CacheArray(resized(part.data, axis), None if part.scale is None else resized(part.scale, 2))

    keys_axis = 2 if keys_by_position(attention) else 3
    prefix = prefix._replace(
        keys=tuple(cached(part, keys_axis) for part in prefix.keys),
        values=tuple(cached(part, 2) for part in prefix.values),
        mask=resized(jnp.asarray(prefix.mask), 1),
    )
    return prompts._replace(prefix=prefix)
