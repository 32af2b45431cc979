"""The optimizer steps of one iteration: log-probabilities first, for all of them, then the updates."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from rmsweb_jax.aot.flops import Work, forward_flops, training_flops
from rmsweb_jax.data.batching import Batch, Targets, batch_axes
from rmsweb_jax.mesh import process_rows, shard_batch
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.rl.batching import MicroBatch, Place, micro_batches
from rmsweb_jax.rl.losses import TokenBatch
from rmsweb_jax.rl.metrics import ScoredResponse
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.rollout import Group
from rmsweb_jax.rl.shapes import RowShapes
from rmsweb_jax.rl.step import Steps
from rmsweb_jax.sft.step import TrainState
from rmsweb_jax.throughput import mfu


@dataclasses.dataclass(frozen=True)
class Updated:
    """What the optimizer steps of an iteration left.

    Attributes:
      state: after the last of them.
      responses: every retained response with its log-probabilities, on every process.
      metrics: means over the steps that were not skipped, how many of either there were, and speed.
      skipped: a step each, in order: loss or gradient was not finite, so it left the state alone.
    """

    state: TrainState
    responses: tuple[ScoredResponse, ...]
    metrics: dict[str, float]
    skipped: tuple[bool, ...]


class Prepared(NamedTuple):
    """A micro-batch on the devices.

    Attributes:
      targets: with old and reference log-probabilities.
      recomputed: [B, N] log-probabilities under the policy before the update, of stale tokens too.
      places, size, work: see `MicroBatch`.
    """

    inputs: ModelInputs
    targets: TokenBatch
    recomputed: jax.Array
    places: tuple[Place, ...]
    size: int
    work: Work


def update_policy(
    steps: Steps,
    state: TrainState,
    frozen: Any,
    batches: Sequence[MiniBatch[Group]],
    shapes: RowShapes,
    config: Qwen3VLConfig,
    mesh: Mesh,
    *,
    salvage: bool,
    version: int,
) -> Updated:
    """One optimizer step a mini-batch, all against the log-probabilities of the policy that sampled.

    These are recomputed by the program that takes gradients, so that the ratio to them is exactly 1 before
    the first step; of groups that an earlier policy drew there are only the sampler's own. Every process
    must call this with the same arguments.

    Args:
      salvage: whether the anchor is computed.
      version: of the policy in `state`.
    """
    start = time.monotonic()
    reference = steps.zero(state.params).gradients
    prepared = [
        [
            _prepare(steps, state.params, reference, frozen, micro, mesh)
            for micro in micro_batches(
                batch,
                shapes,
                config,
                salvage=salvage,
                version=version,
                held=functools.partial(process_rows, mesh),
            )
        ]
        for batch in batches
    ]
    measured = []
    for micros in prepared:
        total = steps.zero(state.params)
        for micro in micros:
            total = steps.add(total, state.params, frozen, micro.inputs, micro.targets)
        state, metrics = steps.update(state, total)
        measured.append(metrics)
    rows = [{name: float(value) for name, value in row.items()} for row in jax.device_get(measured)]
    skipped = tuple(bool(row.pop("skipped")) for row in rows)
    good = [row for row, bad in zip(rows, skipped, strict=True) if not bad]
    metrics = {name: float(np.mean([row[name] for row in good])) for name in (good[0] if good else {})}
    metrics |= {"optimizer_steps": len(good), "skipped_steps": sum(skipped)}
    micros = [micro for own in prepared for micro in own]
    responses = _scored(batches, prepared)
    metrics |= _speed(micros, config, state.params, time.monotonic() - start, mesh)
    return Updated(state, responses, metrics, skipped)


def on_mesh(micro: MicroBatch, mesh: Mesh) -> tuple[ModelInputs, TokenBatch]:
    """Inputs and targets of a micro-batch on the devices.

    Every call of a program must get its arrays from here: others, with another layout, compile it anew.
    """
    axes = batch_axes(Batch(micro.inputs, Targets(0, 0, 0, 0)))  # pyright: ignore[reportArgumentType]
    return shard_batch(micro.inputs, mesh, axes.inputs), shard_batch(micro.targets, mesh)


def _prepare(
    steps: Steps, params: Any, reference: Any, frozen: Any, micro: MicroBatch, mesh: Mesh
) -> Prepared:
    """A micro-batch with its log-probabilities under the policies that it is compared with."""
    inputs, targets = on_mesh(micro, mesh)
    recomputed = steps.log_probs(params, frozen, inputs, targets)
    old = steps.choose(shard_batch(micro.stale, mesh), targets.old_log_probs, recomputed)
    ref = steps.log_probs(reference, frozen, inputs, targets)
    targets = dataclasses.replace(targets, old_log_probs=old, ref_log_probs=ref)
    return Prepared(inputs, targets, recomputed, micro.places, micro.size, micro.work)


def _scored(
    batches: Sequence[MiniBatch[Group]], prepared: Sequence[Sequence[Prepared]]
) -> tuple[ScoredResponse, ...]:
    """All responses, in the order of the rows that they were in."""
    recomputed = [[micro.recomputed for micro in micros] for micros in prepared]
    if jax.process_count() > 1:
        recomputed = multihost_utils.process_allgather(recomputed, tiled=True)
    else:
        recomputed = jax.device_get(recomputed)
    scored = []
    for batch, micros, arrays in zip(batches, prepared, recomputed, strict=True):
        groups = (*batch.accepted, *batch.salvaged)
        for micro, array in zip(micros, arrays, strict=True):
            for place in micro.places:
                slot = place.slot
                if slot.sample >= 0:
                    group = groups[slot.group]
                    scored.append(
                        ScoredResponse(
                            reward=float(group.rewards[slot.sample]),
                            accepted=slot.group < len(batch.accepted),
                            old=array[place.row, place.start : place.stop],
                            sampled=group.log_probs[slot.sample],
                            stale=slot.old_log_probs is not None,
                        )
                    )
    return tuple(scored)


def _speed(
    micros: Sequence[Prepared], config: Qwen3VLConfig, adapters: Any, seconds: float, mesh: Mesh
) -> dict[str, float]:
    """Rates of an iteration's update over the tokens of all processes, and how much of it was padding.

    Useful operations are those of a gradient and of two more forward passes, old and reference policy.
    """
    work = sum((micro.work for micro in micros), start=Work(0, 0, 0))
    places = sum(micro.size for micro in micros)
    metrics = {
        "time/update": seconds,
        "tokens_per_second/update": work.tokens / seconds,
        "padding": 1 - work.tokens / places if places else 0.0,
    }
    count = sum(leaf.size for leaf in jax.tree.leaves(adapters))
    # What remat computes again is not useful.
    flops = training_flops(config, work, count, "none").useful + 2 * forward_flops(config, work)
    share = mfu(flops, seconds, mesh.devices.flat)
    return metrics if share is None else metrics | {"mfu/update": share}
