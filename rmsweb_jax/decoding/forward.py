"""The engine's passes through the decoder: a chunk of a prompt for each shard, and one token for each lane.

A step has so few rows that gathering weights, as training does, would move a hundred times more bytes than
gathering activations. So on a mesh weights stay where they are (copies on the devices of `fsdp`, or split
over it), and activations travel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int32

from rmsweb_jax.decoding.attention import (
    KeySpan,
    attend_part,
    attend_prompt,
    attend_recent,
    attend_ring,
    keys_by_position,
    merge,
)
from rmsweb_jax.decoding.cache import (
    BY_HEAD,
    BY_ROW,
    SLOT_SPECS,
    DeltaState,
    LaneCache,
    PromptSlots,
    RingCache,
    ring_size,
    write_chunk,
    write_token,
)
from rmsweb_jax.decoding.quantized import CacheArray, swap_last_axes, to_cache
from rmsweb_jax.decoding.weights import (
    AttentionWeights,
    DecodeWeights,
    DeltaWeights,
    LayerAdapters,
    LayerWeights,
    Layout,
    project,
)
from rmsweb_jax.qwen.config import DeltaConfig, TextConfig
from rmsweb_jax.qwen.gated_delta import chain_tables, decay_and_beta, delta_rule, recurrent_heads
from rmsweb_jax.qwen.inputs import Array
from rmsweb_jax.qwen.layers import rms_norm, rotate
from rmsweb_jax.qwen.text import mrope_cos_sin
from rmsweb_jax.training.mesh import ROWS, constrain

# Fewest tokens of a chunk whose attention to the chunk is computed at once.
_QUERIES = 64
# (queries, keys, values) of a layer's rows, by kv head -> mixed values.
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
# (queries, keys and values by key head, taps of the convolution, log of the decay, beta) -> what is read.
Recur = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def on_shards(
    function: Callable[..., Any], layout: Layout, in_specs: Any, out_specs: Any
) -> Callable[..., Any]:
    """Runs a function on each shard's own part of its arguments, so that indices are local to the shard."""
    if layout.mesh is None or layout.mesh.size == 1:
        return function
    return jax.shard_map(
        # A kernel's outputs carry no replication types.
        function,
        mesh=layout.mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        check_vma=False,
    )


class Chunk(NamedTuple):
    """The next tokens of one prompt for each shard.

    Attributes:
      tokens: padded on the right.
      positions: rotary positions on the time, height and width axes.
      image_index: row of the shard's `Vision` features that is placed at the token; -1 is text.
      slot: the prompt's slot among the shard's own, or -1 if the shard has none in this chunk.
      start: tokens of the prompt before the chunk.
      count: tokens of the chunk; those after it are padding.
      next_position: rotary position of the first response token.
      adapter: slot of the adapters, from 1; 0 is none.
    """

    tokens: Int32[Array, "shards chunk"]
    positions: Int32[Array, "shards 3 chunk"]
    image_index: Int32[Array, "shards chunk"]
    slot: Int32[Array, " shards"]
    start: Int32[Array, " shards"]
    count: Int32[Array, " shards"]
    next_position: Int32[Array, " shards"]
    adapter: Int32[Array, " shards"]


class ChunkCache(NamedTuple):
    """What a chunk writes to `PromptSlots`, and the hidden state of its last token."""

    keys: tuple[CacheArray, ...]
    values: tuple[CacheArray, ...]
    deltas: tuple[DeltaState, ...]
    last_hidden: Float[jax.Array, "shards hidden"]


CHUNK_SPECS = ChunkCache(BY_HEAD, BY_HEAD, BY_HEAD, BY_ROW)


class Vision(NamedTuple):
    """Features of the images of one prompt for each shard, and what DeepStack adds after the first layers."""

    features: Float[jax.Array, "shards merged hidden"]
    deepstack: tuple[Float[jax.Array, "shards merged hidden"], ...]


class LanePlaces(NamedTuple):
    """Where lanes find their prompts; the same for all steps of a call.

    Attributes:
      prompt: slot of the lane's prompt among those of its shard.
      rank: index of the lane among those of its prompt.
      members: lanes of each prompt among those of its shard; -1 where there is none.
      chosen: 1 in the column of the lane's adapters.
      next_position: of the lane's prompt.
    """

    prompt: Int32[jax.Array, " lanes"]
    rank: Int32[jax.Array, " lanes"]
    members: Int32[jax.Array, "prompts samples"]
    chosen: Float[jax.Array, "lanes adapters"]
    next_position: Int32[jax.Array, " lanes"]


def choose_adapters(adapter: Int32[Array, " rows"], adapters: tuple[LayerAdapters, ...]) -> jax.Array:
    """Makes the column mask of `project` for the adapter slot of each row; 0 chooses none."""
    count = adapters[0].qkv.a.shape[0] if adapters else 0
    return (jnp.asarray(adapter)[:, None] == jnp.arange(1, count + 1)).astype(jnp.float32)


def _layer(
    x: Float[jax.Array, "rows hidden"],
    weights: LayerWeights,
    adapters: LayerAdapters | None,
    chosen: jax.Array,
    config: TextConfig,
    layout: Layout,
    attend: Attend,
    recur: Recur,
    cos: jax.Array,
    sin: jax.Array,
) -> Float[jax.Array, "rows hidden"]:
    """Computes a decoder layer for rows that are tokens of any prompts.

    Args:
      cos, sin: rotary tables [rows, half_dim].
    """
    mesh, mixer = layout.mesh, weights.mixer

    def added(x: jax.Array, change: jax.Array) -> jax.Array:
        # With split weights every device of `fsdp` and `tensor` needs whole states of the same rows.
        return x + constrain(change.reshape(x.shape), mesh, layout.rows, None)

    normed = rms_norm(x, weights.input_norm, config.rms_norm_eps)
    qkv = project(normed, mixer.qkv, adapters.qkv if adapters else None, chosen)
    if isinstance(mixer, AttentionWeights):
        mixed = _attention(qkv, mixer, config, layout, attend, cos, sin)
    else:
        mixed = _recurrence(qkv, normed, mixer, config, layout, recur)
    # Attention has the rows split over `fsdp` as well. A matrix that is split over `fsdp` by its outputs
    # needs all rows of a `data` part on every device.
    mixed = constrain(mixed.astype(x.dtype).reshape(len(x), -1), mesh, layout.rows, "tensor")
    x = added(x, project(mixed, mixer.out, adapters.out if adapters else None, chosen))
    gate_up = project(rms_norm(x, weights.post_norm, config.rms_norm_eps), weights.gate_up)
    # Split like the inputs of `down`, so that silu(gate) * up stays on its device.
    intermediate = weights.down.shape[0]
    gate_up = constrain(gate_up, mesh, layout.rows, layout.outputs(intermediate))
    gate_up = gate_up.reshape(len(x), layout.parts(intermediate), -1)
    gate, up = jnp.split(constrain(gate_up, mesh, layout.rows, layout.outputs(intermediate), None), 2, -1)
    gated = (jax.nn.silu(gate) * up).reshape(len(x), -1)
    return added(x, gated @ weights.down)


def _attention(
    qkv: jax.Array,
    weights: AttentionWeights,
    config: TextConfig,
    layout: Layout,
    attend: Attend,
    cos: jax.Array,
    sin: jax.Array,
) -> jax.Array:
    mesh, size, heads, rows = layout.mesh, config.head_dim, config.num_key_value_heads, len(qkv)
    # Two constraints, first on the product, then on the rows: with the second alone XLA gathers the weights.
    qkv = constrain(qkv, mesh, layout.rows, layout.outputs(qkv.shape[1]))
    qkv = constrain(qkv, mesh, ROWS, "tensor").reshape(rows, heads, -1)
    q, k, v = jnp.split(qkv, [qkv.shape[-1] - 2 * size, qkv.shape[-1] - size], axis=-1)
    # q is [rows, kv_heads, queries of a kv head, head_dim]. It is scaled instead of the scores, which are far
    # larger.
    q, gate = q.reshape(rows, heads, -1, size), None
    if config.delta is not None:
        q, gate = q[:, :, ::2], q[:, :, 1::2]
    q = rms_norm(q, weights.q_norm, config.rms_norm_eps)
    q = rotate(q, cos[:, None], sin[:, None]) * size**-0.5
    k = rotate(rms_norm(k, weights.k_norm, config.rms_norm_eps), cos, sin)
    mixed = attend(q, k, v)
    return mixed if gate is None else mixed * jax.nn.sigmoid(gate)


def _recurrence(
    qkv: jax.Array, normed: jax.Array, weights: DeltaWeights, config: TextConfig, layout: Layout, recur: Recur
) -> jax.Array:
    delta = config.delta
    assert delta is not None
    mesh, rows = layout.mesh, len(qkv)
    qkv, z, a, b = (
        constrain(x, mesh, ROWS, "tensor")
        for x in (qkv, normed @ weights.z, normed @ weights.a, normed @ weights.b)
    )
    log_decay, beta = decay_and_beta(a, b, weights.a_log, weights.dt_bias)
    heads = delta.linear_num_key_heads
    taps = weights.taps.reshape(len(weights.taps), heads, -1)
    read = recur(qkv.reshape(rows, heads, -1), taps, log_decay, beta)
    normed = rms_norm(read.astype(qkv.dtype), weights.norm, config.rms_norm_eps)
    return normed.astype(jnp.float32) * jax.nn.silu(z.reshape(read.shape).astype(jnp.float32))


def _split_channels(mixed: jax.Array, delta: DeltaConfig) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values by value head, from channels by key head [..., key_heads, channels]."""
    size = delta.linear_key_head_dim
    q, k, v = jnp.split(mixed, [size, 2 * size], axis=-1)
    return recurrent_heads(q, k, v.reshape(*v.shape[:-2], -1, delta.linear_value_head_dim))


def _recur_once(
    state: DeltaState,
    qkv: jax.Array,
    taps: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    active: jax.Array,
    delta: DeltaConfig,
) -> tuple[jax.Array, DeltaState]:
    """Feeds one token a row; states of rows that are not active stay as they are."""
    # [rows, key_heads, taps, channels], the token last.
    window = jnp.concatenate([state.tail, qkv[:, :, None].astype(state.tail.dtype)], axis=2)
    mixed = jax.nn.silu((window * jnp.moveaxis(taps, 0, 1)).sum(2))
    q, k, v = _split_channels(mixed, delta)
    ein = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    decayed = state.state * jnp.exp(log_decay)[..., None, None]
    u = beta[..., None] * (v - ein("rhd,rhde->rhe", k, decayed))
    new = decayed + k[..., None] * u[:, :, None]

    def kept(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(active.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return ein("rhd,rhde->rhe", q, new), DeltaState(
        kept(new, state.state), kept(window[:, :, 1:], state.tail)
    )


def _recur_chunk(
    state: DeltaState,
    qkv: jax.Array,
    taps: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    count: jax.Array,
    delta: DeltaConfig,
) -> tuple[jax.Array, DeltaState]:
    """Feeds a chunk of tokens a row, [rows, tokens, ...], of which the first `count` are no padding."""
    rows, length = qkv.shape[:2]
    before = state.tail.shape[2]
    # [rows, tail and tokens, key_heads, channels].
    window = jnp.concatenate([jnp.moveaxis(state.tail, 2, 1), qkv.astype(state.tail.dtype)], axis=1)
    mixed = sum(window[:, tap : tap + length] * taps[tap] for tap in range(before + 1))
    q, k, v = _split_channels(jax.nn.silu(mixed), delta)
    real = jnp.arange(length) < count[:, None]
    # Padding leaves the state as it is.
    log_decay, beta = (jnp.where(real[..., None], x, 0.0) for x in (log_decay, beta))
    until = jnp.full((rows, length), length, jnp.int32)
    read, end = delta_rule(q, k, v, log_decay, beta, until, chain_tables(rows, length), state.state)
    at = count[:, None] + jnp.arange(before)
    tail = jnp.take_along_axis(window, at[..., None, None], axis=1)
    return read, DeltaState(end, jnp.moveaxis(tail, 1, 2))


def decode_step(
    weights: DecodeWeights,
    adapters: tuple[LayerAdapters, ...],
    config: TextConfig,
    tokens: Int32[jax.Array, " lanes"],
    num_fed: Int32[jax.Array, " lanes"],
    step: Int32[jax.Array, ""],
    slots: PromptSlots,
    places: LanePlaces,
    cache: LaneCache,
    *,
    cache_dtype: str,
    layout: Layout,
) -> tuple[Float[jax.Array, "lanes hidden"], RingCache, tuple[DeltaState, ...]]:
    """Feeds one response token of every lane to the decoder.

    Args:
      num_fed: response tokens of the lane that are fed so far, with this one; 0 where there is none.
      step: number of this step; its keys and values go to position `step % ring` of the ring buffer, those of
        the tokens before to the positions before.

    Returns:
      Hidden states after the final norm, the recent block with the token's keys and values, and the states of
      recurrences.
    """
    attention, mesh = layout.attention, layout.mesh
    positions = jnp.broadcast_to(places.next_position + num_fed - 1, (3, len(tokens)))
    cos, sin = mrope_cos_sin(positions, config)
    ring, block = ring_size(cache), cache.recent.values[0].data.shape[2]
    write_at = step % block
    # The ring buffer still holds, at the positions of the current block, the tokens of the turn before. So of
    # the `kept` latest tokens it gives all that are older than the current block.
    kept = jnp.minimum(num_fed, ring)
    older = KeySpan((step + 1 - kept) % ring, jnp.maximum(kept - 1 - write_at, 0))
    recent_age = write_at - jnp.arange(block)
    if ring == block:
        # The recent block is the whole ring buffer: positions after this one hold the tokens of the turn
        # before.
        recent_age = recent_age % block
    # Steps since each position was written; older than the response means an earlier sequence of the lane.
    recent_mask = (recent_age >= 0) & (recent_age < num_fed[:, None])

    def attend_lanes(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        prompt: tuple[CacheArray, CacheArray],
        lengths: jax.Array,
        recent: tuple[CacheArray, CacheArray],
        completed: tuple[CacheArray, ...],
        places: LanePlaces,
        older: KeySpan,
        recent_mask: jax.Array,
    ) -> tuple[jax.Array, tuple[CacheArray, CacheArray]]:
        key, value = to_cache(k, cache_dtype), to_cache(v, cache_dtype)
        keys = write_token(recent[0], key._replace(data=key.data[..., None]), write_at, axis=3)
        values = write_token(recent[1], value._replace(data=value.data[..., None, :]), write_at, axis=2)
        # The queries of all lanes of a prompt become one matrix, so that its keys are read once for them.
        prompts, samples = places.members.shape
        _, heads, group, size = q.shape
        rows = (
            q[jnp.maximum(places.members, 0)]
            .transpose(0, 2, 1, 3, 4)
            .reshape(prompts, heads, samples * group, size)
        )
        # Nothing is read of prompts without a lane.
        seen = jnp.where((places.members >= 0).any(1), lengths, 0)
        part = attend_prompt(rows, *prompt, seen, attention)

        def by_lane(x: jax.Array) -> jax.Array:
            x = jnp.moveaxis(x.reshape(prompts, heads, samples, group, *x.shape[3:]), 2, 1)
            return x[places.prompt, places.rank]

        parts = [jax.tree.map(by_lane, part), attend_recent(q, keys, values, recent_mask, attention)]
        if completed:
            parts.append(attend_ring(q, completed[0], completed[1], older, attention))
        return merge(*parts), (keys, values)

    by_places = LanePlaces(*[BY_ROW] * 5)
    attend_lanes = on_shards(
        attend_lanes,
        layout,
        (*[BY_HEAD] * 4, BY_ROW, BY_HEAD, BY_HEAD, by_places, KeySpan(BY_ROW, BY_ROW), BY_ROW),
        (BY_HEAD, BY_HEAD),
    )
    all_keys, all_values, deltas = [], [], list[DeltaState]()
    x = constrain(weights.embedding[tokens], mesh, layout.rows, None)
    # Unrolled: a scan over layers would take stacked caches apart and put them together in every step.
    for number, layer in enumerate(weights.layers):

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            index, recent, completed = len(all_keys), cache.recent, cache.ring
            mixed, (keys, values) = attend_lanes(
                q,
                k,
                v,
                (slots.keys[index], slots.values[index]),
                slots.lengths,
                (recent.keys[index], recent.values[index]),
                (completed.keys[index], completed.values[index]) if completed.keys else (),
                places,
                older,
                recent_mask,
            )
            all_keys.append(keys)
            all_values.append(values)
            return mixed

        def recur(qkv: jax.Array, taps: jax.Array, log_decay: jax.Array, beta: jax.Array) -> jax.Array:
            assert config.delta is not None
            state, active = cache.deltas[len(deltas)], num_fed > 0
            read, new = _recur_once(state, qkv, taps, log_decay, beta, active, config.delta)
            deltas.append(new)
            return read

        own = adapters[number] if adapters else None
        x = _layer(x, layer, own, places.chosen, config, layout, attend, recur, cos, sin)
    hidden = rms_norm(x, weights.norm, config.rms_norm_eps)
    return hidden, RingCache(tuple(all_keys), tuple(all_values)), tuple(deltas)


def prefill_chunk(
    weights: DecodeWeights,
    adapters: tuple[LayerAdapters, ...],
    config: TextConfig,
    chunk: Chunk,
    vision: Vision | None,
    slots: PromptSlots,
    *,
    cache_dtype: str,
    layout: Layout,
) -> ChunkCache:
    """Feeds the next tokens of one prompt a shard to the decoder; returns what `store_chunk` writes."""
    shards, length = chunk.tokens.shape
    attention, mesh = layout.attention, layout.mesh
    size = config.head_dim
    rows = shards * length
    cos, sin = mrope_cos_sin(jnp.asarray(chunk.positions).transpose(1, 0, 2).reshape(3, rows), config)

    def attend_chunk(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        keys: CacheArray,
        values: CacheArray,
        slot: jax.Array,
        start: jax.Array,
    ) -> tuple[jax.Array, CacheArray, CacheArray]:
        """Attends to a shard's slot and to the chunk, and makes the chunk's entries of the caches."""

        def positions_last(x: jax.Array) -> CacheArray:  # [chunk, kv_heads, d] -> [1, kv_heads, chunk, d]
            return to_cache(x.transpose(1, 0, 2)[None], cache_dtype)

        key, value = positions_last(k), positions_last(v)
        if not keys_by_position(attention):
            key = swap_last_axes(key)
        tokens, kv_heads, group, _ = q.shape
        queries = q.transpose(1, 0, 2, 3).reshape(1, kv_heads, tokens * group, size)
        at = jnp.maximum(slot, 0)

        def own(cache: CacheArray) -> CacheArray:
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, at[0], 1, 0), cache)

        before = attend_prompt(queries, own(keys), own(values), start, attention)
        own_keys, own_values = k.transpose(1, 2, 0)[None], v.transpose(1, 0, 2)[None]
        order, parts = jnp.arange(tokens), []
        # Some queries at a time, which see no key behind theirs.
        each = max(_QUERIES, tokens // 4)
        each = tokens if tokens % each else each
        for end in range(each, tokens + 1, each):
            causal = order[:end] <= jnp.repeat(order[end - each : end], group)[:, None]
            some = queries[:, :, (end - each) * group : end * group]
            cut = CacheArray(own_keys[..., :end]), CacheArray(own_values[:, :, :end])
            parts.append(attend_part(some, *cut, causal))
        within = jax.tree.map(lambda *part: jnp.concatenate(part, 2), *parts)
        mixed = merge(before, within).reshape(kv_heads, tokens, group, size).transpose(1, 0, 2, 3)
        return mixed, key, value

    attend_chunk = on_shards(
        attend_chunk, layout, (*[BY_HEAD] * 5, BY_ROW, BY_ROW), (BY_HEAD, BY_HEAD, BY_HEAD)
    )
    # Splitting [shards] over ROWS splits [shards * chunk] alike: a shard's rows are contiguous.
    index = jnp.asarray(chunk.image_index)
    is_image = (index >= 0).reshape(rows, 1)

    def placed(features: jax.Array) -> jax.Array:
        found = jnp.take_along_axis(features, jnp.maximum(index, 0)[..., None], axis=1)
        return found.reshape(rows, -1)

    x = weights.embedding[jnp.asarray(chunk.tokens).reshape(rows)]
    if vision is not None:
        x = jnp.where(is_image, placed(vision.features).astype(x.dtype), x)
    x = constrain(x, mesh, layout.rows, None)
    chosen = jnp.repeat(choose_adapters(chunk.adapter, adapters), length, axis=0)
    all_keys, all_values, deltas = [], [], list[DeltaState]()
    slot, start, count = (jnp.asarray(one) for one in (chunk.slot, chunk.start, chunk.count))

    def begun(state: DeltaState, slot: jax.Array, start: jax.Array) -> DeltaState:
        """What a shard's slot knows of the tokens before the chunk."""
        at = jnp.maximum(slot, 0)[0]

        def own(x: jax.Array) -> jax.Array:
            return jnp.where(start[0] > 0, jax.lax.dynamic_slice_in_dim(x, at, 1, 0), 0)

        return DeltaState(own(state.state), own(state.tail))

    begun = on_shards(begun, layout, (BY_HEAD, BY_ROW, BY_ROW), BY_HEAD)
    for number, layer in enumerate(weights.layers):

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            mixed, keys, values = attend_chunk(
                q,
                k,
                v,
                slots.keys[len(all_keys)],
                slots.values[len(all_keys)],
                slot,
                start,
            )
            all_keys.append(keys)
            all_values.append(values)
            return mixed

        def recur(qkv: jax.Array, taps: jax.Array, log_decay: jax.Array, beta: jax.Array) -> jax.Array:
            assert config.delta is not None
            state = begun(slots.deltas[len(deltas)], slot, start)
            parts = (x.reshape(shards, length, *x.shape[1:]) for x in (qkv, log_decay, beta))
            qkv, log_decay, beta = parts
            read, new = _recur_chunk(state, qkv, taps, log_decay, beta, count, config.delta)
            deltas.append(new)
            return read.reshape(rows, *read.shape[2:])

        own = adapters[number] if adapters else None
        x = _layer(x, layer, own, chosen, config, layout, attend, recur, cos, sin)
        # DeepStack: the vision features of the n-th tapped block are added after the n-th layer.
        if vision is not None and number < len(vision.deepstack):
            x = x + jnp.where(is_image, placed(vision.deepstack[number]).astype(x.dtype), 0)
    ends = jnp.maximum(jnp.asarray(chunk.count) - 1, 0)[:, None, None]
    last = jnp.take_along_axis(x.reshape(shards, length, -1), ends, axis=1)[:, 0]
    hidden = rms_norm(last, weights.norm, config.rms_norm_eps)
    return ChunkCache(tuple(all_keys), tuple(all_values), tuple(deltas), hidden)


def store_chunk(slots: PromptSlots, chunk: Chunk, cache: ChunkCache, *, layout: Layout) -> PromptSlots:
    """Writes what `prefill_chunk` has computed to the slots.

    A program of its own: in one that also reads the slots XLA would copy all of them.
    """
    keys_axis = 2 if keys_by_position(layout.attention) else 3

    def store(slots: PromptSlots, cache: ChunkCache, chunk: Chunk) -> PromptSlots:
        slot, start = chunk.slot[0], chunk.start[0]
        at, taken = jnp.maximum(slot, 0), slot >= 0

        def entry(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[at].set(jnp.where(taken, new[0], old[at]))

        return PromptSlots(
            tuple(
                write_chunk(*pair, slot, start, keys_axis)
                for pair in zip(slots.keys, cache.keys, strict=True)
            ),
            tuple(
                write_chunk(*pair, slot, start, 2) for pair in zip(slots.values, cache.values, strict=True)
            ),
            jax.tree.map(entry, slots.deltas, cache.deltas),
            entry(slots.lengths, jnp.asarray(chunk.start) + chunk.count),
            entry(slots.next_position, jnp.asarray(chunk.next_position)),
            entry(slots.last_hidden, cache.last_hidden),
        )

    specs = (SLOT_SPECS, CHUNK_SPECS, Chunk(*[BY_ROW] * len(Chunk._fields)))
    return on_shards(store, layout, specs, SLOT_SPECS)(slots, cache, chunk)
