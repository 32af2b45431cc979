"""The inputs of the model, and the host-side tables that depend on image grids.

A row holds trees of tokens in depth-first order, such as packed samples, or a prompt with the responses that
share it. `until` says at which position of the row each token's branch ends, see `tree_attention`.

All tables that depend on an image's grid are made here with numpy and padded to buckets. Compiled programs
depend on array shapes only, so a new image size compiles nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np
from flax import struct
from jaxtyping import Float32, Int32, Integer

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig

Array = jax.Array | np.ndarray
# Frames, rows and columns of an image in patches.
Grid = tuple[int, int, int]


@struct.dataclass
class VisionInputs:
    """Patches of all images of a batch, one image after another.

    The patches of an image are in merge-block order: those that become one token are contiguous.

    Attributes:
      patches: normalized pixels; `patch_dim` is channels * frames * height * width of a patch.
      segment_ids: number of the image, from 1; 0 is padding.
      pos_index: rows of the position-embedding table to interpolate.
      pos_weight: their bilinear weights.
      hw: row and column of the patch, for the rotary embedding.
      window: no image crosses a multiple of `window` patches, so that attention is computed within windows.
    """

    patches: Float32[Array, "patches patch_dim"]
    segment_ids: Int32[Array, " patches"]
    pos_index: Int32[Array, "patches 4"]
    pos_weight: Float32[Array, "patches 4"]
    hw: Int32[Array, "patches 2"]
    window: int = struct.field(pytree_node=False, default=0)


# Tokens of a chunk; rows are padded to a multiple of it.
CHUNK = 64


@struct.dataclass
class TreeTables:
    """Where states come from and are kept, of the rows of a batch whose width is padded to whole chunks.

    A chunk has a state for each of its `slots` kept forks, and the one that the chunk before it ends
    with.

    Attributes:
      parent: token before each token in its branch; -1 begins a tree.
      entry: state with which the token's path enters its chunk: -1 zero, 0 that of the chunk before, s that
        of slot s - 1.
      keep: token of the chunk after which the state is kept in a slot; -1 leaves the slot as it is.
    """

    parent: Int32[Array, "rows tokens"]
    entry: Int32[Array, "rows padded"]
    keep: Int32[Array, "rows chunks slots"]


@struct.dataclass
class ModelInputs:
    """A batch of rows.

    Attributes:
      positions: rotary positions on the time, height and width axes.
      until: position at which the token's branch ends: a token sees key k if k is not after it, and it is
        before `until[k]`. Padding has its own next position, so that no other token sees it.
      image_index: row of the merged vision features that is placed at the token; -1 is text.
      vision: the images, or None if the batch has none, which skips the vision tower.
      tables: of the recurrence, see `tree_tables`; None for models without one.
    """

    tokens: Int32[Array, "rows tokens"]
    positions: Int32[Array, "3 rows tokens"]
    until: Int32[Array, "rows tokens"]
    image_index: Int32[Array, "rows tokens"]
    vision: VisionInputs | None = None
    tables: TreeTables | None = None


def tree_tables(until: Int32[np.ndarray, "rows tokens"], chunk: int = CHUNK) -> TreeTables:
    """Makes the tables of rows from where each token's branch ends, see `ModelInputs.until`."""
    width = until.shape[1]
    padding = -width % chunk
    ends = np.arange(width + 1, width + padding + 1, dtype=np.int32)
    rows = [_row_tables(np.concatenate([row, ends]), chunk) for row in until]
    # At least one, so that rows without a fork have the shapes of those with forks of one level.
    slots = max(1, *(keep.shape[1] for *_, keep in rows))
    parents, entries, keeps = zip(*rows, strict=True)
    keeps = [np.pad(one, ((0, 0), (0, slots - one.shape[1])), constant_values=-1) for one in keeps]
    return TreeTables(np.stack(parents)[:, :width], np.stack(entries), np.stack(keeps))


def _row_tables(until: np.ndarray, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    at = np.arange(len(until), dtype=np.int32)
    # A fork is a token whose branch goes on in another one.
    forks = np.flatnonzero((until[:-1] != until[1:]) & (until[:-1] > at[1:])).astype(np.int32)

    def last_fork(tokens: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The last fork before a position whose branch holds the token, or -1."""
        holds = (forks < before[:, None]) & (until[forks] > tokens[:, None])
        return np.where(holds, forks, -1).max(axis=1, initial=-1).astype(np.int32)

    parent = at - 1
    breaks = np.flatnonzero(until[:-1] <= at[1:]).astype(np.int32) + 1
    parent[breaks] = last_fork(breaks, breaks)
    start = at // chunk * chunk
    # The last token before the chunk that is on the path.
    is_carry = (start > 0) & (until[np.maximum(start - 1, 0)] > at)
    outside = np.where(is_carry, start - 1, last_fork(at, start))
    kept = np.unique(outside[(outside >= 0) & ~is_carry])
    # As many slots as kept forks on one path: those of one level are never needed at once.
    level = ((kept[:, None] > kept) & (until[kept] > kept[:, None])).sum(axis=1)
    slot = dict(zip(kept.tolist(), level.tolist(), strict=True))
    entry = np.asarray(
        [
            0 if carry else 1 + slot[one] if one >= 0 else -1
            for one, carry in zip(outside, is_carry, strict=True)
        ],
        np.int32,
    )
    keep = np.full((len(until) // chunk, int(level.max(initial=-1)) + 1), -1, np.int32)
    keep[kept // chunk, level] = kept % chunk
    return parent, entry, keep


def _patch_coordinates(grid: Grid, merge: int) -> Int32[np.ndarray, "patches 2"]:
    """Computes row and column of each patch in merge-block order."""
    frames, height, width = grid
    # [blocks down, blocks across, rows of a block, columns of a block, 2] after the transpose.
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    blocks = np.stack([rows, columns], -1).reshape(height // merge, merge, width // merge, merge, 2)
    return np.tile(blocks.transpose(0, 2, 1, 3, 4).reshape(-1, 2), (frames, 1)).astype(np.int32)


def _axis_taps(
    coordinates: Int32[np.ndarray, " patches"], length: int, side: int
) -> tuple[Int32[np.ndarray, "patches 2"], Float32[np.ndarray, "patches 2"]]:
    """Finds the two neighbours of each coordinate, and their weights, in a table of `side` entries.

    The axis of `length` coordinates is scaled to the table so that both ends match.
    """
    # In float32 and in the reference's order of operations, which rounding depends on.
    scale = np.float32(side - 1) / np.float32(max(length - 1, 1))
    scaled = coordinates.astype(np.float32) * scale
    low = np.floor(scaled).astype(np.int32)
    upper = scaled - low.astype(np.float32)
    taps = np.stack([np.minimum(low, side - 1), np.minimum(low + 1, side - 1)], -1)
    return taps, np.stack([1 - upper, upper], -1)


def image_starts(grids: Sequence[Grid], window: int = 0) -> list[int]:
    """Returns the first patch of each image; one that would cross the end of a window starts in the next.

    Raises:
      UserError: an image is larger than the window.
    """
    starts, cursor = [], 0
    for grid in grids:
        size = int(np.prod(grid))
        if window and size > window:
            raise UserError(
                f"an image of {size} patches does not fit a vision window of {window}; raise the window"
            )
        if window and cursor // window != (cursor + size - 1) // window:
            # Rounded up to the next window; the gap is padding.
            cursor = -(-cursor // window) * window
        starts.append(cursor)
        cursor += size
    return starts


def vision_inputs(
    images_patches: Sequence[Float32[np.ndarray, "_ patch_dim"]],
    grids: Sequence[Grid],
    config: Qwen3VLConfig,
    num_patches: int,
    window: int = 0,
    starts: Sequence[int] | None = None,
) -> VisionInputs:
    """Joins the images of a batch and pads them to `num_patches`.

    Args:
      images_patches: patches of each image in merge-block order.
      grids: grid of each image.
      num_patches: the bucket; a multiple of the merge unit, and of `window` if that is set.
      window: patches of an attention window; 0 makes the whole batch one window.
      starts: first patch of each image, ascending; by default those of `image_starts`.

    Raises:
      UserError: the images do not fit, a grid cannot be merged, or the patches of an image do not match its
        grid.
    """
    vision = config.vision
    if num_patches % vision.merge_unit or (window and num_patches % window):
        raise UserError(
            f"vision bucket {num_patches} is not a multiple of {window or vision.merge_unit}; change it"
        )
    out = VisionInputs(
        patches=np.zeros((num_patches, vision.patch_dim), np.float32),
        segment_ids=np.zeros(num_patches, np.int32),
        pos_index=np.zeros((num_patches, 4), np.int32),
        pos_weight=np.zeros((num_patches, 4), np.float32),
        hw=np.zeros((num_patches, 2), np.int32),
        window=window or num_patches,
    )
    if len(images_patches) != len(grids):
        raise UserError(f"{len(images_patches)} images for {len(grids)} grids; pass one grid an image")
    starts = image_starts(grids, window) if starts is None else starts
    # Checked here, on the host: in the compiled program a wrong index would be clamped silently.
    for number, (patches, grid, start) in enumerate(zip(images_patches, grids, starts, strict=True), 1):
        _, height, width = grid
        if height % vision.spatial_merge_size or width % vision.spatial_merge_size:
            raise UserError(f"image grid {grid} does not divide by the merge size; resize with the processor")
        if patches.shape != (np.prod(grid), vision.patch_dim):
            raise UserError(
                f"an image has patches {list(patches.shape)}, not {[int(np.prod(grid)), vision.patch_dim]}, "
                f"for its grid {tuple(grid)}; resize with the processor of this model"
            )
        rows = slice(start, start + len(patches))
        if rows.stop > num_patches:
            raise UserError(
                f"the images need {rows.stop} patches, the bucket has {num_patches}; take a larger bucket"
            )
        out.patches[rows] = patches
        out.segment_ids[rows] = number
        tables = _grid_tables(grid, vision.spatial_merge_size, vision.grid_side)
        out.hw[rows], out.pos_index[rows], out.pos_weight[rows] = tables
    return out


# Cached: most screenshots of a browser have the same size.
@functools.lru_cache(maxsize=64)
def _grid_tables(grid: Grid, merge: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes `hw`, `pos_index` and `pos_weight` of an image's patches; callers must not write to them."""
    _, height, width = grid
    hw = _patch_coordinates(grid, merge)
    row_taps, row_weights = _axis_taps(hw[:, 0], height, side)
    column_taps, column_weights = _axis_taps(hw[:, 1], width, side)
    index = row_taps[:, :, None] * side + column_taps[:, None, :]
    weight = row_weights[:, :, None] * column_weights[:, None, :]
    return hw, index.reshape(-1, 4), weight.reshape(-1, 4)


def mrope_positions(
    tokens: Integer[np.ndarray, " tokens"], grids: Sequence[Grid], config: Qwen3VLConfig
) -> Int32[np.ndarray, "3 tokens"]:
    """Computes the rotary positions of one unpadded row on the time, height and width axes.

    A text token has the same position on all axes. An image's tokens have the time of its start, and rows and
    columns counted from there; the text after it starts at start + max(height, width) / merge size.

    Raises:
      UserError: the image tokens do not match the grids.
    """
    merge = config.vision.spatial_merge_size
    positions = np.empty((3, len(tokens)), np.int32)
    image_tokens = np.flatnonzero(np.asarray(tokens) == config.image_token_id)
    # Next token, its rotary position, and the image tokens seen so far.
    at = cursor = used = 0
    for grid in grids:
        if used == len(image_tokens):
            raise UserError("a prompt has fewer image tokens than images; pass one grid an image")
        frames, height, width = grid[0], grid[1] // merge, grid[2] // merge
        start, size = int(image_tokens[used]), frames * height * width
        used += size
        if used > len(image_tokens) or image_tokens[used - 1] != start + size - 1:
            raise UserError(
                f"image tokens from {start} do not match the grid {tuple(grid)}; re-encode the prompt"
            )
        # The text before the image: equal on all axes.
        positions[:, at:start] = np.arange(cursor, cursor + start - at)
        cursor, at = cursor + start - at, start + size
        # The image: time, row and column of each merged patch. The text after it continues behind the longer
        # side, so that an image takes max(height, width) positions and not height * width.
        positions[:, start:at] = np.indices((frames, height, width)).reshape(3, -1) + cursor
        cursor += max(height, width)
    if used < len(image_tokens):
        raise UserError("a prompt has more image tokens than images; pass one grid an image")
    positions[:, at:] = np.arange(cursor, cursor + len(tokens) - at)
    return positions


def response_positions(
    prompt_positions: Int32[np.ndarray, "3 prompt"], length: int
) -> Int32[np.ndarray, "3 length"]:
    """Computes the rotary positions of a response; all responses to a prompt begin at the same one."""
    start = int(prompt_positions.max()) + 1 if prompt_positions.size else 0
    return np.broadcast_to(np.arange(start, start + length, dtype=np.int32), (3, length))


def image_rows(
    tokens: Integer[np.ndarray, " tokens"],
    grids: Sequence[Grid],
    starts: Sequence[int],
    config: Qwen3VLConfig,
) -> Int32[np.ndarray, " tokens"]:
    """Computes `image_index` of one row.

    Args:
      grids, starts: of this row's images in order; a start is the image's first patch in the batch.

    Raises:
      UserError: the number of image tokens does not match the grids.
    """
    unit = config.vision.merge_unit
    index = np.full(len(tokens), -1, np.int32)
    rows = [
        np.arange(np.prod(grid) // unit) + start // unit for grid, start in zip(grids, starts, strict=True)
    ]
    image_tokens = np.flatnonzero(np.asarray(tokens) == config.image_token_id)
    total = sum(len(part) for part in rows)
    if total != len(image_tokens):
        raise UserError(f"{len(image_tokens)} image tokens for {total} merged patches; re-encode the prompt")
    if rows:
        index[image_tokens] = np.concatenate(rows)
    return index
