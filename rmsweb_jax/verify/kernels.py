"""The kernels of this platform against plain references in float32, forward and backward."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32

from rmsweb_jax.decoding.kernel import flash_decode
from rmsweb_jax.decoding.quantized import CacheArray, to_cache
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import BACKENDS, TPU_LANES
from rmsweb_jax.qwen3_vl.backends import choose_attention, make_attend
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.inputs import Array
from rmsweb_jax.verify.checks import Check, at_most

# Largest `deviation`, by the dtype of the inputs. In the Pallas interpreter kernels had up to 0.015 and 3e-6.
LIMITS = {"bfloat16": 0.03, "float32": 1e-4}
_HIGHEST = jax.lax.Precision.HIGHEST


def plain_attention(q: Any, k: Any, v: Any, until: Int32[Array, "rows tokens"]) -> jax.Array:
    """Attention from the words of its rule, with all scores at once: query q sees key k if k <= q < until[k].

    Args:
      q: [rows, tokens, heads, head_dim]; keys and values may have fewer heads.
    """
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    key = jnp.arange(q.shape[1])
    seen = (key <= key[:, None]) & (key[:, None] < until[:, None, :])
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision=_HIGHEST) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(seen[:, None], scores, -jnp.inf))  # Each token sees itself at least.
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, precision=_HIGHEST)


def plain_decode(
    q: Any, keys: CacheArray, values: CacheArray, seen: Bool[jax.Array, "rows positions"]
) -> tuple[jax.Array, jax.Array]:
    """Attention of some queries to the keys that a row sees, and the logarithm of its denominator."""
    k, v = (
        part.data.astype(jnp.float32) * (1.0 if part.scale is None else part.scale[..., None])
        for part in (keys, values)
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", q.astype(jnp.float32), k, precision=_HIGHEST)
    # Keys that are not seen are as good as infinitely unlikely; a row may see none.
    weights = jnp.where(seen[:, None, None], jnp.exp(scores), 0.0)
    total = weights.sum(-1)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, v, precision=_HIGHEST)
    return mixed / jnp.where(total > 0, total, 1.0)[..., None], jnp.log(total)


def deviation(found: Any, exact: Any, real: Bool[np.ndarray, "rows tokens"]) -> float:
    """Largest error of a vector [..., head_dim], over its length and the mean length of all.

    The mean keeps vectors that should be zero, such as gradients of a token that sees only itself, from
    counting as wholly wrong. Padding does not count.
    """
    mask = real[:, :, None]
    error, size = (jnp.linalg.norm(x.astype(jnp.float32), axis=-1) for x in (found - exact, exact))
    mean = jnp.sum(size * mask) / (mask.sum() * size.shape[2])
    worst = jnp.max(jnp.where(mask, error / (size + mean), 0.0))
    # A maximum with NaN in it is NaN, but not on every platform.
    return float(jnp.where(jnp.all(jnp.isfinite(jnp.where(mask, error, 0.0))), worst, jnp.nan))


# --- Rows ---


def packed_samples(length: int) -> Int32[np.ndarray, " tokens"]:
    """`until` of samples of unlike lengths behind one another, and padding."""
    rng, until, at = np.random.default_rng(length), np.arange(1, length + 1, dtype=np.int32), 0
    while (stop := at + int(rng.integers(length // 16, length // 4))) <= length:
        until[at:stop], at = stop, stop
    return until


def shared_prefix(length: int) -> Int32[np.ndarray, " tokens"]:
    """`until` of a prompt with eight responses, then of one with two, and padding."""
    until, at = np.arange(1, length + 1, dtype=np.int32), 0
    for prompt, responses in ((length // 2, 8), (length // 8, 2)):
        start, at = at, at + prompt
        for number in range(responses):
            stop = at + length // 32 - number
            until[at:stop], at = stop, stop
        until[start : start + prompt] = at
    return until


LAYOUTS = {"packed samples": packed_samples, "shared prefix": shared_prefix}


# --- Checks ---


def training_kernels(text: TextConfig, dtype: Any, lengths: tuple[int, int]) -> Iterator[Check]:
    """Checks every back end that computes these heads here, in rows that share prefixes or hold samples.

    Args:
      lengths: of rows with all heads, and of longer ones with two heads, whose scores fit the memory.
    """
    name = jnp.dtype(dtype).name
    group = text.num_attention_heads // text.num_key_value_heads
    shapes = [(layout, lengths[0], text.num_attention_heads, text.num_key_value_heads) for layout in LAYOUTS]
    shapes.append(("shared prefix", lengths[1], min(2, group), 1))
    for backend in BACKENDS:
        try:
            config = choose_attention(text.head_dim, dtype, backend=backend)
        except UserError:  # It does not compute such heads on this platform.
            continue
        if backend == "dense":  # A reference itself.
            continue
        for layout, length, heads, kv_heads in shapes:
            until = LAYOUTS[layout](length)[None]
            arrays = _arrays(length, heads, kv_heads, text.head_dim, dtype)
            # A token of padding sees itself alone, which a last token of a branch does as well.
            real = np.ones_like(until, bool)
            real[0, int(until[0][until[0] > np.arange(1, length + 1)].max()) :] = False
            arrays[3] = arrays[3] * real[..., None, None].astype(dtype)

            def compute(q: Any, k: Any, v: Any, until: Any = until, config: Any = config) -> Any:
                return make_attend(config, until)(q, k, v)

            exact = _with_gradients(functools.partial(plain_attention, until=until), *arrays)
            found = _with_gradients(compute, *arrays)
            errors = [deviation(*pair, real) for pair in zip(found, exact, strict=True)]
            where = f"attention {backend}, {layout}, {length} tokens, {heads} heads of {text.head_dim}"
            yield at_most(f"{where}: forward", errors[0], LIMITS[name], name)
            # The largest of three; `max` would hide NaN.
            yield at_most(f"{where}: backward", float(np.max(errors[1:])), LIMITS[name], name)


def _arrays(length: int, heads: int, kv_heads: int, size: int, dtype: Any) -> list[Any]:
    """Queries, keys, values and the gradient of the output."""
    rng = np.random.default_rng(heads)
    shapes = [(1, length, count, size) for count in (heads, kv_heads, kv_heads, heads)]
    return [jnp.asarray(rng.standard_normal(shape, np.float32), dtype) for shape in shapes]


def _with_gradients(compute: Any, q: Any, k: Any, v: Any, grad: Any) -> list[Any]:
    @jax.jit
    def run(q: Any, k: Any, v: Any, grad: Any) -> Any:
        out, pull = jax.vjp(compute, q, k, v)
        return out, *pull(grad.astype(out.dtype))

    return list(run(q, k, v, grad))


def decode_kernel(text: TextConfig, dtype: Any, *, compiled: bool) -> Iterator[Check]:
    """Checks the kernel that reads caches: spans of a ring, whole, wrapped and empty, of floats and of int8.

    Args:
      compiled: runs it on TPU; otherwise a small shape is interpreted.
    """
    heads, positions = (text.num_key_value_heads, 2048) if compiled else (2, 256)
    queries = text.num_attention_heads // text.num_key_value_heads
    # Start and count: all, the beginning, within, one, over the ring's end, all from the middle, none.
    half, part = positions // 2, positions // 8
    spans = [(0, positions), (0, half), (part, half), (5, 1), (positions - part, 2 * part), (half, positions)]
    start, count = jnp.asarray([*spans, (17, 0)], jnp.int32).T
    seen = (jnp.arange(positions) - start[:, None]) % positions < count[:, None]
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal((len(start), heads, *shape), np.float32), dtype)

    q = random(queries, TPU_LANES) * TPU_LANES**-0.5
    for cache in ("model", "int8"):
        keys, values = (to_cache(random(positions, TPU_LANES), cache) for _ in range(2))
        run = jax.jit(functools.partial(flash_decode, interpret=not compiled))
        mixed, log_total = run(q, keys, values, start, count)
        exact, exact_total = jax.jit(plain_decode)(q, keys, values, seen)
        # An empty span: zeros, and a logarithm of next to nothing.
        totals = jnp.where(
            count[:, None, None] > 0, log_total - exact_total, jnp.where(log_total < -1e29, 0, jnp.inf)
        )
        real = np.ones(mixed.shape[:2], bool)
        worst = float(np.max([deviation(mixed, exact, real), float(jnp.abs(totals).max())]))
        name = jnp.dtype(dtype).name
        note = f"{name} queries" + ("" if compiled else ", interpreted")
        where = f"decode kernel, {positions} positions, {heads} heads, cache {cache}"
        yield at_most(where, worst, LIMITS[name], note)
