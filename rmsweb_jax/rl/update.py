"""The optimizer steps of one iteration: log-probabilities first, for all of them, then the updates."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch, Targets, batch_axes
from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import shard_batch
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.rl.batching import MicroBatch, micro_batches
from rmsweb_jax.rl.metrics import ScoredResponse
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.rollout import Group
from rmsweb_jax.rl.shapes import RowShapes
from rmsweb_jax.rl.step import Steps
from rmsweb_jax.sft.step import TrainState


@dataclasses.dataclass(frozen=True)
class Updated:
    """What the optimizer steps of an iteration left.

    Attributes:
      state: after the last of them.
      responses: every retained response with its log-probabilities.
      metrics: means over the steps, and speed.
    """

    state: TrainState
    responses: tuple[ScoredResponse, ...]
    metrics: dict[str, float]


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
) -> Updated:
    """One optimizer step a mini-batch, all against the log-probabilities of the policy that sampled.

    Raises:
      UserError: loss or gradient is not a number.
    """
    start = time.monotonic()
    reference = steps.zero(state.params).gradients
    prepared, responses = [], []
    places = used = 0
    for batch in batches:
        micros = []
        for micro in micro_batches(batch, shapes, config, salvage=salvage):
            places += micro.inputs.tokens.size
            used += int(np.count_nonzero(micro.inputs.segment_ids))
            inputs, targets = on_mesh(micro, mesh)
            old = steps.log_probs(state.params, frozen, inputs, targets)
            ref = steps.log_probs(reference, frozen, inputs, targets)
            micros.append((inputs, targets.replace(old_log_probs=old, ref_log_probs=ref)))
            responses += _scored(batch, micro, np.asarray(old))
        prepared.append(micros)
    rows = []
    for micros in prepared:
        total = steps.zero(state.params)
        for inputs, targets in micros:
            total = steps.add(total, state.params, frozen, inputs, targets)
        state, metrics = steps.update(state, total)
        rows.append({name: float(value) for name, value in jax.device_get(metrics).items()})
        check_finite(rows[-1])
    metrics = {name: float(np.mean([row[name] for row in rows])) for name in (rows[0] if rows else {})}
    seconds = time.monotonic() - start
    metrics |= {
        "optimizer_steps": len(rows),
        "time/update": seconds,
        "tokens_per_second/update": used / seconds,
        "padding": 1 - used / places if places else 0.0,
    }
    return Updated(state, tuple(responses), metrics)


def check_finite(metrics: dict[str, float]) -> None:
    """Stops before a broken state is saved.

    Raises:
      UserError: loss or gradient is not a number.
    """
    if not (math.isfinite(metrics["loss"]) and math.isfinite(metrics["norm/gradient"])):
        raise UserError(
            "the RL loss is not a number; the last good checkpoint is kept in checkpoints/: lower "
            "config.learning_rate and train in another --workdir"
        )


def on_mesh(micro: MicroBatch, mesh: Mesh) -> tuple[ModelInputs, Any]:
    """Inputs and targets of a micro-batch on the devices.

    Every call of a program must get its arrays from here: others, with another layout, compile it anew.
    """
    axes = batch_axes(Batch(micro.inputs, Targets(0, 0, 0, 0)))  # pyright: ignore[reportArgumentType]
    return shard_batch(micro.inputs, mesh, axes.inputs), shard_batch(micro.targets, mesh)


def _scored(batch: MiniBatch[Group], micro: MicroBatch, old: np.ndarray) -> list[ScoredResponse]:
    groups = (*batch.accepted, *batch.salvaged)
    return [
        ScoredResponse(
            reward=float(groups[place.group].rewards[place.sample]),
            accepted=place.group < len(batch.accepted),
            old=old[place.row, place.start : place.stop],
            sampled=groups[place.group].log_probs[place.sample],
        )
        for place in micro.places
        if place.sample >= 0
    ]
