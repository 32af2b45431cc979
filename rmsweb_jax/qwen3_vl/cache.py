"""Prefill and single decoding steps, with one prefix cache for all samples of a prompt.

A prompt's keys and values are kept once, [G, Hkv, P, D] a layer; the K samples of the prompt keep only
their own, and attention over the two parts is merged by log-sum-exp.

On a mesh the weights stay where they lie, split over `fsdp` and `tensor`, and activations travel: a step
has so few rows that gathering the weights, as training does, would move a hundred times more. Caches
are split by prompt over `data` and `fsdp`, and by head over `tensor`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.mesh import BATCH, ROWS, constrain, constrain_tree
from rmsweb_jax.qwen3_vl.config import TextConfig
from rmsweb_jax.qwen3_vl.fused import DecodeWeights
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.layers import rms_norm, rotate
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.text import mrope_cos_sin

_MASKED = -1e30


class PrefixCache(NamedTuple):
    """The prompts of a batch.

    Attributes:
      keys, values: a layer each, [G, Hkv, P, D].
      mask: [G, P] bool, False at padding on either side.
      next_position: [G] int32, rotary position of the first response token.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    mask: jax.Array
    next_position: jax.Array


_BY_HEAD, _BY_ROW = cast(Any, P(ROWS, "tensor")), cast(Any, BATCH)
# Of what `prefill` returns.
PREFILLED_SPECS = (_BY_ROW, PrefixCache(_BY_HEAD, _BY_HEAD, _BY_ROW, _BY_ROW))


class SuffixCache(NamedTuple):
    """The responses so far: keys a layer each [G, K, Hkv, D, R], values [G, K, Hkv, R, D].

    Both have the axis that the step's elementwise products run over last, which CPU vector units need.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]


def prefill(
    model: Qwen3VL, prompts: ModelInputs, *, adapters: bool = True, mesh: Mesh | None = None
) -> tuple[jax.Array, PrefixCache]:
    """Runs prompts [G, P], one segment a row, padded on either side.

    Returns:
      Hidden states of the last prompt tokens, [G, hidden], and the cache.
    """
    hidden, kv = model.forward(prompts, adapters=adapters, return_kv=True)
    assert kv is not None
    mask = jnp.asarray(prompts.segment_ids) > 0
    length = mask.shape[1]
    last = jnp.max(jnp.where(mask, jnp.arange(length), 0), axis=1)
    last_hidden = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    top = jnp.max(jnp.where(mask, jnp.asarray(prompts.positions), -1), axis=(0, 2))
    keys, values = (tuple(part.transpose(0, 2, 1, 3) for part in side) for side in kv)
    prefix = PrefixCache(keys, values, mask, top + 1)
    return constrain_tree((last_hidden, prefix), PREFILLED_SPECS, mesh)


def empty_suffix(prefix: PrefixCache, num_samples: int, length: int, mesh: Mesh | None = None) -> SuffixCache:
    groups, heads, _, size = prefix.keys[0].shape

    def empty(*shape: int) -> tuple[jax.Array, ...]:
        zeros = jnp.zeros((groups, num_samples, heads, *shape), prefix.keys[0].dtype)
        return tuple(constrain(zeros, mesh, ROWS, None, "tensor", None, None) for _ in prefix.keys)

    return SuffixCache(keys=empty(size, length), values=empty(length, size))


class _Part(NamedTuple):
    """Softmax attention over some of the keys, before normalisation."""

    top: jax.Array  # [...] largest score
    total: jax.Array  # [...] sum of exp(score - top)
    mixed: jax.Array  # [..., D] sum of exp(score - top) * value


def _merge(a: _Part, b: _Part) -> jax.Array:
    top = jnp.maximum(a.top, b.top)
    scale_a, scale_b = jnp.exp(a.top - top), jnp.exp(b.top - top)
    total = a.total * scale_a + b.total * scale_b
    return (a.mixed * scale_a[..., None] + b.mixed * scale_b[..., None]) / total[..., None]


def _attend_prefix(q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys and values [G, Hkv, P, D], mask [G, P]."""
    groups, samples, heads, query, size = q.shape
    rows = q.transpose(0, 2, 1, 3, 4).reshape(groups, heads, samples * query, size)
    scores = jnp.einsum("ghqd,ghpd->ghqp", rows, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    mixed = jnp.einsum(
        "ghqp,ghpd->ghqd", weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )

    def back(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(groups, heads, samples, query, *x.shape[3:]), 2, 1)

    return _Part(back(top), back(weights.sum(-1)), back(mixed))


def _attend_suffix(q: jax.Array, keys: jax.Array, values: jax.Array, step: jax.Array) -> _Part:
    """q [G, K, Hkv, Q, D], keys [G, K, Hkv, D, R], values [G, K, Hkv, R, D]; positions up to `step`."""
    scores = (q[..., None] * keys[:, :, :, None]).astype(jnp.float32).sum(-2)
    scores = jnp.where(jnp.arange(keys.shape[-1]) <= step, scores, _MASKED)
    top = scores.max(-1)
    weights = jnp.exp(scores - top[..., None])
    mixed = (weights[..., None] * values[:, :, :, None].astype(jnp.float32)).sum(-2)
    return _Part(top, weights.sum(-1), mixed)


def decode_step(
    weights: DecodeWeights,
    config: TextConfig,
    tokens: jax.Array,
    step: jax.Array,
    prefix: PrefixCache,
    suffix: SuffixCache,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, SuffixCache]:
    """Feeds response token number `step` (from 0) of every sample: tokens [G, K].

    Returns:
      Hidden states after the final norm, [G, K, hidden], and the cache with the token's keys and values.
    """
    groups, samples = tokens.shape
    rows, heads, size = groups * samples, config.num_key_value_heads, config.head_dim
    positions = jnp.broadcast_to((prefix.next_position + step)[:, None], (3, groups, samples))
    cos, sin = mrope_cos_sin(positions, config)
    all_keys, all_values = [], []

    def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
        return constrain(rms_norm(x, scale, config.rms_norm_eps).reshape(rows, -1), mesh, "data", "fsdp")

    def added(x: jax.Array, change: jax.Array) -> jax.Array:
        return constrain(x + change.reshape(x.shape), mesh, "data", None, "fsdp")

    x = constrain(weights.embedding[tokens], mesh, "data", None, "fsdp")
    for index, layer in enumerate(weights.layers):
        qkv = normed(x, layer.input_norm) @ layer.qkv.reshape(x.shape[-1], -1)
        qkv = constrain(qkv.reshape(groups, samples, heads, -1), mesh, ROWS, None, "tensor", None)
        q, k, v = jnp.split(qkv, [qkv.shape[-1] - 2 * size, qkv.shape[-1] - size], axis=-1)
        q = rms_norm(q.reshape(groups, samples, heads, -1, size), layer.q_norm, config.rms_norm_eps)
        # The queries of a group are one more axis of heads.
        q = rotate(q, cos[:, :, None], sin[:, :, None]) * size**-0.5
        k = rotate(rms_norm(k, layer.k_norm, config.rms_norm_eps), cos, sin)
        keys = jax.lax.dynamic_update_slice_in_dim(suffix.keys[index], k[..., None], step, axis=4)
        values = jax.lax.dynamic_update_slice_in_dim(suffix.values[index], v[..., None, :], step, axis=3)
        mixed = _merge(
            _attend_prefix(q, prefix.keys[index], prefix.values[index], prefix.mask),
            _attend_suffix(q, keys, values, step),
        )
        mixed = constrain(mixed.astype(x.dtype).reshape(rows, -1), mesh, "data", "tensor")
        x = added(x, mixed @ layer.out)
        gate_up = normed(x, layer.post_norm) @ layer.gate_up.reshape(x.shape[-1], -1)
        gate_up = constrain(
            gate_up.reshape(rows, *layer.gate_up.shape[1:]), mesh, "data", "tensor", None, None
        )
        gated = (jax.nn.silu(gate_up[:, :, 0]) * gate_up[:, :, 1]).reshape(rows, -1)
        x = added(x, gated @ layer.down)
        all_keys.append(keys)
        all_values.append(values)
    return rms_norm(x, weights.norm, config.rms_norm_eps), SuffixCache(tuple(all_keys), tuple(all_values))
