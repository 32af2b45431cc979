"""Lays groups out in rows: a prompt once, then its responses and salvage target as separate slots.

Slots attend to the prompt and to themselves only. Losses and gradients equal those of one row per response,
with P + K R tokens instead of K (P + R) for K responses of R tokens to a prompt of P tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.data.batching import Example, choose_widths, in_batch, round_up
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work, causal_pairs, decoder_flops, head_flops, slot_pairs
from rmsweb_jax.qwen3_vl.inputs import (
    ModelInputs,
    RowLayout,
    image_rows,
    image_starts,
    mrope_positions,
    response_positions,
    vision_inputs,
)
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.losses import TokenBatch, token_weights
from rmsweb_jax.rl.rollout import Group


@dataclasses.dataclass(frozen=True)
class SlotSpan:
    """Location of a slot's tokens in a micro-batch's [B, N] arrays."""

    row: int
    start: int
    stop: int
    slot: Slot


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Rows for one call of the model: the b rows, of B, that this process holds.

    Attributes:
      inputs: the b rows.
      targets: scored tokens of the b rows; old log-probabilities are the sampler's in stale slots, and 0
        where they must still be computed.
      stale: True at tokens of responses from an earlier policy.
      places: spans of all slots of the B rows.
      size: tokens of the B rows, padding included.
      work: useful work of the B rows, without padding.
    """

    inputs: ModelInputs
    targets: TokenBatch
    stale: Bool[np.ndarray, "rows scored"]
    places: tuple[SlotSpan, ...]
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
    """Makes the micro-batches of one optimizer step.

    Args:
      salvage, version: see `slots_of`.
      held: number of rows -> the indices of those that this process holds
        (`rmsweb_jax.training.mesh.process_rows`).
    """
    examples = [group.prompt.example for group in (*batch.accepted, *batch.salvaged)]
    rows = make_rows(examples, slots_of(batch, salvage, version), shapes)
    return [
        collate_rows(plan, shapes, config, held(plan.count))
        for plan in plan_micro_batches(rows, shapes, config)
    ]


def collate_rows(plan: Plan, shapes: RowShapes, config: Qwen3VLConfig, held: Sequence[int]) -> MicroBatch:
    """Lays out the held rows and pads them; rows that the plan does not fill are empty."""
    shape = plan.shape
    # Row numbers of the whole micro-batch -> places among the rows of this process.
    mine = {place: plan.rows[number] for place, number in enumerate(held) if number < len(plan.rows)}
    arrays = {
        name: np.zeros((len(held), shape.scored), np.int32 if name in ("index", "tokens") else np.float32)
        for name in TokenBatch.__dataclass_fields__
    }
    stale = np.zeros((len(held), shape.scored), bool)
    # Scored tokens lie without gaps in the [B, N] arrays, wherever the layout has put them in the row.
    for number, row in mine.items():
        for place, position in zip(_places(number, row), shape.starts(*row.lengths), strict=True):
            slot, part = place.slot, (number, slice(place.start, place.stop))
            # The prompt's last state predicts the first token of every slot. The place before the slot holds
            # padding, or the last token of another response.
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


def _places(number: int, row: Row) -> list[SlotSpan]:
    """Returns the spans in which the slots of row `number` are scored, without gaps."""
    stops = np.cumsum(row.lengths[1]).tolist()
    return [
        SlotSpan(number, start, stop, slot)
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
            # Rotary positions restart after the prompt in every slot, as when the response was sampled.
            positions[:, number, part] = response_positions(prompt_positions, len(slot.tokens))
    vision = None
    if shapes.images:
        patches = [image for row in mine.values() for image in row.example.patches]
        per_row = shapes.images * shapes.window
        vision = vision_inputs(patches, grids, config, len(held) * per_row, shapes.window)
        image_index = in_batch(image_index, held, per_row // config.vision.merge_unit)
    return ModelInputs(tokens, positions, segment_ids, slot_ids, image_index, vision, shape.layout)


@dataclasses.dataclass(frozen=True)
class Slot:
    """One sequence after a prompt, and how its tokens enter the objective.

    Attributes:
      tokens: the response, or the target.
      advantage: advantage of the response.
      pg_weight, kl_weight, salvage_weight: see `token_weights`.
      group, sample: which response this is; sample -1 is the salvage target.
      old_log_probs: the sampler's, for a response from an earlier policy; otherwise None.
    """

    tokens: Int32[np.ndarray, " tokens"]
    advantage: float
    pg_weight: Float32[np.ndarray, " tokens"]
    kl_weight: Float32[np.ndarray, " tokens"]
    salvage_weight: Float32[np.ndarray, " tokens"]
    group: int
    sample: int
    old_log_probs: Float32[np.ndarray, " tokens"] | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """A prompt with some of its slots."""

    example: Example
    slots: tuple[Slot, ...]

    @property
    def lengths(self) -> tuple[int, list[int]]:
        """Tokens of the prompt, and of every slot."""
        return self.example.prompt_length, [len(slot.tokens) for slot in self.slots]

    @property
    def length(self) -> int:
        prompt, slots = self.lengths
        return prompt + sum(slots)

    @property
    def work(self) -> Work:
        """Useful work of its tokens and images, without padding."""
        prompt, slots = self.lengths
        patches = [int(np.prod(grid)) for grid in self.example.grids]
        return Work(
            tokens=prompt + sum(slots),
            pairs=causal_pairs(prompt) + sum(slot * prompt + causal_pairs(slot) for slot in slots),
            scored=sum(slots),
            patches=sum(patches),
            patch_pairs=sum(count**2 for count in patches),
        )


@dataclasses.dataclass(frozen=True)
class Plan:
    """One micro-batch before its layout.

    Attributes:
      shape: shape of its rows.
      count: number of rows over all processes.
      rows: at most `count`; the other rows are empty.
    """

    shape: RowShape
    count: int
    rows: tuple[Row, ...]


def slots_of(batch: MiniBatch[Group], salvage: bool, version: int = 0) -> list[list[Slot]]:
    """Makes the slots of each group of an optimizer step, accepted groups first.

    The surrogate is a mean over accepted responses, the KL term over all responses, the anchor over
    salvaged groups (their K samples share one target, so one sequence represents them).

    Args:
      salvage: False leaves out the target slots (anchor weight 0).
      version: version of the policy to update; responses from earlier versions keep the sampler's
        log-probabilities.
    """
    groups = (*batch.accepted, *batch.salvaged)
    # Two denominators. verl's actor masks both terms alike: with rejected rows in the mask they dilute the
    # surrogate, without them they have no KL term (docs/results/verl.md).
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
            # The policy that sampled a stale response is gone: its log-probabilities cannot be recomputed.
            old = group.log_probs[sample] if group.version < version else None
            slots.append(Slot(tokens, advantage, pg_weight, kl_weight, none, number, sample, old))
        if salvage and not accepted:
            example = group.prompt.example
            tokens = example.tokens[example.prompt_length :]
            none = np.zeros(len(tokens), np.float32)
            anchor = token_weights(example.action_mask, len(batch.salvaged))
            slots.append(Slot(tokens, 0.0, none, none, anchor, number, -1))
        all_slots.append(slots)
    return all_slots


def make_rows(examples: Sequence[Example], slots: Sequence[Sequence[Slot]], shapes: RowShapes) -> list[Row]:
    """Makes one row per group, or several where no shape holds all of its slots."""
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


def plan_micro_batches(rows: Sequence[Row], shapes: RowShapes, config: Qwen3VLConfig) -> list[Plan]:
    """Distributes rows over micro-batches of the compiled shapes at the least cost (dynamic programming).

    The cost of a position is linear, that of attention quadratic in a row's width; empty rows cost as much
    as full ones. Rows are taken longest first and those of a micro-batch have one width, so that its devices
    do equal work. Every process makes the same plan, because it depends on lengths only.
    """
    ranks = {shape: number for number, shape in enumerate(shapes.shapes)}

    def size(row: Row) -> tuple[int, int]:
        shape = shapes.choose(*row.lengths)
        assert shape is not None, "shapes hold every prompt with one response"
        return ranks[shape], row.length

    # By shape, then by length: each micro-batch is a run of neighbours in this order.
    order = sorted(rows, key=size, reverse=True)
    costs = {shape: _row_flops(shape, config) for shape in shapes.shapes}
    # best[i]: cost, number and list of the micro-batches for the last i rows. Of equal costs the plan with
    # fewer micro-batches is taken, because each call has an overhead that the FLOPs do not show.
    best: list[tuple[int, int, list[Plan]]] = [(0, 0, [])]
    for start in reversed(range(len(order))):
        options = []
        for shape in shapes.shapes:
            for count in shapes.row_counts(shape):
                stop = start
                while stop < min(start + count, len(order)) and shape.holds(*order[stop].lengths):
                    stop += 1
                if stop > start:
                    cost, number, plans = best[len(order) - stop]
                    plan = Plan(shape, count, tuple(order[start:stop]))
                    options.append((cost + count * costs[shape], number + 1, [plan, *plans]))
        best.append(min(options, key=lambda option: option[:2]))
    return best[-1][2]


def _row_flops(shape: RowShape, config: Qwen3VLConfig) -> int:
    """Counts the operations of the decoder's forward pass of one row, padding included."""
    # Without a layout, attention is the reference's, which computes every pair.
    pairs = shape.width**2
    if shape.layout is not None:
        pairs = slot_pairs(shape.layout, (shape.width - shape.layout.prompt) // shape.layout.slot)
    return decoder_flops(config, shape.width, pairs) + head_flops(config, shape.scored)


@dataclasses.dataclass(frozen=True)
class RowShape:
    """Shape of a row that holds a prompt and its slots.

    Attributes:
      width: tokens of the row.
      scored: N, the number of its tokens that can be scored.
      layout: fixed positions of prompt and slots; None places slots without gaps.
    """

    width: int
    scored: int
    layout: RowLayout | None = None

    def holds(self, prompt: int, slots: Sequence[int]) -> bool:
        """True if a prompt and slots of these lengths fit."""
        if self.layout is None:
            return prompt + sum(slots) <= self.width and sum(slots) <= self.scored
        places = (self.width - self.layout.prompt) // self.layout.slot
        fit = prompt <= self.layout.prompt and max(slots, default=0) <= self.layout.slot
        return fit and len(slots) <= places

    def starts(self, prompt: int, slots: Sequence[int]) -> list[int]:
        """Returns the position of the first token of each slot."""
        if self.layout is not None:
            return [self.layout.prompt + number * self.layout.slot for number in range(len(slots))]
        return [prompt + sum(slots[:number]) for number in range(len(slots))]


@dataclasses.dataclass(frozen=True)
class RowShapes:
    """All row shapes of a run.

    Attributes:
      shapes: ascending in width.
      micro_batch_tokens: largest number of tokens per device (at least one row).
      devices: rows of a micro-batch are a multiple of this.
      images, window: images that a row can hold, and patches of the largest image.
    """

    shapes: tuple[RowShape, ...]
    micro_batch_tokens: int
    devices: int
    images: int
    window: int

    def row_counts(self, shape: RowShape) -> tuple[int, ...]:
        """Returns the possible numbers of rows of a micro-batch, ascending: a third of what fits, and all.

        The smaller one is for the last rows of a step.
        """
        # Each number compiles a program of its own, so that there are only two.
        full = max(1, self.micro_batch_tokens // shape.width)
        return tuple(count * self.devices for count in sorted({max(1, round(full / 3)), full}))

    def choose(self, prompt: int, slots: Sequence[int]) -> RowShape | None:
        """Returns the narrowest shape that holds these lengths, or None."""
        return next((shape for shape in self.shapes if shape.holds(prompt, slots)), None)


def choose_row_shapes(
    measures: Sequence[SampleSize],
    *,
    num_samples: int,
    max_response_tokens: int,
    micro_batch_tokens: int,
    devices: int,
    multiple: int,
    count: int,
    fixed_slots: bool = False,
) -> RowShapes:
    """Chooses shapes that fit groups whose responses are about as long as their targets.

    A longer group is split over several rows, so that no shape is needed for the rare worst case.

    Args:
      multiple, count: at most `count` widths (of prompts, with fixed slots), multiples of `multiple`.
      fixed_slots: True gives slots fixed positions, as fused attention needs; their sizes are `multiple`,
        twice that, and so on.

    Raises:
      UserError: a prompt and one response do not fit a micro-batch.
    """
    prompts = [measure.length - measure.num_targets for measure in measures]
    targets = [measure.num_targets for measure in measures]
    if fixed_slots:
        # Rows of a fused kernel are whole blocks, so that a prompt may be padded past the given limit.
        shapes, longest = _fixed(
            choose_widths(prompts, multiple, count),
            max(max_response_tokens, *targets),
            # The samples and the salvage target.
            num_samples + 1,
            micro_batch_tokens,
            multiple,
        )
    else:
        shapes, longest = _tight(
            prompts, targets, num_samples + 1, max_response_tokens, micro_batch_tokens, multiple, count
        )
    if longest > micro_batch_tokens:
        raise UserError(
            f"a prompt and one response take up to {longest} tokens, config.micro_batch_tokens is "
            f"{micro_batch_tokens}: raise it, or lower config.max_prompt_tokens"
        )
    return RowShapes(
        shapes=tuple(sorted(shapes, key=lambda shape: shape.width)),
        micro_batch_tokens=micro_batch_tokens,
        devices=devices,
        images=max(measure.images for measure in measures),
        window=max(measure.window for measure in measures),
    )


def _tight(
    prompts: Sequence[int],
    targets: Sequence[int],
    num_slots: int,
    max_response_tokens: int,
    budget: int,
    multiple: int,
    count: int,
) -> tuple[list[RowShape], int]:
    """Chooses widths that pad the expected rows least; the widest holds any single response.

    Returns:
      The shapes, and the length of the longest row with one response.
    """
    response = [max(max_response_tokens, target) for target in targets]
    longest = max(map(sum, zip(prompts, response, strict=True)))
    slots = [num_slots * target for target in targets]
    rows = [min(prompt + own, budget) for prompt, own in zip(prompts, slots, strict=True)]
    widths = [min(width, budget) for width in choose_widths([*rows, longest], multiple, count)]
    shapes, scored = [], 0
    for low, width in itertools.pairwise([0, *widths]):
        expected = [own for row, own in zip(rows, slots, strict=True) if low < row <= width]
        if width == widths[-1]:
            expected += response
        # The vocabulary head is computed at every scored position, padding too, so a shape has no more of
        # them than its rows need. Ascending with the width, so that a shape holds all that narrower ones do.
        scored = min(max(scored, round_up(max(expected, default=1), multiple)), width)
        shapes.append(RowShape(width, scored))
    return shapes, longest


def _fixed(
    prompts: Sequence[int], longest_slot: int, num_slots: int, budget: int, multiple: int
) -> tuple[list[RowShape], int]:
    """Combines every prompt width with every slot size, with as many slots as fit.

    Returns:
      The shapes, and the length of the longest row with one slot.
    """
    # Sizes double, so that the number of programs grows with the logarithm of the longest response only.
    sizes = [multiple]
    while sizes[-1] < longest_slot:
        sizes.append(min(2 * sizes[-1], round_up(longest_slot, multiple)))
    shapes = []
    for prompt in prompts:
        for slot in sizes:
            places = min(num_slots, (budget - prompt) // slot)
            if places > 0:
                shapes.append(RowShape(prompt + places * slot, places * slot, RowLayout(prompt, slot)))
    return shapes, max(prompts) + sizes[-1]
