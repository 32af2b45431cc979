"""Groups to rows: a prompt once, and its responses (and salvage target) as slots that do not see each other.

Same losses and gradients as one row a response, with P + K R tokens instead of K (P + R).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rmsweb_jax.data.batching import Example, group_by_length
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import (
    ModelInputs,
    image_rows,
    image_starts,
    mrope_positions,
    response_positions,
    vision_inputs,
)
from rmsweb_jax.rl.losses import TokenBatch, token_weights
from rmsweb_jax.rl.refill import MiniBatch
from rmsweb_jax.rl.rollout import Group
from rmsweb_jax.rl.shapes import RowShape, RowShapes


@dataclasses.dataclass(frozen=True)
class Slot:
    """One sequence after a prompt, and how its tokens enter the objective.

    Attributes:
      tokens: [T] int32.
      advantage: of the response.
      pg_weight, kl_weight, salvage_weight: [T] float32.
      group, sample: which response this is; sample -1 is the salvage target.
    """

    tokens: np.ndarray
    advantage: float
    pg_weight: np.ndarray
    kl_weight: np.ndarray
    salvage_weight: np.ndarray
    group: int
    sample: int


@dataclasses.dataclass(frozen=True)
class Row:
    """A prompt with some of its slots."""

    example: Example
    slots: tuple[Slot, ...]

    @property
    def lengths(self) -> tuple[int, list[int]]:
        """Of the prompt, and of every slot."""
        return self.example.prompt_length, [len(slot.tokens) for slot in self.slots]

    @property
    def length(self) -> int:
        prompt, slots = self.lengths
        return prompt + sum(slots)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a slot's tokens are in a micro-batch's [B, N] arrays."""

    row: int
    start: int
    stop: int
    group: int
    sample: int


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Rows for one call of the model.

    Attributes:
      inputs: [B, W].
      targets: [B, N]; old and reference log-probabilities are 0 until they are computed.
      places: of every slot.
    """

    inputs: ModelInputs
    targets: TokenBatch
    places: tuple[Place, ...]


def slots_of(batch: MiniBatch[Group], salvage: bool) -> list[list[Slot]]:
    """The slots of each group of an optimizer step, accepted groups first.

    The surrogate is a mean over accepted responses, the KL term over all responses, the anchor over
    salvaged groups (its K samples share one target, so one sequence stands for them).

    Args:
      salvage: False leaves the target slots out (anchor weight 0).
    """
    groups = (*batch.accepted, *batch.salvaged)
    num_accepted = sum(len(group.responses) for group in batch.accepted)
    num_responses = sum(len(group.responses) for group in groups)
    all_slots = []
    for number, group in enumerate(groups):
        accepted = number < len(batch.accepted)
        slots = []
        for sample, tokens in enumerate(group.responses):
            mask, none = np.ones(len(tokens), bool), np.zeros(len(tokens), np.float32)
            pg_weight = token_weights(mask, num_accepted) if accepted else none
            advantage = float(group.advantages[sample]) if accepted else 0.0
            kl_weight = token_weights(mask, num_responses)
            slots.append(Slot(tokens, advantage, pg_weight, kl_weight, none, number, sample))
        if salvage and not accepted:
            example = group.prompt.example
            tokens = example.tokens[example.prompt_length :]
            none = np.zeros(len(tokens), np.float32)
            anchor = token_weights(example.action_mask, len(batch.salvaged))
            slots.append(Slot(tokens, 0.0, none, none, anchor, number, -1))
        all_slots.append(slots)
    return all_slots


def make_rows(examples: Sequence[Example], slots: Sequence[Sequence[Slot]], shapes: RowShapes) -> list[Row]:
    """One row a group, more where no shape holds all of its slots."""
    rows = []
    for example, own in zip(examples, slots, strict=True):
        taken: list[Slot] = []
        for slot in own:
            if taken and shapes.choose(*Row(example, (*taken, slot)).lengths) is None:
                rows.append(Row(example, tuple(taken)))
                taken = []
            taken.append(slot)
        rows.append(Row(example, tuple(taken)))
    return rows


def micro_batches(
    batch: MiniBatch[Group], shapes: RowShapes, config: Qwen3VLConfig, *, salvage: bool
) -> list[MicroBatch]:
    """Everything one optimizer step needs, in micro-batches of `shapes`."""
    examples = [group.prompt.example for group in (*batch.accepted, *batch.salvaged)]
    by_shape: dict[RowShape, list[Row]] = {}
    for row in make_rows(examples, slots_of(batch, salvage), shapes):
        shape = shapes.choose(*row.lengths)
        assert shape is not None, "shapes hold every prompt with one response"
        by_shape.setdefault(shape, []).append(row)
    made = []
    for shape in shapes.shapes:
        members = by_shape.get(shape, [])
        for numbers in group_by_length([row.length for row in members], shapes.rows(shape)):
            made.append(collate_rows([members[number] for number in numbers], shape, shapes, config))
    return made


def collate_rows(
    rows: Sequence[Row], shape: RowShape, shapes: RowShapes, config: Qwen3VLConfig
) -> MicroBatch:
    """Lays rows out and pads them to [shapes.rows(shape), shape.width]; missing rows are empty."""
    count = shapes.rows(shape)
    inputs, places = _inputs(rows, count, shape, shapes, config), []
    arrays = {
        name: np.zeros((count, shape.scored), np.int32 if name in ("index", "tokens") else np.float32)
        for name in TokenBatch.__dataclass_fields__
    }
    for number, row in enumerate(rows):
        start = 0
        for slot, position in zip(row.slots, shape.starts(*row.lengths), strict=True):
            stop = start + len(slot.tokens)
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
            for name, value in values.items():
                arrays[name][number, start:stop] = value
            places.append(Place(number, start, stop, slot.group, slot.sample))
            start = stop
    return MicroBatch(inputs, TokenBatch(**arrays), tuple(places))


def _inputs(
    rows: Sequence[Row], count: int, shape: RowShape, shapes: RowShapes, config: Qwen3VLConfig
) -> ModelInputs:
    tokens = np.zeros((count, shape.width), np.int32)
    segment_ids, slot_ids = np.zeros_like(tokens), np.zeros_like(tokens)
    positions = np.zeros((3, count, shape.width), np.int32)
    image_index = np.full((count, shape.width), -1, np.int32)
    grids = [grid for row in rows for grid in row.example.grids]
    starts = iter(image_starts(grids, shapes.window))
    for number, row in enumerate(rows):
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
        patches = [image for row in rows for image in row.example.patches]
        vision = vision_inputs(patches, grids, config, count * shapes.images * shapes.window, shapes.window)
    return ModelInputs(tokens, positions, segment_ids, slot_ids, image_index, vision, shape.layout)
