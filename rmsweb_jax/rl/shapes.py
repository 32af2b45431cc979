"""The few row shapes of the update, each compiled once for either of two row counts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from rmsweb_jax.data.batching import choose_widths, round_up
from rmsweb_jax.data.encoding import Measure
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.inputs import RowLayout


@dataclasses.dataclass(frozen=True)
class RowShape:
    """A row that a prompt and its slots are laid out in.

    Attributes:
      width: tokens of the row.
      scored: N, tokens of it that can be scored.
      layout: fixed places for prompt and slots; None: slots follow without a gap.
    """

    width: int
    scored: int
    layout: RowLayout | None = None

    def holds(self, prompt: int, slots: Sequence[int]) -> bool:
        """Whether a prompt and slots of these lengths fit."""
        if self.layout is None:
            return prompt + sum(slots) <= self.width and sum(slots) <= self.scored
        places = (self.width - self.layout.prompt) // self.layout.slot
        fit = prompt <= self.layout.prompt and max(slots, default=0) <= self.layout.slot
        return fit and len(slots) <= places

    def starts(self, prompt: int, slots: Sequence[int]) -> list[int]:
        """First token of each slot."""
        if self.layout is not None:
            return [self.layout.prompt + number * self.layout.slot for number in range(len(slots))]
        return [prompt + sum(slots[:number]) for number in range(len(slots))]


@dataclasses.dataclass(frozen=True)
class RowShapes:
    """All shapes of a run.

    Attributes:
      shapes: ascending in width.
      micro_batch_tokens: at most so many tokens a device (one row at least).
      devices: rows of a micro-batch are a multiple of this.
      images, window: image places a row, and patches of a place.
    """

    shapes: tuple[RowShape, ...]
    micro_batch_tokens: int
    devices: int
    images: int
    window: int

    def row_counts(self, shape: RowShape) -> tuple[int, ...]:
        """Rows of a micro-batch, ascending: a third of what fits, for the last rows of a step, and all."""
        full = max(1, self.micro_batch_tokens // shape.width)
        return tuple(count * self.devices for count in sorted({max(1, round(full / 3)), full}))

    def choose(self, prompt: int, slots: Sequence[int]) -> RowShape | None:
        """The narrowest shape that holds these lengths."""
        return next((shape for shape in self.shapes if shape.holds(prompt, slots)), None)


def choose_row_shapes(
    measures: Sequence[Measure],
    *,
    num_samples: int,
    max_response_tokens: int,
    micro_batch_tokens: int,
    devices: int,
    multiple: int,
    count: int,
    fixed_slots: bool = False,
) -> RowShapes:
    """Shapes that fit groups whose responses are about as long as their targets.

    A longer group is cut into several rows, so that no width is made for the rare worst case.

    Args:
      multiple, count: at most `count` widths (of prompts, with fixed slots), multiples of `multiple`.
      fixed_slots: slots lie at fixed places, as fused attention needs; their sizes are `multiple`, twice
        that, and so on.

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
    """Widths that pad the expected rows least, the widest for any single response; and the longest of these.

    Every shape scores no more places than the rows that are expected in it need: the vocabulary head is
    computed for all of them.
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
        # Ascending with the width, so that a shape holds all that narrower ones do.
        scored = min(max(scored, round_up(max(expected, default=1), multiple)), width)
        shapes.append(RowShape(width, scored))
    return shapes, longest


def _fixed(
    prompts: Sequence[int], longest_slot: int, num_slots: int, budget: int, multiple: int
) -> tuple[list[RowShape], int]:
    """Every prompt width with every slot size, as many slots as fit; and the longest row of one slot."""
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
