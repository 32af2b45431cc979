"""The recurrence of `gated_delta` as two Pallas kernels for TPU, forward and backward.

A program computes a chunk of one row and head; the chunks of a row follow one another, and states stay in
fast memory. All is in float32. In the backward pass chunks go from the last to the first: the gradient of a
kept state is the sum over its branches, and is taken where the state was kept.

Notation: for tokens i and j of a chunk, `sees` is the attention's rule, `path` the logarithm of the decay
from the chunk's beginning, `grown` its exponential, and `decay[i, j]` the decay from j to i; `begun[s]` is 1
for tokens whose path enters the chunk with state s. U solves (I + A) U = beta (V - grown K S), where A is the
strict part of beta decay (K K^T), and `solved` is the inverse of I + A.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Float32, Int32

from rmsweb_jax.qwen.inputs import Array, TreeTables


def _dot(x: jax.Array, y: jax.Array, contract: tuple[int, int] = (1, 0)) -> jax.Array:
    dims = (((contract[0],), (contract[1],)), ((), ()))
    return jax.lax.dot_general(
        x, y, dims, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )


class _Chunk(NamedTuple):
    """What forward and backward pass compute of a chunk; vectors over its tokens are columns."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    beta: jax.Array
    sees: jax.Array
    strict: jax.Array
    decay: jax.Array
    grown: jax.Array
    begun: list[jax.Array]
    products: jax.Array
    reads_k: jax.Array
    reads_q: jax.Array
    solved: jax.Array
    u: jax.Array


def _column(row: jax.Array) -> jax.Array:
    """[C, 1] of [1, C]."""
    size = row.shape[1]
    shape = (size, size)
    same = jax.lax.broadcasted_iota(jnp.int32, shape, 0) == jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    return jnp.sum(jnp.where(same, row, 0), axis=1, keepdims=True)


def _compute(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    gates: jax.Array,
    places: jax.Array,
    states: list[jax.Array],
    solved: Any,
) -> _Chunk:
    """Computes a chunk from its inputs and the states at its beginning.

    Args:
      gates: logarithms of the decay, and beta, [2, C].
      places: ends of branches, and the state with which each token's path enters the chunk, [2, C].
      solved: scratch [C, C].
    """
    size = q.shape[0]
    rows = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
    sees = (columns <= rows) & (rows < places[:1])
    strict = sees & (columns < rows)
    path = jnp.sum(jnp.where(sees, gates[:1], 0.0), axis=1, keepdims=True)
    # The row of `path`, by the same sums: a transpose of one column would be a relayout.
    path_row = jnp.sum(jnp.where(rows == columns, path, 0.0), axis=0, keepdims=True)
    decay = jnp.where(sees, jnp.exp(jnp.where(sees, path - path_row, 0.0)), 0.0)
    grown, beta, entry = jnp.exp(path), _column(gates[1:]), _column(places[1:])
    begun = [(entry == number).astype(jnp.float32) for number in range(len(states))]

    def reads(x: jax.Array) -> jax.Array:
        parts = [mask * _dot(x, state) for mask, state in zip(begun, states, strict=True)]
        return functools.reduce(jnp.add, parts)

    products = _dot(k, k, (1, 1))
    a = jnp.where(strict, products * decay, 0.0) * beta
    # (I + A)^-1 by forward substitution, a row at a time.
    solved[...] = (rows == columns).astype(jnp.float32)

    def substitute(row: jax.Array, _: None) -> None:
        at = pl.ds(row, 1)
        own = jnp.sum(jnp.where(rows == row, a, 0.0), axis=0, keepdims=True)
        solved[at, :] = solved[at, :] - _dot(own, solved[...])

    jax.lax.fori_loop(1, size, substitute, None)
    inverse, reads_k = solved[...], reads(k)
    u = _dot(inverse, beta * (v - grown * reads_k))
    return _Chunk(q, k, v, beta, sees, strict, decay, grown, begun, products, reads_k, reads(q), inverse, u)


def _row_of(x: jax.Array, place: jax.Array) -> jax.Array:
    """Row `place` of [C, n], as [1, n]."""
    rows = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0)
    return jnp.sum(jnp.where(rows == place, x, 0.0), axis=0, keepdims=True)


def _forward(
    keep: Any, q: Any, k: Any, v: Any, gates: Any, places: Any, out: Any, saved: Any, states: Any, solved: Any
) -> None:
    row, chunk = pl.program_id(0), pl.program_id(2)
    slots = states.shape[0] - 1

    @pl.when(chunk == 0)
    def _() -> None:
        states[...] = jnp.zeros_like(states)

    saved[0, 0, 0] = states[...]
    held = [states[number] for number in range(1 + slots)]
    own = _compute(q[0, 0], k[0, 0], v[0, 0], gates[0, 0, 0], places[0, 0], held, solved)
    weights = _dot(own.q, own.k, (1, 1)) * own.decay
    out[0, 0] = own.grown * own.reads_q + _dot(weights, own.u)

    def after(place: jax.Array) -> jax.Array:
        """The state after a token of the chunk."""
        before = [_row_of(mask, place) * state for mask, state in zip(own.begun, held, strict=True)]
        ahead = _column(_row_of(own.decay, place))
        grown = _row_of(own.grown, place)
        return grown * functools.reduce(jnp.add, before) + _dot(own.k, ahead * own.u, (0, 0))

    for slot in range(slots):
        place = keep[row, chunk, slot]

        @pl.when(place >= 0)
        def _(slot: int = slot, place: jax.Array = place) -> None:
            states[1 + slot] = after(place)

    states[0] = after(jnp.int32(own.q.shape[0] - 1))


def _backward(
    keep: Any,
    q: Any,
    k: Any,
    v: Any,
    gates: Any,
    places: Any,
    saved: Any,
    d_out: Any,
    d_q: Any,
    d_k: Any,
    d_v: Any,
    d_gates: Any,
    d_states: Any,
    solved: Any,
) -> None:
    row, turn, chunks = pl.program_id(0), pl.program_id(2), pl.num_programs(2)
    chunk = chunks - 1 - turn
    slots = d_states.shape[0] - 1

    @pl.when(turn == 0)
    def _() -> None:
        d_states[...] = jnp.zeros_like(d_states)

    held = [saved[0, 0, 0, number] for number in range(1 + slots)]
    own = _compute(q[0, 0], k[0, 0], v[0, 0], gates[0, 0, 0], places[0, 0], held, solved)
    size = own.q.shape[0]
    index = jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)
    d_o = d_out[0, 0]
    raw = _dot(own.q, own.k, (1, 1))
    # Of the output.
    by_grown = jnp.sum(d_o * own.reads_q, axis=1, keepdims=True)
    by_reads_q = own.grown * d_o
    by_weights = _dot(d_o, own.u, (1, 1))
    by_u = _dot(raw * own.decay, d_o, (0, 0))
    by_decay = by_weights * raw
    by_raw = by_weights * own.decay
    by_q = _dot(by_raw, own.k)
    by_k = _dot(by_raw, own.q, (0, 0))
    # Of the states after the chunk's last token and after those that are kept.
    before = [jnp.zeros_like(held[0]) for _ in held]
    for number in range(1 + slots):
        place = jnp.int32(size - 1) if number == 0 else keep[row, chunk, number - 1]
        valid = (place >= 0).astype(jnp.float32)
        given = d_states[number]
        taken = valid * given
        at = (index == place).astype(jnp.float32)
        ahead, grown = _column(_row_of(own.decay, place)), _row_of(own.grown, place)
        ks = _dot(own.k, taken)
        by_u += ahead * ks
        by_decay += at * jnp.sum(
            jnp.where(_eye(size), jnp.sum(ks * own.u, axis=1, keepdims=True), 0.0), axis=0, keepdims=True
        )
        by_k += ahead * _dot(own.u, taken, (1, 1))
        entered = jnp.zeros_like(held[0])
        for other, (mask, state) in enumerate(zip(own.begun, held, strict=True)):
            share = _row_of(mask, place)
            entered += share * state
            before[other] += share * grown * taken
        by_grown += at * jnp.sum(entered * taken)
        # A slot that the chunk leaves as it is.
        before[number] += (1.0 - valid) * given
    # Of U.
    by_right = _dot(own.solved, by_u, (0, 0))
    by_a = jnp.where(own.strict, -_dot(by_right, own.u, (1, 1)), 0.0)
    reads = own.grown * own.reads_k
    d_v[0, 0] = own.beta * by_right
    by_beta = jnp.sum(by_right * (own.v - reads), axis=1, keepdims=True)
    by_grown -= jnp.sum(own.beta * by_right * own.reads_k, axis=1, keepdims=True)
    by_reads_k = -own.beta * own.grown * by_right
    by_products = by_a * own.decay * own.beta
    by_decay += by_a * own.products * own.beta
    by_beta += jnp.sum(by_a * own.products * own.decay, axis=1, keepdims=True)
    by_k += _dot(by_products, own.k) + _dot(by_products, own.k, (0, 0))
    # Of what is read of the states.
    for other, (mask, state) in enumerate(zip(own.begun, held, strict=True)):
        by_k += mask * _dot(by_reads_k, state, (1, 1))
        by_q += mask * _dot(by_reads_q, state, (1, 1))
        before[other] += _dot(own.k, mask * by_reads_k, (0, 0)) + _dot(own.q, mask * by_reads_q, (0, 0))
    # Of the decay: its logarithms are sums along the path.
    by_logs = by_decay * own.decay
    by_path = jnp.sum(by_logs, axis=1, keepdims=True) + by_grown * own.grown
    by_path -= _column(jnp.sum(by_logs, axis=0, keepdims=True))
    d_q[0, 0], d_k[0, 0] = by_q, by_k
    d_gates[0, 0, 0, :1] = jnp.sum(jnp.where(own.sees, by_path, 0.0), axis=0, keepdims=True)
    d_gates[0, 0, 0, 1:] = jnp.sum(jnp.where(_eye(size), by_beta, 0.0), axis=0, keepdims=True)
    for number in range(1 + slots):
        d_states[number] = before[number]


def _eye(size: int) -> jax.Array:
    shape = (size, size)
    return jax.lax.broadcasted_iota(jnp.int32, shape, 0) == jax.lax.broadcasted_iota(jnp.int32, shape, 1)


def delta_rule_kernel(
    q: Float32[jax.Array, "rows tokens heads key_dim"],
    k: Float32[jax.Array, "rows tokens heads key_dim"],
    v: Float32[jax.Array, "rows tokens heads value_dim"],
    log_decay: Float32[jax.Array, "rows tokens heads"],
    beta: Float32[jax.Array, "rows tokens heads"],
    until: Int32[Array, "rows tokens"],
    tables: TreeTables,
    interpret: bool = False,
) -> Float32[jax.Array, "rows tokens heads value_dim"]:
    """Computes what `gated_delta.delta_rule` does without an initial state."""
    rows, tokens, heads, _ = q.shape
    width, chunks = tables.entry.shape[1], tables.keep.shape[1]
    chunk = width // chunks

    def padded(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, 0), (0, width - tokens), *[(0, 0)] * (x.ndim - 2)))

    q, k, v = (jnp.swapaxes(padded(x), 1, 2) for x in (q, k, v))
    gates = jnp.stack([padded(log_decay), padded(beta)], axis=-1)
    gates = jnp.moveaxis(gates.reshape(rows, chunks, chunk, heads, 2), (3, 4), (1, 3))
    begins = chunk * jnp.arange(chunks)[None, :, None]
    ends = padded(jnp.asarray(until)).reshape(rows, chunks, chunk) - begins
    places = jnp.stack([ends, jnp.asarray(tables.entry).reshape(rows, chunks, chunk)], axis=2)
    out: Any = delta_kernel(q, k, v, gates, places.astype(jnp.int32), jnp.asarray(tables.keep), interpret)
    return jnp.swapaxes(out, 1, 2)[:, :tokens]


class _Shapes(NamedTuple):
    rows: int
    heads: int
    chunks: int
    chunk: int
    key_dim: int
    value_dim: int
    slots: int


def _specs(shapes: _Shapes, at: Any) -> dict[str, pl.BlockSpec]:
    """Blocks of the arrays of a program; `at` gives the chunk of a turn."""
    tokens = lambda size: pl.BlockSpec(  # noqa: E731
        (1, 1, shapes.chunk, size), lambda row, head, turn, _: (row, head, at(turn), 0)
    )
    states = (1, 1, 1, 1 + shapes.slots, shapes.key_dim, shapes.value_dim)
    return {
        "key": tokens(shapes.key_dim),
        "value": tokens(shapes.value_dim),
        "gates": pl.BlockSpec(
            (1, 1, 1, 2, shapes.chunk), lambda row, head, turn, _: (row, head, at(turn), 0, 0)
        ),
        "places": pl.BlockSpec((1, 1, 2, shapes.chunk), lambda row, head, turn, _: (row, at(turn), 0, 0)),
        "states": pl.BlockSpec(states, lambda row, head, turn, _: (row, head, at(turn), 0, 0, 0)),
    }


def _call(
    kernel: Any, shapes: _Shapes, inputs: list[str], outputs: list[str], reverse: bool, interpret: bool
) -> Any:
    last = shapes.chunks - 1
    specs = _specs(shapes, (lambda turn: last - turn) if reverse else (lambda turn: turn))
    lead, width = (shapes.rows, shapes.heads), shapes.chunks * shapes.chunk
    made = {
        "key": (*lead, width, shapes.key_dim),
        "value": (*lead, width, shapes.value_dim),
        "gates": (*lead, shapes.chunks, 2, shapes.chunk),
        "states": (*lead, shapes.chunks, 1 + shapes.slots, shapes.key_dim, shapes.value_dim),
    }
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(shapes.rows, shapes.heads, shapes.chunks),
            in_specs=[specs[name] for name in inputs],
            out_specs=[specs[name] for name in outputs],
            scratch_shapes=[
                pltpu.VMEM((1 + shapes.slots, shapes.key_dim, shapes.value_dim), jnp.float32),
                pltpu.VMEM((shapes.chunk, shapes.chunk), jnp.float32),
            ],
        ),
        out_shape=[jax.ShapeDtypeStruct(made[name], jnp.float32) for name in outputs],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def delta_kernel(
    q: Float32[jax.Array, "rows heads tokens key_dim"],
    k: Float32[jax.Array, "rows heads tokens key_dim"],
    v: Float32[jax.Array, "rows heads tokens value_dim"],
    gates: Float32[jax.Array, "rows heads chunks 2 chunk"],
    places: Int32[jax.Array, "rows chunks 2 chunk"],
    keep: Int32[jax.Array, "rows chunks slots"],
    interpret: bool = False,
) -> Float32[jax.Array, "rows heads tokens value_dim"]:
    """Computes the recurrence of whole chunks, see `gated_delta.delta_rule`.

    Args:
      gates: logarithms of the decay, and beta.
      places: where branches end, counted from the chunk's beginning, and `TreeTables.entry`.
    """
    return _run(q, k, v, gates, places, keep, interpret)[0]


def _shapes_of(q: jax.Array, v: jax.Array, places: jax.Array, keep: jax.Array) -> _Shapes:
    rows, heads, _, key_dim = q.shape
    return _Shapes(rows, heads, places.shape[1], places.shape[3], key_dim, v.shape[3], keep.shape[2])


def _run(q: Any, k: Any, v: Any, gates: Any, places: Any, keep: Any, interpret: bool) -> Any:
    shapes = _shapes_of(q, v, places, keep)
    inputs = ["key", "key", "value", "gates", "places"]
    call = _call(_forward, shapes, inputs, ["value", "states"], False, interpret)
    return call(keep, q, k, v, gates, places)


def _run_forward(q: Any, k: Any, v: Any, gates: Any, places: Any, keep: Any, interpret: bool) -> Any:
    out, saved = _run(q, k, v, gates, places, keep, interpret)
    return out, (q, k, v, gates, places, keep, saved)


def _run_backward(interpret: bool, kept: Any, d_out: jax.Array) -> Any:
    q, k, v, gates, places, keep, saved = kept
    shapes = _shapes_of(q, v, places, keep)
    inputs = ["key", "key", "value", "gates", "places", "states", "value"]
    call = _call(_backward, shapes, inputs, ["key", "key", "value", "gates"], True, interpret)
    d_q, d_k, d_v, d_gates = call(keep, q, k, v, gates, places, saved, d_out)
    return d_q, d_k, d_v, d_gates, None, None


delta_kernel.defvjp(_run_forward, _run_backward)
