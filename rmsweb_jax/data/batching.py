"""Lays trees of tokens out in rows, as the arrays of one micro-batch.

The tokens of a tree are in depth-first order: the prompt, then each branch. A branch sees the prompt and
itself, and its rotary positions continue the prompt's, so that states, losses and gradients are those of one
row for each branch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.data.packing import Part, Row, RowShape, TreeSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import (
    Array,
    Grid,
    ModelInputs,
    image_rows,
    image_starts,
    mrope_positions,
    response_positions,
    tree_tables,
    vision_inputs,
)
from rmsweb_jax.training.mesh import shard_batch


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

    @property
    def prompt(self) -> Int32[np.ndarray, " prompt"]:
        return self.tokens[: self.prompt_length]

    @property
    def target(self) -> Int32[np.ndarray, " targets"]:
        return self.tokens[self.prompt_length :]

    def encoded(self) -> Example:
        """Itself, see `Encodable`."""
        return self


@runtime_checkable
class Encodable(Protocol):
    """An example of known size, which may not be encoded yet: each process encodes what it needs."""

    @property
    def sample_id(self) -> str: ...

    @property
    def prompt_length(self) -> int: ...

    def encoded(self) -> Example:
        """Encodes it, once."""
        ...


@dataclasses.dataclass(frozen=True)
class Branch:
    """A sequence after a prompt.

    Attributes:
      tokens: all of them are scored.
      values: what the loss needs to know of each token, by name: an array, or one number for all tokens.
    """

    tokens: Int32[np.ndarray, " tokens"]
    values: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Tree:
    """A prompt (that of an example, whose target is not read) with its branches."""

    example: Example
    branches: tuple[Branch, ...] = ()

    @property
    def size(self) -> TreeSize:
        return TreeSize(
            self.example.prompt_length,
            tuple(len(branch.tokens) for branch in self.branches),
            tuple(int(np.prod(grid)) for grid in self.example.grids),
        )


@dataclasses.dataclass(frozen=True)
class LazyTree:
    """A tree that is made by the process that lays it out."""

    size: TreeSize
    make: Callable[[], Tree]

    def made(self) -> Tree:
        """Makes the tree.

        Raises:
          UserError: it has not the size by which rows were planned.
        """
        tree = self.make()
        if tree.size != self.size:
            raise UserError(
                f"{tree.example.sample_id}: sizes of the data set are not those of its records "
                f"({self.size.prompt} tokens of the prompt, not {tree.size.prompt}): delete sizes-*.json in "
                "--workdir"
            )
        return tree


@dataclasses.dataclass(frozen=True)
class Span:
    """Where the tokens of a branch are scored: [start, stop) of row `row`."""

    row: int
    start: int
    stop: int
    tree: int
    branch: int


@struct.dataclass
class ScoredTokens:
    """The tokens of all branches of a micro-batch; in each row they follow one another from 0 without gaps.

    Attributes:
      index: position in the row whose hidden state predicts the token.
      tokens: the token to predict.
      branch: number of the token's branch in the row, from 1; 0 is padding.
      values: what the loss needs of each token, see `Branch`; 0 at padding.
    """

    index: Int32[Array, "rows tokens"]
    tokens: Int32[Array, "rows tokens"]
    branch: Int32[Array, "rows tokens"]
    values: dict[str, Float32[Array, "rows tokens"]]

    @property
    def count(self) -> Int32[jax.Array, ""]:
        """Tokens of the row with the most."""
        return jnp.max(jnp.sum(jnp.asarray(self.branch) > 0, axis=1))


@struct.dataclass
class Batch:
    """The rows of a micro-batch."""

    inputs: ModelInputs
    scored: ScoredTokens


def on_mesh(batch: Batch, mesh: Mesh) -> Batch:
    """Puts a batch on the devices, of which each process holds the rows of its own.

    All arguments of compiled programs must come from here: arrays with another sharding compile them again.
    """
    axes = jax.tree.map(lambda _: 0, batch)
    axes = dataclasses.replace(axes, inputs=dataclasses.replace(axes.inputs, positions=1))
    return shard_batch(batch, mesh, axes)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def spans(rows: Sequence[Row], sizes: Sequence[TreeSize]) -> list[Span]:
    """Returns the places of all branches of a micro-batch, row by row."""
    found = []
    for number, row in enumerate(rows):
        start = 0
        for part in row:
            for branch in part.branches:
                stop = start + sizes[part.tree].branches[branch]
                found.append(Span(number, start, stop, part.tree, branch))
                start = stop
    return found


def lay_out(
    get_tree: Callable[[int], Tree],
    rows: Sequence[Row],
    shape: RowShape,
    config: Qwen3VLConfig,
    held: Sequence[int] | None = None,
    names: Sequence[str] = (),
) -> Batch:
    """Makes the arrays of a micro-batch; rows that the plan does not fill are padding.

    Args:
      get_tree: number of a tree -> the tree; called for those of the held rows only.
      rows: the plan of the micro-batch, see `Packer.pack`.
      held: numbers of the rows that this process holds; by default all.
      names: the values that branches have.
    """
    held = range(shape.rows) if held is None else held
    count, width = len(held), shape.width
    tokens = np.zeros((count, width), np.int32)
    positions = np.zeros((3, count, width), np.int32)
    # Padding sees itself, and nothing sees it.
    until = np.tile(np.arange(1, width + 1, dtype=np.int32), (count, 1))
    image_index = np.full((count, width), -1, np.int32)
    scored = ScoredTokens(
        index=np.zeros((count, width), np.int32),
        tokens=np.zeros((count, width), np.int32),
        branch=np.zeros((count, width), np.int32),
        values={name: np.zeros((count, width), np.float32) for name in names},
    )
    mine = [rows[number] if number < len(rows) else () for number in held]
    # Once each: encoding a tree takes longer than all that follows.
    trees = {number: get_tree(number) for number in sorted({part.tree for row in mine for part in row})}
    examples = [trees[part.tree].example for row in mine for part in row]
    # Every row has windows of its own, so that patches are split over devices like rows.
    per_row, starts = shape.images * shape.window, []
    for number, row in enumerate(mine):
        at = seen = branches = 0
        grids = [grid for part in row for grid in trees[part.tree].example.grids]
        row_starts = iter([number * per_row + start for start in image_starts(grids, shape.window)])
        for part in row:
            tree = trees[part.tree]
            example, prompt = tree.example, tree.example.prompt
            own = slice(at, at + len(prompt))
            tokens[number, own] = prompt
            positions[:, number, own] = mrope_positions(prompt, example.grids, config)
            own_starts = [next(row_starts) for _ in example.grids]
            starts += own_starts
            image_index[number, own] = image_rows(prompt, example.grids, own_starts, config)
            at = own.stop
            for branch in (tree.branches[branch] for branch in part.branches):
                place, length = slice(at, at + len(branch.tokens)), len(branch.tokens)
                tokens[number, place], until[number, place] = branch.tokens, place.stop
                positions[:, number, place] = response_positions(positions[:, number, own], length)
                # The state before a token predicts it; before a branch's first token, the prompt's last one.
                index = np.arange(at - 1, at - 1 + length)
                index[:1] = own.stop - 1
                branches += 1
                to = slice(seen, seen + length)
                scored.index[number, to], scored.tokens[number, to] = index, branch.tokens
                scored.branch[number, to] = branches
                for name in names:
                    scored.values[name][number, to] = branch.values.get(name, 0.0)
                at, seen = place.stop, to.stop
            until[number, own] = at
    vision = None
    if shape.images:
        patches = [image for example in examples for image in example.patches]
        grids = [grid for example in examples for grid in example.grids]
        vision = vision_inputs(patches, grids, config, count * per_row, shape.window, starts)
        image_index = _in_batch(image_index, held, per_row // config.vision.merge_unit)
    tables = tree_tables(until) if config.text.delta else None
    return Batch(ModelInputs(tokens, positions, until, image_index, vision, tables), scored)


def lay_out_prompts(
    examples: Sequence[Encodable], shape: RowShape, config: Qwen3VLConfig, held: Sequence[int] | None = None
) -> Batch:
    """Lays out the prompt of each example at the beginning of a row of its own."""
    rows = [(Part(number, ()),) for number in range(len(examples))]
    return lay_out(lambda number: Tree(examples[number].encoded()), rows, shape, config, held)


def _in_batch(
    image_index: Int32[np.ndarray, "rows tokens"], held: Sequence[int], per_row: int
) -> Int32[np.ndarray, "rows tokens"]:
    """Converts indices into the vision features of this process's rows to indices into those of all rows."""
    row, offset = np.divmod(image_index, per_row)
    moved = np.asarray(held)[row] * per_row + offset
    return np.where(image_index >= 0, moved, -1).astype(np.int32)
