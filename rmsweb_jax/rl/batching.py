"""Rows to arrays: a prompt once, and its responses (and salvage target) as slots that do not see each other.

Same losses and gradients as one row a response, with P + K R tokens instead of K (P + R).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rmsweb_jax.aot.flops import Work
from rmsweb_jax.data.batching import in_batch
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import (
    ModelInputs,
    image_rows,
    image_starts,
    mrope_positions,
    response_positions,
    vision_inputs,
)
from rmsweb_jax.rl.losses import TokenBatch
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.rollout import Group
from rmsweb_jax.rl.rows import Plan, Row, Slot, make_rows, plan_micro_batches, slots_of
from rmsweb_jax.rl.shapes import RowShape, RowShapes


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a slot's tokens are in a micro-batch's [B, N] arrays."""

    row: int
    start: int
    stop: int
    slot: Slot


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Rows for one call of the model: of B rows, the b that this process holds.

    Attributes:
      inputs: [b, W].
      targets: [b, N]; old log-probabilities are the sampler's in stale slots, those to compute are 0.
      stale: [b, N] bool, tokens of responses that an earlier policy drew.
      places: of every slot of the B rows.
      size: B W, the places for tokens.
      work: of all rows, padding left out.
    """

    inputs: ModelInputs
    targets: TokenBatch
    stale: np.ndarray
    places: tuple[Place, ...]
    size: int
    work: Work


def micro_batches(
    batch: MiniBatch[Group],
    shapes: RowShapes,
    config: Qwen3VLConfig,
    *,
    salvage: bool,
    version: int = 0,
    held: Callable[[int], Sequence[int]] = range,
) -> list[MicroBatch]:
    """Everything one optimizer step needs, in micro-batches of `shapes`.

    Args:
      salvage, version: see `slots_of`.
      held: the numbers, of so many rows, of those that this process holds (`rmsweb_jax.mesh.process_rows`).
    """
    examples = [group.prompt.example for group in (*batch.accepted, *batch.salvaged)]
    rows = make_rows(examples, slots_of(batch, salvage, version), shapes)
    return [
        collate_rows(plan, shapes, config, held(plan.count))
        for plan in plan_micro_batches(rows, shapes, config)
    ]


def collate_rows(plan: Plan, shapes: RowShapes, config: Qwen3VLConfig, held: Sequence[int]) -> MicroBatch:
    """Lays the held rows out and pads them; rows that the plan does not fill are empty."""
    shape = plan.shape
    mine = {place: plan.rows[number] for place, number in enumerate(held) if number < len(plan.rows)}
    arrays = {
        name: np.zeros((len(held), shape.scored), np.int32 if name in ("index", "tokens") else np.float32)
        for name in TokenBatch.__dataclass_fields__
    }
    stale = np.zeros((len(held), shape.scored), bool)
    for number, row in mine.items():
        for place, position in zip(_places(number, row), shape.starts(*row.lengths), strict=True):
            slot, part = place.slot, (number, slice(place.start, place.stop))
            # A slot's first token is predicted by the prompt's last one, whatever stands between them.
            index = np.arange(position - 1, position - 1 + len(slot.tokens))
            index[0] = row.example.prompt_length - 1
            values = {
                "index": index,
                "tokens": slot.tokens,
                "advantages": slot.advantage,
                "pg_weight": slot.pg_weight,
                "kl_weight": slot.kl_weight,
                "salvage_weight": slot.salvage_weight,
            }
            if slot.old_log_probs is not None:
                values["old_log_probs"], stale[part] = slot.old_log_probs, True
            for name, value in values.items():
                arrays[name][part] = value
    return MicroBatch(
        inputs=_inputs(mine, held, shape, shapes, config),
        targets=TokenBatch(**arrays),
        stale=stale,
        places=tuple(place for number, row in enumerate(plan.rows) for place in _places(number, row)),
        size=plan.count * shape.width,
        work=sum((row.work for row in plan.rows), start=Work(0, 0, 0)),
    )


def _places(number: int, row: Row) -> list[Place]:
    """Where the slots of row `number` are scored."""
    stops = np.cumsum(row.lengths[1]).tolist()
    return [
        Place(number, start, stop, slot)
        for start, stop, slot in zip([0, *stops], stops, row.slots, strict=False)
    ]


def _inputs(
    mine: Mapping[int, Row], held: Sequence[int], shape: RowShape, shapes: RowShapes, config: Qwen3VLConfig
) -> ModelInputs:
    tokens = np.zeros((len(held), shape.width), np.int32)
    segment_ids, slot_ids = np.zeros_like(tokens), np.zeros_like(tokens)
    positions = np.zeros((3, len(held), shape.width), np.int32)
    image_index = np.full((len(held), shape.width), -1, np.int32)
    grids = [grid for row in mine.values() for grid in row.example.grids]
    starts = iter(image_starts(grids, shapes.window))
    for number, row in mine.items():
        example, at = row.example, row.example.prompt_length
        prompt = example.tokens[:at]
        segment_ids[number, :at] = 1
        prompt_positions = mrope_positions(prompt, example.grids, config)
        tokens[number, :at], positions[:, number, :at] = prompt, prompt_positions
        own_starts = [next(starts) for _ in example.grids]
        image_index[number, :at] = image_rows(prompt, example.grids, own_starts, config)
        for slot_number, (slot, start) in enumerate(
            zip(row.slots, shape.starts(*row.lengths), strict=True), 1
        ):
            part = slice(start, start + len(slot.tokens))
            segment_ids[number, part], slot_ids[number, part] = 1, slot_number
            tokens[number, part] = slot.tokens
            positions[:, number, part] = response_positions(prompt_positions, len(slot.tokens))
    vision = None
    if shapes.images:
        patches = [image for row in mine.values() for image in row.example.patches]
        per_row = shapes.images * shapes.window
        vision = vision_inputs(patches, grids, config, len(held) * per_row, shapes.window)
        image_index = in_batch(image_index, held, per_row // config.vision.merge_unit)
    return ModelInputs(tokens, positions, segment_ids, slot_ids, image_index, vision, shape.layout)
