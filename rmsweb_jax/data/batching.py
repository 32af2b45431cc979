"""Tokenized samples to padded batches of few shapes, so that few programs are compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from flax import struct

from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
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
    """One tokenized sample: a prompt and the reply that is trained on.

    Attributes:
      sample_id: of the record.
      tokens: [T] int32, prompt then target.
      prompt_length: tokens before the target.
      action_mask: [T - prompt_length] bool, target tokens of the action span.
      patches: per image [t*h*w, patch_dim] float32.
      grids: per image (t, h, w) in patches.
    """

    sample_id: str
    tokens: np.ndarray
    prompt_length: int
    action_mask: np.ndarray
    patches: tuple[np.ndarray, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def num_targets(self) -> int:
        return len(self.tokens) - self.prompt_length


@struct.dataclass
class Targets:
    """What a batch is trained on: R places a row.

    Attributes:
      index: [B, R] int32, position in the row whose hidden state predicts the token.
      tokens: [B, R] int32, the token to predict.
      segment_ids: [B, R] int32, the sample of the row that it belongs to, from 1; 0 is padding.
      action_mask: [B, R] float32, 1 inside the action span of its sample.
    """

    index: Array
    tokens: Array
    segment_ids: Array
    action_mask: Array


@struct.dataclass
class Batch:
    """One micro-batch."""

    inputs: ModelInputs
    targets: Targets


def batch_axes(batch: Batch) -> Batch:
    """Same structure as `batch`, with the axis along which rows (or patches) lie in place of each array."""
    axes = jax.tree.map(lambda _: 0, batch)
    return dataclasses.replace(axes, inputs=dataclasses.replace(axes.inputs, positions=1))


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The few shapes of a run.

    Attributes:
      rows: rows of a micro-batch over all processes.
      widths: ascending sequence lengths that rows are padded to.
      num_targets: R, target places a row.
      images: image places a row; 0: no sample has an image.
      window: patches an image place holds.
      packed: a row may hold several samples.
    """

    rows: int
    widths: tuple[int, ...]
    num_targets: int
    images: int
    window: int
    packed: bool = False

    def width(self, length: int) -> int:
        """The smallest width that holds `length` tokens."""
        return next(width for width in self.widths if width >= length)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def choose_widths(lengths: Sequence[int], multiple: int, count: int) -> tuple[int, ...]:
    """At most `count` widths, multiples of `multiple`, that pad `lengths` least (by dynamic programming)."""
    sizes, counts = np.unique([round_up(length, multiple) for length in lengths], return_counts=True)
    # The tokens in a bucket are `size of its last` x `samples in it`: the true lengths do not matter.
    prefix = np.concatenate([[0], np.cumsum(counts)])
    best = np.full((count + 1, len(sizes) + 1), np.inf)
    back = np.zeros((count + 1, len(sizes) + 1), np.int64)
    best[:, 0] = 0
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


def group_by_length(lengths: Sequence[int] | np.ndarray, rows: int) -> list[list[int]]:
    """Cuts a batch into groups of `rows` of like length, longest first; the last group may be smaller."""
    order = np.argsort(-np.asarray(lengths), kind="stable").tolist()
    return [order[start : start + rows] for start in range(0, len(order), rows)]


def in_batch(image_index: np.ndarray, row_numbers: Sequence[int], per_row: int) -> np.ndarray:
    """References into the features of the rows made here, as references into those of the whole batch."""
    row, place = np.divmod(image_index, per_row)
    moved = np.asarray(row_numbers)[row] * per_row + place
    return np.where(image_index >= 0, moved, -1).astype(np.int32)


def collate(
    rows: Sequence[Sequence[Example]],
    shapes: Shapes,
    width: int,
    config: Qwen3VLConfig,
    row_numbers: Sequence[int] | None = None,
) -> Batch:
    """Lays samples out in rows, one after another, and pads the rows to one micro-batch.

    The samples of a row are its segments: they do not see each other, and positions restart with each.

    Args:
      rows: the samples of each row; together no longer than `width` and with at most `shapes.num_targets`
        targets and `shapes.images` images. An empty row is padding.
      width: one of `shapes.widths`.
      row_numbers: their numbers in the batch of all processes, for references into its patches; by default
        they are all of it.
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
            places = slice(target, target + example.num_targets)
            targets.index[number, places] = np.arange(at + example.prompt_length, part.stop) - 1
            targets.tokens[number, places] = example.tokens[example.prompt_length :]
            targets.segment_ids[number, places] = segment
            targets.action_mask[number, places] = example.action_mask
            at, target = part.stop, places.stop
    vision = None
    if shapes.images:
        patches = [image for example in examples for image in example.patches]
        per_row = shapes.images * shapes.window
        vision = vision_inputs(patches, grids, config, count * per_row, shapes.window)
        if row_numbers is not None:
            image_index = in_batch(image_index, row_numbers, per_row // config.vision.merge_unit)
    # What kernels are promised must be the same on every process, whatever rows it holds.
    layout = None if shapes.packed else RowLayout(prompt=width)
    inputs = ModelInputs(tokens, positions, segment_ids, None, image_index, vision, layout)
    return Batch(inputs, targets)


def single_rows(examples: Sequence[Example], count: int) -> list[list[Example]]:
    """A row for each example, and empty ones up to `count`."""
    return [[example] for example in examples] + [[] for _ in range(count - len(examples))]
