"""Lays tokenized samples out in padded batches of few shapes, so that few programs are compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from flax import struct
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work, causal_pairs
from rmsweb_jax.qwen3_vl.inputs import (
    Array,
    Grid,
    ModelInputs,
    RowLayout,
    image_rows,
    image_starts,
    mrope_positions,
    vision_inputs,
)


@dataclasses.dataclass(frozen=True)
class Example:
    """One tokenized sample: a prompt, and the reply that is trained on (its target).

    Attributes:
      sample_id: id of the record.
      tokens: prompt, then target.
      prompt_length: tokens of the prompt.
      action_mask: True at target tokens of the action span.
      patches: patches of each image.
      grids: grid of each image.
    """

    sample_id: str
    tokens: Int32[np.ndarray, " tokens"]
    prompt_length: int
    action_mask: Bool[np.ndarray, " targets"]
    patches: tuple[Float32[np.ndarray, "_ patch_dim"], ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def num_targets(self) -> int:
        return len(self.tokens) - self.prompt_length


@struct.dataclass
class Targets:
    """The tokens that a batch is trained on, gathered from its rows.

    Attributes:
      index: position in the row whose hidden state predicts the token.
      tokens: the token to predict.
      segment_ids: number of the token's sample in the row, from 1; 0 is padding.
      action_mask: 1 inside the action span of the sample.
    """

    index: Int32[Array, "rows targets"]
    tokens: Int32[Array, "rows targets"]
    segment_ids: Int32[Array, "rows targets"]
    action_mask: Float32[Array, "rows targets"]


@struct.dataclass
class SftBatch:
    """One micro-batch of supervised fine-tuning."""

    inputs: ModelInputs
    targets: Targets


def batch_axes(batch: SftBatch) -> SftBatch:
    """Returns the structure of `batch` with, for each array, the number of its row (or patch) axis."""
    axes = jax.tree.map(lambda _: 0, batch)
    return dataclasses.replace(axes, inputs=dataclasses.replace(axes.inputs, positions=1))


@dataclasses.dataclass(frozen=True)
class BatchShapes:
    """The batch shapes of a run.

    Attributes:
      rows: rows of a micro-batch over all processes.
      widths: lengths that rows are padded to, ascending.
      num_targets: targets that a row can hold.
      images: images that a row can hold; 0 if no sample has one.
      window: patches that an image can have.
      packed: True if a row may hold several samples.
    """

    rows: int
    widths: tuple[int, ...]
    num_targets: int
    images: int
    window: int
    packed: bool = False

    def width(self, length: int) -> int:
        """Returns the smallest width that holds `length` tokens."""
        return next(width for width in self.widths if width >= length)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def choose_widths(lengths: Sequence[int], multiple: int, count: int) -> tuple[int, ...]:
    """Chooses up to `count` multiples of `multiple` that pad `lengths` least, by dynamic programming."""
    sizes, counts = np.unique([round_up(length, multiple) for length in lengths], return_counts=True)
    # Minimizing padding is minimizing padded tokens: a bucket has its largest size times its samples.
    prefix = np.concatenate([[0], np.cumsum(counts)])
    best = np.full((count + 1, len(sizes) + 1), np.inf)
    back = np.zeros((count + 1, len(sizes) + 1), np.int64)
    best[:, 0] = 0
    # best[used, stop]: fewest padded tokens for the `stop` smallest sizes with `used` widths; back: where the
    # last of these widths begins.
    for used in range(1, count + 1):
        for stop in range(1, len(sizes) + 1):
            costs = best[used - 1, :stop] + (prefix[stop] - prefix[:stop]) * sizes[stop - 1]
            back[used, stop] = np.argmin(costs)
            best[used, stop] = costs[back[used, stop]]
    widths, stop, used = [], len(sizes), count
    while stop:
        widths.append(int(sizes[stop - 1]))
        stop, used = int(back[used, stop]), used - 1
    return tuple(reversed(widths))


def in_batch(
    image_index: Int32[np.ndarray, "rows tokens"], row_numbers: Sequence[int], per_row: int
) -> Int32[np.ndarray, "rows tokens"]:
    """Converts indices into the vision features of this process's rows to indices into those of all rows."""
    row, offset = np.divmod(image_index, per_row)
    moved = np.asarray(row_numbers)[row] * per_row + offset
    return np.where(image_index >= 0, moved, -1).astype(np.int32)


def collate(
    rows: Sequence[Sequence[Example]],
    shapes: BatchShapes,
    width: int,
    config: Qwen3VLConfig,
    row_numbers: Sequence[int] | None = None,
) -> SftBatch:
    """Lays samples out in rows, one after another, and pads the rows to one micro-batch.

    The samples of a row are its segments: they do not see each other, and rotary positions restart with each.

    Args:
      rows: the samples of each row; their tokens, targets and images must fit `width` and `shapes`. An empty
        row is padding.
      width: one of `shapes.widths`.
      row_numbers: numbers of these rows in the batch of all processes; by default they are the whole batch.
    """
    count = len(rows)
    tokens = np.zeros((count, width), np.int32)
    segment_ids = np.zeros_like(tokens)
    positions = np.zeros((3, count, width), np.int32)
    image_index = np.full((count, width), -1, np.int32)
    targets = Targets(
        index=np.zeros((count, shapes.num_targets), np.int32),
        tokens=np.zeros((count, shapes.num_targets), np.int32),
        segment_ids=np.zeros((count, shapes.num_targets), np.int32),
        action_mask=np.zeros((count, shapes.num_targets), np.float32),
    )
    examples = [example for row in rows for example in row]
    grids = [grid for example in examples for grid in example.grids]
    starts = iter(image_starts(grids, shapes.window))
    for number, row in enumerate(rows):
        at = target = 0
        for segment, example in enumerate(row, 1):
            part = slice(at, at + example.length)
            tokens[number, part] = example.tokens
            segment_ids[number, part] = segment
            positions[:, number, part] = mrope_positions(example.tokens, example.grids, config)
            own_starts = [next(starts) for _ in example.grids]
            image_index[number, part] = image_rows(example.tokens, example.grids, own_starts, config)
            own_targets = slice(target, target + example.num_targets)
            # The state before a token predicts it, so indices are shifted by one.
            targets.index[number, own_targets] = np.arange(at + example.prompt_length, part.stop) - 1
            targets.tokens[number, own_targets] = example.tokens[example.prompt_length :]
            targets.segment_ids[number, own_targets] = segment
            targets.action_mask[number, own_targets] = example.action_mask
            at, target = part.stop, own_targets.stop
    vision = None
    if shapes.images:
        # Every row has the same number of windows, so that patches are split over devices like rows.
        patches = [image for example in examples for image in example.patches]
        per_row = shapes.images * shapes.window
        vision = vision_inputs(patches, grids, config, count * per_row, shapes.window)
        if row_numbers is not None:
            image_index = in_batch(image_index, row_numbers, per_row // config.vision.merge_unit)
    # A static field, so it must be the same on every process, also where a process has padding rows only.
    layout = None if shapes.packed else RowLayout(prompt=width)
    inputs = ModelInputs(tokens, positions, segment_ids, None, image_index, vision, layout)
    return SftBatch(inputs, targets)


def single_rows(examples: Sequence[Example], count: int) -> list[list[Example]]:
    """Puts each example in a row of its own; adds empty rows up to `count`."""
    return [[example] for example in examples] + [[] for _ in range(count - len(examples))]


def batch_work(batch: SftBatch) -> Work:
    """Counts the useful work, without padding, of a host's micro-batch of numpy arrays without slots."""
    segments = _segment_lengths(np.asarray(batch.inputs.segment_ids))
    patches = np.zeros(0, np.int64)
    vision = batch.inputs.vision
    if vision is not None:
        # Images attend to themselves only, and none crosses a window: each window is a row of segments.
        ids = np.asarray(vision.segment_ids)
        patches = _segment_lengths(ids.reshape(-1, vision.window or len(ids)))
    return Work(
        tokens=int(segments.sum()),
        pairs=sum(causal_pairs(length) for length in segments.tolist()),
        scored=int((np.asarray(batch.targets.segment_ids) > 0).sum()),
        patches=int(patches.sum()),
        patch_pairs=int((patches**2).sum()),
    )


def _segment_lengths(ids: Int32[np.ndarray, "rows tokens"]) -> np.ndarray:
    """Counts the tokens of each segment of each row; segment 0 is padding."""
    keys = np.arange(len(ids))[:, None] * (int(ids.max(initial=0)) + 1) + ids
    return np.unique(keys[ids > 0], return_counts=True)[1]
