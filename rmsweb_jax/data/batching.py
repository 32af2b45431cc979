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
    """What a batch is trained on: R places a row; a row of padding has an empty mask.

    Attributes:
      index: [B, R] int32, position in the row whose hidden state predicts the token.
      tokens: [B, R] int32, the token to predict.
      mask: [B, R] float32, 1 where there is a target.
      action_mask: [B, R] float32, 1 inside the action span (within `mask`).
    """

    index: Array
    tokens: Array
    mask: Array
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
    """

    rows: int
    widths: tuple[int, ...]
    num_targets: int
    images: int
    window: int

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


def _in_batch(image_index: np.ndarray, row_numbers: Sequence[int], per_row: int) -> np.ndarray:
    """References into the features of the rows made here, as references into those of the whole batch."""
    row, place = np.divmod(image_index, per_row)
    moved = np.asarray(row_numbers)[row] * per_row + place
    return np.where(image_index >= 0, moved, -1).astype(np.int32)


def collate(
    examples: Sequence[Example],
    shapes: Shapes,
    width: int,
    config: Qwen3VLConfig,
    rows: int,
    row_numbers: Sequence[int] | None = None,
) -> Batch:
    """Pads examples to one micro-batch; missing rows are empty.

    Args:
      examples: at most `rows`, none longer than `width` or with more targets than `shapes.num_targets`.
      width: one of `shapes.widths`.
      rows: rows made here.
      row_numbers: their numbers in the batch of all processes, for references into its patches; by default
        they are its first rows.
    """
    tokens = np.zeros((rows, width), np.int32)
    segment_ids = np.zeros_like(tokens)
    positions = np.zeros((3, rows, width), np.int32)
    image_index = np.full((rows, width), -1, np.int32)
    targets = Targets(
        index=np.zeros((rows, shapes.num_targets), np.int32),
        tokens=np.zeros((rows, shapes.num_targets), np.int32),
        mask=np.zeros((rows, shapes.num_targets), np.float32),
        action_mask=np.zeros((rows, shapes.num_targets), np.float32),
    )
    grids = [grid for example in examples for grid in example.grids]
    starts = iter(image_starts(grids, shapes.window))
    for row, example in enumerate(examples):
        length, count = example.length, example.num_targets
        tokens[row, :length] = example.tokens
        segment_ids[row, :length] = 1
        positions[:, row, :length] = mrope_positions(example.tokens, example.grids, config)
        own_starts = [next(starts) for _ in example.grids]
        image_index[row, :length] = image_rows(example.tokens, example.grids, own_starts, config)
        targets.index[row, :count] = np.arange(example.prompt_length - 1, length - 1)
        targets.tokens[row, :count] = example.tokens[example.prompt_length :]
        targets.mask[row, :count] = 1
        targets.action_mask[row, :count] = example.action_mask
    vision = None
    if shapes.images:
        patches = [image for example in examples for image in example.patches]
        per_row = shapes.images * shapes.window
        vision = vision_inputs(patches, grids, config, rows * per_row, shapes.window)
        if row_numbers is not None:
            image_index = _in_batch(image_index, row_numbers, per_row // config.vision.merge_unit)
    layout = RowLayout(prompt=width)
    inputs = ModelInputs(tokens, positions, segment_ids, None, image_index, vision, layout)
    return Batch(inputs, targets)
