"""KV caches of the engine: prompts in slots, and the responses of lanes in ring buffers.

A prompt's keys and values are cached once for all lanes that decode it; a lane has a cache of its own tokens
only. Attention over the two is merged by log-sum-exp. Every cache may be stored in 8 bits. Caches are split
by prompt and by lane over `data` and `fsdp`, and by head over `tensor`; a lane and its prompt are in one
shard.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float, Float32, Int32

from rmsweb_jax.decoding.attention import keys_by_position
from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.config import TextConfig
from rmsweb_jax.training.mesh import BATCH, ROWS

# Steps between two writes to the ring buffer; 128 is also what the kernel tiles positions by.
BLOCK = 128


class DeltaState(NamedTuple):
    """What a recurrence knows of the tokens before, by head.

    Attributes:
      state: see `gated_delta`.
      tail: the latest inputs of the convolution, of each key head's channels.
    """

    state: Float32[jax.Array, "rows value_heads key_dim value_dim"]
    tail: Float[jax.Array, "rows key_heads taps channels"]


class PromptSlots(NamedTuple):
    """Prefilled prompts, from position 0 of their slots; decoding reads them and does not change them.

    Attributes:
      keys: for each layer with attention [prompts, kv_heads, head_dim, positions], or the last two swapped
        (see `keys_by_position`).
      values: for each such layer [prompts, kv_heads, positions, head_dim].
      deltas: for each layer with a recurrence what it knows at the prompt's end; a lane begins with a copy.
      lengths: tokens that are prefilled.
      next_position: rotary position of the first response token.
      last_hidden: hidden state of the last token.
    """

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]
    deltas: tuple[DeltaState, ...]
    lengths: Int32[jax.Array, " prompts"]
    next_position: Int32[jax.Array, " prompts"]
    last_hidden: Float[jax.Array, "prompts hidden"]


class RingCache(NamedTuple):
    """Keys and values of the latest tokens of each lane, for each layer."""

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]


class LaneCache(NamedTuple):
    """KV cache of the latest tokens of each lane: a ring buffer, to which all lanes write at one position.

    One position for all makes the write of a step one slice. Positions of their own would need a scatter,
    which accelerators do row by row. A lane's tokens lie from the position of the step that drew the first.

    Attributes:
      recent: the block that steps write to: keys [lanes, kv_heads, head_dim, block], values [lanes, kv_heads,
        block, head_dim]. Both end with the axis that elementwise products run over, as CPU vector units need.
      ring: the whole buffer, up to date to the last complete block; empty if it has one block only. Its keys
        are [lanes, kv_heads, head_dim, ring], or the last two swapped (see `keys_by_position`). Steps only
        read it: a step that wrote to it would make XLA transpose all of it, twice, on TPUs.
      deltas: for each layer with a recurrence.
    """

    recent: RingCache
    ring: RingCache
    deltas: tuple[DeltaState, ...] = ()


class LaneState(NamedTuple):
    """What decoding carries from step to step for each lane; requests are in `programs.LaneTable`.

    Attributes:
      step: decoding steps so far, over all calls.
      serial: number of the sequence that the lane holds, see `LaneTable`.
      lengths: tokens so far; 0 until the first is drawn.
      done: True for lanes that are free.
      last: the newest token, which the next step feeds.
      counts: times that each token was drawn, for penalties; no columns if the engine has none.
    """

    step: Int32[jax.Array, ""]
    serial: Int32[jax.Array, " lanes"]
    lengths: Int32[jax.Array, " lanes"]
    done: Bool[jax.Array, " lanes"]
    last: Int32[jax.Array, " lanes"]
    counts: Int32[jax.Array, "lanes counted"]
    cache: LaneCache


# Each spec holds for all arrays below it.
BY_ROW, BY_HEAD = cast(Any, BATCH), cast(Any, P(ROWS, "tensor"))
SLOT_SPECS = PromptSlots(BY_HEAD, BY_HEAD, BY_HEAD, BY_ROW, BY_ROW, BY_ROW)
LANE_SPECS = LaneState(cast(Any, P()), *[BY_ROW] * 5, cache=cast(Any, BY_HEAD))


def empty_slots(
    config: TextConfig, sizes: EngineSizes, dtype: Any, cache_dtype: str, attention: AttentionConfig
) -> PromptSlots:
    """Allocates free prompt slots."""
    count, heads, size = sizes.prompts, config.num_key_value_heads, config.head_dim
    width, layers = sizes.prompt_width, config.num_attention_layers
    keys = (width, size) if keys_by_position(attention) else (size, width)
    return PromptSlots(
        _empty(layers, (count, heads), width, keys, dtype, cache_dtype),
        _empty(layers, (count, heads), width, (width, size), dtype, cache_dtype),
        _empty_deltas(config, count, dtype),
        jnp.zeros(count, jnp.int32),
        jnp.zeros(count, jnp.int32),
        jnp.zeros((count, config.hidden_size), dtype),
    )


def empty_lanes(
    config: TextConfig,
    sizes: EngineSizes,
    dtype: Any,
    cache_dtype: str,
    attention: AttentionConfig,
    counted: bool,
) -> LaneState:
    """Allocates free lanes; their caches have whole blocks.

    Args:
      counted: keep the counts of drawn tokens, which penalties need.
    """
    count, lead = sizes.lanes, (sizes.lanes, config.num_key_value_heads)
    size, layers = config.head_dim, config.num_attention_layers

    def empty(positions: int, *shape: int) -> tuple[CacheArray, ...]:
        return _empty(layers, lead, positions, shape, dtype, cache_dtype)

    block = min(sizes.response_width, BLOCK)
    ring = -(-sizes.response_width // block) * block
    recent = RingCache(empty(block, size, block), empty(block, block, size))
    deltas = _empty_deltas(config, count, dtype)
    # Short responses never complete a block: the recent block is all there is.
    cache = LaneCache(recent, RingCache((), ()), deltas)
    if ring > block:
        keys = (ring, size) if keys_by_position(attention) else (size, ring)
        cache = LaneCache(recent, RingCache(empty(ring, *keys), empty(ring, ring, size)), deltas)
    # Each field its own array: they are donated one by one.
    return LaneState(
        step=jnp.zeros((), jnp.int32),
        serial=jnp.zeros(count, jnp.int32),
        lengths=jnp.zeros(count, jnp.int32),
        done=jnp.ones(count, bool),
        last=jnp.zeros(count, jnp.int32),
        counts=jnp.zeros((count, config.vocab_size if counted else 0), jnp.int32),
        cache=cache,
    )


def _empty(
    layers: int, lead: tuple[int, int], positions: int, shape: tuple[int, ...], dtype: Any, cache_dtype: str
) -> tuple[CacheArray, ...]:
    stored = dtype if cache_dtype == "model" else jnp.dtype(cache_dtype)

    def one() -> CacheArray:
        scale = None if cache_dtype == "model" else jnp.zeros((*lead, positions), jnp.float32)
        return CacheArray(jnp.zeros((*lead, *shape), stored), scale)

    return tuple(one() for _ in range(layers))


def _empty_deltas(config: TextConfig, count: int, dtype: Any) -> tuple[DeltaState, ...]:
    if (delta := config.delta) is None:
        return ()
    keys, values = delta.linear_num_key_heads, delta.linear_num_value_heads
    states = (count, values, delta.linear_key_head_dim, delta.linear_value_head_dim)
    tails = (count, keys, delta.linear_conv_kernel_dim - 1, delta.channels // keys)
    return tuple(
        DeltaState(jnp.zeros(states, jnp.float32), jnp.zeros(tails, dtype))
        for _ in range(config.num_hidden_layers - config.num_attention_layers)
    )


def ring_size(cache: LaneCache) -> int:
    """Number of positions in the ring buffer."""
    values = cache.ring.values or cache.recent.values
    return values[0].data.shape[2]


def flush_block(cache: LaneCache, step: Int32[jax.Array, ""], attention: AttentionConfig) -> LaneCache:
    """Copies the recent block to the ring buffer if the step before `step` completed it."""
    if not cache.ring.values:
        return cache
    block = cache.recent.values[0].data.shape[2]
    # First position of the block that step - 1 wrote to.
    start = (step - 1) % ring_size(cache) // block * block
    complete = step % block == 0

    # An incomplete block is written back unchanged: one program for all steps, and no branch around the
    # buffer.
    def put(axis: int, ring: jax.Array, new: jax.Array) -> jax.Array:
        old = jax.lax.dynamic_slice_in_dim(ring, start, block, axis=axis)
        return jax.lax.dynamic_update_slice_in_dim(ring, jnp.where(complete, new, old), start, axis=axis)

    def take(ring: CacheArray, new: CacheArray, axis: int = 2) -> CacheArray:
        scale = None if ring.scale is None else put(2, ring.scale, cast(jax.Array, new.scale))
        return CacheArray(put(axis, ring.data, new.data), scale)

    keys, keys_axis = cache.recent.keys, 3
    if keys_by_position(attention):
        keys, keys_axis = tuple(map(swap_last_axes, keys)), 2
    ring = RingCache(
        tuple(take(*pair, axis=keys_axis) for pair in zip(cache.ring.keys, keys, strict=True)),
        tuple(map(take, cache.ring.values, cache.recent.values)),
    )
    return cache._replace(ring=ring)


def write_token(cache: CacheArray, new: CacheArray, position: jax.Array, axis: int) -> CacheArray:
    """Writes a token's keys or values, whose `axis` has size 1, to a position of the recent block."""
    write = jax.lax.dynamic_update_slice_in_dim
    data = write(cache.data, new.data, position, axis=axis)
    if cache.scale is None or new.scale is None:
        return CacheArray(data)
    return CacheArray(data, write(cache.scale, new.scale[..., None], position, axis=2))


def write_chunk(
    cache: CacheArray, new: CacheArray, slot: jax.Array, start: jax.Array, axis: int
) -> CacheArray:
    """Writes a chunk of a prompt's keys or values to a slot; a slot of -1 leaves the cache as it is.

    Args:
      cache: [prompts, kv_heads, ...] of this shard.
      new: [1, kv_heads, ...].
      axis: of the positions.
    """
    at, taken = jnp.maximum(slot, 0), slot >= 0

    def put(old: jax.Array, new: jax.Array, axis: int) -> jax.Array:
        begin = [at, *[0] * (old.ndim - 1)]
        begin[axis] = start
        # All shards run one program: a shard without a prompt writes back what is there.
        current = jax.lax.dynamic_slice(old, begin, new.shape)
        return jax.lax.dynamic_update_slice(old, jnp.where(taken, new, current), begin)

    scale = None if cache.scale is None else put(cache.scale, cast(jax.Array, new.scale), 2)
    return CacheArray(put(cache.data, new.data, axis), scale)
