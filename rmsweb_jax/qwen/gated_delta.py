"""Gated DeltaNet over rows of trees (Yang et al. 2024): a recurrence whose state follows the tree.

For token t with the token p before it in its branch, and per value head:

    S_t = exp(g_t) S_p + k_t u_t^T,   u_t = beta_t (v_t - exp(g_t) S_p^T k_t),   o_t = S_t^T q_t

A branch begins with the state at its fork, a tree with a state of zero. Tokens are computed in chunks: within
one, what is a lower triangle for a plain sequence is the attention's rule of the tree here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float, Float32, Int32, Key

from rmsweb_jax.qwen.config import DeltaConfig
from rmsweb_jax.qwen.inputs import CHUNK, Array, TreeTables
from rmsweb_jax.qwen.layers import Linear, RMSNorm

# (queries, keys, values, logarithms of the decay, beta) of a layer's rows -> what is read, see `delta_rule`.
Recur = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def tree_convolution(
    x: Float[jax.Array, "rows tokens channels"],
    kernel: Float[jax.Array, "taps channels"],
    parent: Int32[Array, "rows tokens"],
) -> Float[jax.Array, "rows tokens channels"]:
    """Convolves each channel along the path to the tree's root, with zeros before it; the last tap is now."""
    parent = jnp.asarray(parent)
    out, at = x * kernel[-1], jnp.broadcast_to(jnp.arange(x.shape[1], dtype=jnp.int32), parent.shape)
    for tap in reversed(range(kernel.shape[0] - 1)):
        at = jnp.where(at >= 0, jnp.take_along_axis(parent, jnp.maximum(at, 0), axis=1), -1)
        before = jnp.take_along_axis(x, jnp.maximum(at, 0)[..., None], axis=1)
        out += jnp.where((at >= 0)[..., None], before, 0) * kernel[tap]
    return out


def chain_tables(rows: int, length: int) -> TreeTables:
    """Tables of rows that go on with a state, see `delta_rule`, and have no branches."""
    chunks = -(-length // CHUNK)
    while length % chunks:
        chunks += 1
    parent = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32) - 1, (rows, length))
    keep = jnp.full((rows, chunks, 1), -1, jnp.int32)
    return TreeTables(parent, jnp.zeros((rows, length), jnp.int32), keep)


def delta_rule(
    q: Float32[jax.Array, "rows tokens heads key_dim"],
    k: Float32[jax.Array, "rows tokens heads key_dim"],
    v: Float32[jax.Array, "rows tokens heads value_dim"],
    log_decay: Float32[jax.Array, "rows tokens heads"],
    beta: Float32[jax.Array, "rows tokens heads"],
    until: Int32[Array, "rows tokens"],
    tables: TreeTables,
    initial: Float32[jax.Array, "rows heads key_dim value_dim"] | None = None,
) -> tuple[
    Float32[jax.Array, "rows tokens heads value_dim"], Float32[jax.Array, "rows heads key_dim value_dim"]
]:
    """Computes the recurrence in chunks, one after another.

    Args:
      q, k: of unit length; the queries are scaled.
      log_decay: at most 0.
      initial: the state with which the first chunk begins; by default zero.

    Returns:
      Outputs, and the state after the last token of the last chunk.
    """
    tokens, width = q.shape[1], tables.entry.shape[1]
    chunks = tables.keep.shape[1]

    def padded(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, 0), (0, width - tokens), *[(0, 0)] * (x.ndim - 2)))

    def cut(x: jax.Array) -> jax.Array:
        """[chunks, rows, heads, chunk, ...] of [rows, tokens, heads, ...]."""
        x = padded(x)
        return jnp.moveaxis(x.reshape(x.shape[0], chunks, -1, *x.shape[2:]), (1, 3), (0, 2))

    chunk = width // chunks
    # Where branches end, counted from the beginning of the chunk; padding sees nothing and is not seen.
    ends = padded(jnp.asarray(until)).reshape(-1, chunks, chunk) - chunk * jnp.arange(chunks)[None, :, None]
    entry = jnp.asarray(tables.entry).reshape(-1, chunks, chunk)
    parts = (*map(cut, (q, k, v, log_decay, beta)), *(jnp.moveaxis(x, 1, 0) for x in (ends, entry)))
    keep = jnp.moveaxis(jnp.asarray(tables.keep), 1, 0)
    rows, heads, states = q.shape[0], q.shape[2], 1 + tables.keep.shape[2]
    begin = jnp.zeros((states, rows, heads, q.shape[3], v.shape[3]), jnp.float32)
    begin = begin if initial is None else begin.at[0].set(initial)
    end, out = jax.lax.scan(_chunk_step, begin, (*parts, keep))
    return jnp.moveaxis(out, (0, 2), (1, 3)).reshape(rows, width, heads, -1)[:, :tokens], end[0]


def _chunk_step(states: jax.Array, part: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """Computes a chunk of all rows and heads.

    Args:
      states: [states, rows, heads, key_dim, value_dim]; the first is that of the chunk before.
    """
    q, k, v, log_decay, beta, ends, entry, keep = part
    ein = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    index = jnp.arange(q.shape[2])
    # [rows, i, j]: token i sees token j of its chunk.
    sees = (index <= index[:, None]) & (index[:, None] < ends[:, None, :])
    # The logarithm of the decay from the beginning of the chunk, along the path.
    path = ein("rij,rhj->rhi", sees.astype(log_decay.dtype), log_decay)
    apart = jnp.where(sees[:, None], path[..., None] - path[..., None, :], -jnp.inf)
    decay = jnp.exp(apart)
    begun = jax.nn.one_hot(entry, states.shape[0], dtype=states.dtype)

    def from_state(x: jax.Array) -> jax.Array:
        """What x reads of the state with which its path enters the chunk."""
        return ein("ris,rhid,srhde->rhie", begun, x, states) * jnp.exp(path)[..., None]

    strict = jnp.where(index < index[:, None], ein("rhid,rhjd->rhij", k, k) * decay, 0.0)
    system = jnp.eye(q.shape[2]) + strict * beta[..., None]
    u = jax.scipy.linalg.solve_triangular(
        system, beta[..., None] * (v - from_state(k)), lower=True, unit_diagonal=True
    )
    out = from_state(q) + ein("rhij,rhje->rhie", ein("rhid,rhjd->rhij", q, k) * decay, u)
    # The states after the last token, and after those that are kept.
    last = jnp.full((*keep.shape[:1], 1), q.shape[2] - 1)
    kept = jnp.concatenate([last, keep], axis=1)
    place = jnp.maximum(kept, 0)

    def at(x: jax.Array) -> jax.Array:
        """[rows, heads, states, ...] of [rows, heads, chunk, ...]."""
        return jnp.take_along_axis(x, place.reshape(len(place), 1, -1, *[1] * (x.ndim - 3)), axis=2)

    before = ein("rfs,srhde->frhde", jnp.take_along_axis(begun, place[..., None], axis=1), states)
    new = before * jnp.moveaxis(jnp.exp(at(path)), 2, 0)[..., None, None]
    new += ein("rhfj,rhjd,rhje->frhde", at(decay), k, u)
    return jnp.where((kept >= 0).T[:, :, None, None, None], new, states), out


def unit(x: Float[jax.Array, "*lead size"]) -> Float32[jax.Array, "*lead size"]:
    """Scales vectors to length 1, in float32."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), -1, keepdims=True) + 1e-6)


def recurrent_heads(
    q: Float[jax.Array, "*lead key_heads key_dim"],
    k: Float[jax.Array, "*lead key_heads key_dim"],
    v: Float[jax.Array, "*lead value_heads value_dim"],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalizes queries and keys, repeats them for the values of a key head, and scales queries; float32."""
    repeats = v.shape[-2] // k.shape[-2]
    q, k = (jnp.repeat(one, repeats, axis=-2) for one in (unit(q) * q.shape[-1] ** -0.5, unit(k)))
    return q, k, v.astype(jnp.float32)


def decay_and_beta(
    a: Float[jax.Array, "*lead heads"],
    b: Float[jax.Array, "*lead heads"],
    a_log: Float32[jax.Array, " heads"],
    dt_bias: Float32[jax.Array, " heads"],
) -> tuple[Float32[jax.Array, "*lead heads"], Float32[jax.Array, "*lead heads"]]:
    """Computes the logarithm of the decay, and beta, of each value head."""
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return -jnp.exp(a_log) * jax.nn.softplus(a + dt_bias), jax.nn.sigmoid(b)


class Convolution(nnx.Module):
    """The taps of a convolution of each channel with the tokens before it.

    Attributes:
      kernel: [taps, channels]; the last tap is the token itself. Channels are those of queries, keys and
        values.
    """

    def __init__(self, config: DeltaConfig, *, rngs: nnx.Rngs, param_dtype: Any):
        taps = config.linear_conv_kernel_dim
        kernel = jax.random.normal(rngs.params(), (taps, config.channels), jnp.float32) * taps**-0.5
        self.kernel = nnx.Param(kernel.astype(param_dtype), axes=("taps", "delta_qkv"))


class GatedDeltaNet(nnx.Module):
    """The layer: projections, convolution, recurrence, and a norm that is gated.

    Attributes:
      A_log, dt_bias: [heads] of the decay, float32.
    """

    def __init__(
        self, hidden: int, config: DeltaConfig, *, eps: float, rngs: nnx.Rngs, dtype: Any, param_dtype: Any
    ):
        kw: dict[str, Any] = {"rngs": rngs, "dtype": dtype, "param_dtype": param_dtype}
        heads = config.linear_num_value_heads
        self.in_proj_qkv = Linear(hidden, config.channels, ("embed", "delta_qkv"), **kw)
        self.in_proj_z = Linear(hidden, config.value_dim, ("embed", "delta_value"), **kw)
        self.in_proj_b = Linear(hidden, heads, ("embed", "delta_heads"), **kw)
        self.in_proj_a = Linear(hidden, heads, ("embed", "delta_heads"), **kw)
        self.out_proj = Linear(config.value_dim, hidden, ("delta_value", "embed"), **kw)
        self.conv1d = Convolution(config, rngs=rngs, param_dtype=param_dtype)
        self.A_log = nnx.Param(jnp.log(jnp.linspace(1.0, 16.0, heads, dtype=jnp.float32)))
        self.dt_bias = nnx.Param(jnp.ones((heads,), jnp.float32))
        self.norm = RMSNorm(config.linear_value_head_dim, eps=eps, param_dtype=param_dtype)
        self.config = config

    def __call__(
        self,
        x: Float[jax.Array, "rows tokens hidden"],
        recur: Recur,
        parent: Int32[Array, "rows tokens"],
        adapters: bool,
        keys: list[Key[jax.Array, ""] | None],
    ) -> Float[jax.Array, "rows tokens hidden"]:
        qkv, z, b, a = (
            project(x, adapters=adapters, key=key)
            for project, key in zip(
                (self.in_proj_qkv, self.in_proj_z, self.in_proj_b, self.in_proj_a), keys, strict=False
            )
        )
        kernel = self.conv1d.kernel[...].astype(qkv.dtype)
        mixed = jax.nn.silu(tree_convolution(qkv, kernel, parent))
        config = self.config
        q, k, v = jnp.split(mixed, [config.key_dim, 2 * config.key_dim], axis=-1)
        q, k = (one.reshape(*one.shape[:-1], -1, config.linear_key_head_dim) for one in (q, k))
        v = v.reshape(*v.shape[:-1], -1, config.linear_value_head_dim)
        log_decay, beta = decay_and_beta(a, b, self.A_log[...], self.dt_bias[...])
        out = recur(*recurrent_heads(q, k, v), log_decay, beta)
        return self.output(out.astype(x.dtype), z, adapters, keys[-1])

    def output(self, out: jax.Array, z: jax.Array, adapters: bool, key: Any) -> jax.Array:
        """Normalizes each head, gates it, and projects."""
        gated = self.norm(out).astype(jnp.float32) * jax.nn.silu(z.reshape(out.shape).astype(jnp.float32))
        return self.out_proj(gated.astype(out.dtype).reshape(z.shape), adapters=adapters, key=key)
