"""The engine's compiled programs: weights, images, a chunk of prefill, and decoding of some steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float32, Int32, UInt32

from rmsweb_jax.decoding.cache import (
    BLOCK,
    BY_HEAD,
    BY_ROW,
    LANE_SPECS,
    SLOT_SPECS,
    DeltaState,
    LaneCache,
    LaneState,
    PromptSlots,
    RingCache,
    empty_lanes,
    empty_slots,
    flush_block,
    ring_size,
)
from rmsweb_jax.decoding.draw import BANNED, Restrictions, first_true, penalize, restrict, sample_tokens
from rmsweb_jax.decoding.forward import (
    Chunk,
    ChunkCache,
    LanePlaces,
    Vision,
    choose_adapters,
    decode_step,
    on_shards,
    prefill_chunk,
    store_chunk,
)
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.decoding.weights import (
    Adapter,
    DecodeWeights,
    LayerAdapters,
    Layout,
    adapter_specs,
    adapter_weights,
    decode_weights,
)
from rmsweb_jax.qwen.config import ATTENTION, DELTA, TextConfig
from rmsweb_jax.qwen.inputs import Array, VisionInputs
from rmsweb_jax.training.mesh import AXES, ROWS, constrain, constrain_tree

# Most likely tokens that are reported with each token; OpenAI's limit.
TOP = 20


class LaneTable(NamedTuple):
    """What each lane decodes, set by the host.

    Attributes:
      serial: number of the sequence; a lane whose number changed begins a new one. 0 frees the lane.
      prompt, rank, members: see `LanePlaces`.
      adapter: slot of the adapters, from 1; 0 is none.
      limit: tokens at which the response is cut.
      seeds, prompt_ids, samples: together they determine a sequence's random numbers.
      temperature: 0 selects greedy decoding.
    """

    serial: Int32[Array, " lanes"]
    prompt: Int32[Array, " lanes"]
    rank: Int32[Array, " lanes"]
    members: Int32[Array, "prompts samples"]
    adapter: Int32[Array, " lanes"]
    limit: Int32[Array, " lanes"]
    seeds: UInt32[Array, " lanes"]
    prompt_ids: UInt32[Array, " lanes"]
    samples: Int32[Array, " lanes"]
    temperature: Float32[Array, " lanes"]


class TopLogProbs(NamedTuple):
    """The most likely tokens, before restrictions."""

    tokens: Int32[jax.Array, "*places top"]
    log_probs: Float32[jax.Array, "*places top"]


class Emitted(NamedTuple):
    """What a call has drawn; the same on all devices, so that every process can read it.

    Attributes:
      tokens, log_probs: a lane has `drawn` of them, from the first step on.
      drawn: tokens of each lane.
      done: lanes that are free now.
      steps: steps of the call.
      top: empty in the program without restrictions.
    """

    tokens: Int32[jax.Array, "steps lanes"]
    log_probs: Float32[jax.Array, "steps lanes"]
    drawn: Int32[jax.Array, " lanes"]
    done: Bool[jax.Array, " lanes"]
    steps: Int32[jax.Array, ""]
    top: TopLogProbs


@functools.partial(jax.jit, static_argnames=("graphdef", "layout"))
def prepare_weights(graphdef: Any, state: Any, *, layout: Layout) -> DecodeWeights:
    """Compiles `decode_weights` for a model given as graph and state."""
    return decode_weights(nnx.merge(graphdef, state), layout)


@functools.partial(jax.jit, static_argnames=("graphdef", "rank", "layout"))
def prepare_adapters(
    graphdef: Any, state: Any, *, rank: int, layout: Layout
) -> tuple[tuple[LayerAdapters, ...], Bool[jax.Array, ""]]:
    """Takes the adapters of a model given as graph and state; ranks are filled with zeros up to `rank`.

    Returns:
      The adapters, and True if all their numbers are finite.
    """

    def pad(x: jax.Array, axis: int) -> jax.Array:
        return jnp.pad(x, [(0, (rank - x.shape[axis]) * (other == axis)) for other in range(x.ndim)])

    layers = tuple(
        LayerAdapters(*(Adapter(pad(part.a, 2), pad(part.b, 1)) for part in layer))
        for layer in adapter_weights(nnx.merge(graphdef, state))
    )
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(layers)]).all()
    return _placed(layers, layout), finite


def _placed(adapters: tuple[LayerAdapters, ...], layout: Layout) -> tuple[LayerAdapters, ...]:
    return constrain_tree(adapters, adapter_specs(adapters, layout), layout.mesh)


@functools.partial(jax.jit, static_argnames=("config", "count", "rank", "dtype", "layout"))
def empty_adapters(
    *, config: TextConfig, count: int, rank: int, dtype: Any, layout: Layout
) -> tuple[LayerAdapters, ...]:
    """Allocates slots for adapters, which add nothing."""
    # Outputs of q, k and v, and inputs of the output's projection, by kind of layer.
    query_dim = (1 + (config.delta is not None)) * config.query_dim
    dims = {ATTENTION: (query_dim + 2 * config.kv_dim, config.query_dim)}
    if (delta := config.delta) is not None:
        dims[DELTA] = delta.channels, delta.value_dim

    def zeros(*shape: int) -> jax.Array:
        return jnp.zeros((count, *shape), dtype)

    def layer(kind: str) -> LayerAdapters:
        qkv_dim, mixed_dim = dims[kind]
        return LayerAdapters(
            Adapter(zeros(config.hidden_size, rank), zeros(rank, qkv_dim)),
            Adapter(zeros(mixed_dim, rank), zeros(rank, config.hidden_size)),
        )

    return _placed(tuple(map(layer, config.layer_types * config.num_attention_layers)), layout)


@functools.partial(jax.jit, donate_argnums=0, static_argnames="layout")
def set_adapters(
    held: tuple[LayerAdapters, ...], new: tuple[LayerAdapters, ...], slot: Int32[Array, ""], *, layout: Layout
) -> tuple[LayerAdapters, ...]:
    """Puts adapters of the held rank into a slot, from 0."""

    def put(held: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(held, new.astype(held.dtype), slot, 0)

    return _placed(jax.tree.map(put, held, new), layout)


@functools.partial(jax.jit, static_argnames=("graphdef", "layout", "shards"))
def encode_images(graphdef: Any, state: Any, inputs: VisionInputs, *, layout: Layout, shards: int) -> Vision:
    """Runs the vision tower on the images of one prompt for each shard."""
    out = nnx.merge(graphdef, state)(inputs, mesh=layout.mesh)

    def by_shard(x: jax.Array) -> jax.Array:
        return constrain(x.reshape(shards, -1, x.shape[-1]), layout.mesh, ROWS)

    return Vision(by_shard(out.features), tuple(map(by_shard, out.deepstack)))


@functools.partial(jax.jit, static_argnames=("config", "sizes", "dtype", "cache_dtype", "layout", "counted"))
def allocate(
    *, config: TextConfig, sizes: EngineSizes, dtype: Any, cache_dtype: str, layout: Layout, counted: bool
) -> tuple[PromptSlots, LaneState]:
    """Allocates free prompt slots and lanes."""
    slots = empty_slots(config, sizes, dtype, cache_dtype, layout.attention)
    lanes = empty_lanes(config, sizes, dtype, cache_dtype, layout.attention, counted)
    return constrain_tree((slots, lanes), (SLOT_SPECS, LANE_SPECS), layout.mesh)


@functools.partial(jax.jit, static_argnames=("config", "cache_dtype", "layout"))
def prefill(
    weights: DecodeWeights,
    adapters: tuple[LayerAdapters, ...],
    slots: PromptSlots,
    chunk: Chunk,
    vision: Vision | None,
    *,
    config: TextConfig,
    cache_dtype: str,
    layout: Layout,
) -> ChunkCache:
    """Compiles `prefill_chunk`."""
    return prefill_chunk(
        weights, adapters, config, chunk, vision, slots, cache_dtype=cache_dtype, layout=layout
    )


@functools.partial(jax.jit, donate_argnums=0, static_argnames="layout")
def store(slots: PromptSlots, chunk: Chunk, cache: ChunkCache, *, layout: Layout) -> PromptSlots:
    """Compiles `store_chunk`; `slots` is donated."""
    return constrain_tree(store_chunk(slots, chunk, cache, layout=layout), SLOT_SPECS, layout.mesh)


def _logits(hidden: jax.Array, weights: DecodeWeights, layout: Layout) -> jax.Array:
    """Computes logits [rows, vocab] in float32, of which each device has whole rows."""
    # Shard the vocabulary, not the hidden axis: the latter would all-reduce full [rows, vocab] logits.
    hidden = constrain(hidden, layout.mesh, layout.rows, None)
    # In float32: bfloat16 logits between 16 and 32 would be multiples of 1/8, and log-probabilities as
    # coarse.
    logits = jnp.matmul(hidden, weights.head, preferred_element_type=jnp.float32)
    return constrain(logits, layout.mesh, layout.rows, layout.outputs(weights.head.shape[1]))


def _no_top(*places: int, size: int = 0) -> TopLogProbs:
    return TopLogProbs(jnp.zeros((*places, size), jnp.int32), jnp.zeros((*places, size), jnp.float32))


def _top(log_probs: jax.Array) -> TopLogProbs:
    values, tokens = jax.lax.top_k(log_probs, min(TOP, log_probs.shape[-1]))
    return TopLogProbs(tokens.astype(jnp.int32), values)


@functools.partial(
    jax.jit, donate_argnums=3, static_argnames=("config", "most_steps", "cache_dtype", "layout")
)
def decode(
    weights: DecodeWeights,
    adapters: tuple[LayerAdapters, ...],
    slots: PromptSlots,
    lanes: LaneState,
    table: LaneTable,
    banned: Bool[Array, " vocab"],
    eos: Int32[Array, ""],
    free_lanes: Int32[Array, ""],
    steps: Int32[Array, ""],
    limits: Restrictions | None,
    *,
    config: TextConfig,
    most_steps: int,
    cache_dtype: str,
    layout: Layout,
) -> tuple[LaneState, Emitted]:
    """Draws up to `most_steps` tokens in each lane; `lanes` is donated.

    Args:
      free_lanes, steps: return once so many lanes are free, or after so many steps; arrays, so that other
        values compile nothing.
      banned: tokens that are never drawn.
      eos: the token that ends a response.
      limits: restrictions of each lane; a constraint holds for all steps of the call. None draws from the
        whole distribution, which is another program.
    """
    mesh = layout.mesh
    count, vocab = lanes.done.shape[0], banned.shape[0]
    ring = ring_size(lanes.cache)
    block = min(ring, BLOCK)
    serial = jnp.asarray(table.serial)
    begins = (serial != lanes.serial) & (serial > 0)
    if limits is not None:
        # Other lanes keep their counts.
        lanes = lanes._replace(counts=jnp.where(begins[:, None], 0, lanes.counts))
    lanes = lanes._replace(
        serial=serial,
        lengths=jnp.where(begins, 0, lanes.lengths),
        done=jnp.where(begins, False, lanes.done | (serial == 0)),
    )

    def gather(slots: tuple[jax.Array, ...], prompt: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(x[prompt] for x in slots)

    gather = on_shards(gather, layout, (BY_ROW, BY_ROW), BY_ROW)
    next_position, first_hidden = gather((slots.next_position, slots.last_hidden), jnp.asarray(table.prompt))
    places = LanePlaces(
        jnp.asarray(table.prompt),
        jnp.asarray(table.rank),
        jnp.asarray(table.members),
        choose_adapters(table.adapter, adapters),
        next_position,
    )
    if lanes.cache.deltas:
        at = jnp.asarray(table.prompt)
        lanes = lanes._replace(cache=_begin_deltas(lanes.cache, slots.deltas, at, begins, layout))
    keys = _lane_keys(table.seeds, table.prompt_ids, table.samples)
    temperature = jnp.asarray(table.temperature)[:, None]
    limit = jnp.asarray(table.limit)
    first_step, last_step = lanes.step, lanes.step + jnp.minimum(steps, most_steps)

    def draw(hidden: jax.Array, lanes: LaneState) -> tuple[jax.Array, jax.Array, TopLogProbs]:
        """Draws the next token of every lane from hidden states [lanes, hidden]."""
        logits = _logits(hidden, weights, layout)
        # Then split rows over all devices, so that each one samples some rows from whole distributions.
        logits = constrain(logits, mesh, AXES, None)
        at_temperature = logits / jnp.where(temperature > 0, temperature, 1.0)
        # Log-probabilities are those of the unrestricted distribution, which training computes again.
        log_total = jax.nn.logsumexp(at_temperature, axis=-1)
        top = _no_top(count)
        open_logits = jnp.where(banned, BANNED, at_temperature)
        if limits is not None:
            top = _top(at_temperature - log_total[:, None])
            penalized = penalize(logits, limits, lanes.counts) / jnp.where(temperature > 0, temperature, 1.0)
            open_logits = restrict(jnp.where(banned, BANNED, penalized), limits)
        # The key depends on the token's index in its response, not on the engine's step, so that a response
        # depends neither on its lane nor on other requests.
        step_keys = jax.vmap(jax.random.fold_in)(keys, lanes.lengths)
        sampled = sample_tokens(open_logits, step_keys)
        best = first_true(open_logits == open_logits.max(-1, keepdims=True))
        token = jnp.where(temperature[:, 0] > 0, sampled, best)
        picked = jnp.take_along_axis(at_temperature, token[:, None], axis=-1)[:, 0]
        return token, picked - log_total, top

    def running(carry: tuple[LaneState, Emitted]) -> jax.Array:
        lanes, _ = carry
        free = lanes.done.sum()
        return (free < count) & (free < free_lanes) & (lanes.step < last_step)

    def decode_block(carry: tuple[LaneState, Emitted]) -> tuple[LaneState, Emitted]:
        """Decodes to the end of a block of the ring buffer.

        The ring buffer is not in the loop's state, since steps only read it (see `RingCache`).
        """
        lanes, out = carry
        completed = lanes.cache.ring
        nothing = RingCache((), ())
        end = (lanes.step // block + 1) * block

        def step(carry: tuple[LaneState, Emitted]) -> tuple[LaneState, Emitted]:
            lanes, out = carry
            active = ~lanes.done
            num_fed = jnp.where(active, lanes.lengths, 0)
            hidden, recent, deltas = decode_step(
                weights,
                adapters,
                config,
                lanes.last,
                num_fed,
                lanes.step,
                slots,
                places,
                lanes.cache._replace(ring=completed),
                cache_dtype=cache_dtype,
                layout=layout,
            )
            # A lane that begins feeds nothing: its first token comes from its prompt's last hidden state.
            hidden = jnp.where(lanes.lengths[:, None] == 0, first_hidden, hidden)
            token, log_prob, top = draw(hidden, lanes)
            lengths = lanes.lengths + active
            ended = (token == eos) | (lengths >= limit)
            at = lanes.step - first_step
            out = out._replace(
                tokens=out.tokens.at[at].set(token),
                log_probs=out.log_probs.at[at].set(log_prob),
                drawn=out.drawn + active,
                top=TopLogProbs(*(old.at[at].set(new) for old, new in zip(out.top, top, strict=True))),
            )
            counts = lanes.counts
            if limits is not None:
                counts = counts.at[jnp.arange(count), token].add(active.astype(counts.dtype))
            lanes = lanes._replace(
                step=lanes.step + 1,
                lengths=lengths,
                done=lanes.done | (active & ended),
                last=jnp.where(active, token, lanes.last),
                counts=counts,
                cache=LaneCache(recent, nothing, deltas),
            )
            return lanes, out

        # `step` reads the ring buffer from the enclosing scope, as a constant of this loop.
        lanes = lanes._replace(cache=lanes.cache._replace(ring=nothing))
        lanes, out = jax.lax.while_loop(
            lambda carry: running(carry) & (carry[0].step < end), step, (lanes, out)
        )
        cache = flush_block(lanes.cache._replace(ring=completed), lanes.step, layout.attention)
        return lanes._replace(cache=cache), out

    out = Emitted(
        tokens=jnp.zeros((most_steps, count), jnp.int32),
        log_probs=jnp.zeros((most_steps, count), jnp.float32),
        drawn=jnp.zeros(count, jnp.int32),
        done=lanes.done,
        steps=jnp.zeros((), jnp.int32),
        top=_no_top(most_steps, count, size=0 if limits is None else min(TOP, vocab)),
    )
    lanes, out = jax.lax.while_loop(running, decode_block, (lanes, out))
    out = out._replace(done=lanes.done, steps=lanes.step - first_step)
    # The result has the structure and the shardings of the donated state. With another order of its arrays
    # XLA would copy all caches.
    return constrain_tree(lanes, LANE_SPECS, mesh), constrain_tree(out, P(), mesh)


def _begin_deltas(
    cache: LaneCache, prompts: tuple[DeltaState, ...], prompt: jax.Array, begins: jax.Array, layout: Layout
) -> LaneCache:
    """Copies to lanes that begin what recurrences know at the end of their prompts."""

    def copied(old: DeltaState, new: DeltaState, prompt: jax.Array, begins: jax.Array) -> DeltaState:
        def one(old: jax.Array, new: jax.Array) -> jax.Array:
            return jnp.where(begins[:, None, None, None], new[prompt], old)

        return DeltaState(one(old.state, new.state), one(old.tail, new.tail))

    copied = on_shards(copied, layout, (BY_HEAD, BY_HEAD, BY_ROW, BY_ROW), BY_HEAD)
    pairs = zip(cache.deltas, prompts, strict=True)
    return cache._replace(deltas=tuple(copied(*pair, prompt, begins) for pair in pairs))


def _lane_keys(seeds: Array, prompt_ids: Array, samples: Array) -> jax.Array:
    """Makes a PRNG key for each lane from its sequence's seed, its prompt's id and its index."""

    def lane(seed: jax.Array, prompt_id: jax.Array, sample: jax.Array) -> jax.Array:
        # Folded in one after the other: a sequence's key depends on nothing else.
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), prompt_id), sample)

    return jax.vmap(lane)(jnp.asarray(seeds), jnp.asarray(prompt_ids), jnp.asarray(samples))
