"""Packs trees of tokens into rows of one width, so that training compiles one program.

A tree is a prompt with the sequences that follow it, its branches: an SFT sample has one branch, its target;
a group of RL has its responses and, if it was rejected, its salvage target. A row holds several trees. A tree
that fits no row is cut: the rest of its branches follow in another row, after the same prompt. A repeated
prompt costs less than another micro-batch.

Packing changes the layout only: a step holds the same trees on any mesh. A plan depends on sizes alone, so
every process of a run makes the same.
"""

from __future__ import annotations

import dataclasses
import heapq
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.flops import Work, causal_pairs, decoder_flops, forward_flops, head_flops

# Widths that `choose_packer` tries before it looks around the best one, and the share of useful operations
# below which a run warns.
_TRIALS, _LEAST_FILL = 16, 0.6


@dataclasses.dataclass(frozen=True)
class TreeSize:
    """Size of a tree.

    Attributes:
      prompt: tokens of the prompt.
      branches: tokens of each branch.
      patches: patches of each image of the prompt.
    """

    prompt: int
    branches: tuple[int, ...]
    patches: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return self.prompt + sum(self.branches)

    @property
    def work(self) -> Work:
        """Useful work of its tokens and images, with the prompt once."""
        own = sum(branch * self.prompt + causal_pairs(branch) for branch in self.branches)
        return Work(
            tokens=self.tokens,
            pairs=causal_pairs(self.prompt) + own,
            scored=sum(self.branches),
            patches=sum(self.patches),
            patch_pairs=sum(count**2 for count in self.patches),
        )

    def part(self, branches: Sequence[int]) -> TreeSize:
        """The prompt with the branches of these numbers."""
        return dataclasses.replace(self, branches=tuple(self.branches[number] for number in branches))


@dataclasses.dataclass(frozen=True)
class RowShape:
    """Shape of the rows of a run.

    Attributes:
      width: tokens of a row.
      rows: rows of a micro-batch over all processes, one for each shard.
      images: images that a row can hold; 0 if no tree has one.
      window: patches of the largest image.
    """

    width: int
    rows: int
    images: int = 0
    window: int = 0


class Part(NamedTuple):
    """A prompt with some of its branches, in one row; both are numbers."""

    tree: int
    branches: tuple[int, ...]


Row = tuple[Part, ...]
# The rows of a micro-batch; those that it lacks are empty.
Rows = tuple[Row, ...]


def useful_work(sizes: Sequence[TreeSize]) -> Work:
    """Work of trees without padding, and with each prompt once."""
    return sum((size.work for size in sizes), start=Work(0, 0, 0))


@dataclasses.dataclass(frozen=True)
class Packer:
    """Packs the trees of optimizer steps.

    Attributes:
      shape: shape of all rows.
      config: the model, for the cost of a row.
      expected_fill: share of useful operations in the steps by which the shape was chosen.
      samples: branches of the largest of these steps.
    """

    shape: RowShape
    config: Qwen3VLConfig
    expected_fill: float = math.nan
    samples: int = sys.maxsize

    def pack(self, sizes: Sequence[TreeSize]) -> list[Rows]:
        """Packs trees into as few micro-batches as it finds, and balances their rows.

        Returns:
          Micro-batches whose rows hold every branch once, the costliest rows first.

        Raises:
          UserError: a row does not hold a prompt with one of its branches.
        """
        if not sizes:
            return []
        for size in sizes:
            self._check(size)
        count = -(-sum(size.tokens for size in sizes) // (self.shape.width * self.shape.rows))
        while not (plans := list(self._plans(sizes, count))):
            count += 1
        return min(plans, key=lambda plan: sum(self._slowest(rows, sizes) for rows in plan))

    def executed(self, rows: Rows, sizes: Sequence[TreeSize]) -> Work:
        """Work of a micro-batch as it is computed: all devices wait for its costliest rows."""
        shape = self.shape
        works = [self._work(row, sizes) for row in rows]
        patches = shape.rows * shape.images * shape.window
        return Work(
            tokens=shape.rows * shape.width,
            pairs=shape.rows * max(work.pairs for work in works),
            scored=shape.rows * max(work.scored for work in works),
            patches=patches,
            patch_pairs=patches * shape.window,
        )

    def fill(self, plans: Sequence[Sequence[Rows]], steps: Sequence[Sequence[TreeSize]]) -> float:
        """Share of the executed operations of some steps that is useful."""
        useful = sum(forward_flops(self.config, useful_work(sizes)) for sizes in steps)
        executed = sum(
            forward_flops(self.config, self.executed(rows, sizes))
            for plan, sizes in zip(plans, steps, strict=True)
            for rows in plan
        )
        return useful / executed

    def report(self) -> None:
        """Logs how full the rows of the run will be, and warns if that is little.

        Raises:
          UserError: some rows will be empty in every step.
        """
        shape, percent = self.shape, 100 * self.expected_fill
        if self.samples < shape.rows:
            raise UserError(
                f"the mesh has {shape.rows} shards for rows, but a step has at most {self.samples} samples: "
                "split the model over more devices by config.mesh.tensor, or raise config.batch_size or "
                "config.mini_batch_groups"
            )
        logging.info(
            "%d rows of %d tokens a micro-batch: about %.0f %% of the operations will be useful",
            *(shape.rows, shape.width, percent),
        )
        self.warn(self.expected_fill)

    def warn(self, fill: float) -> None:
        """Warns if little of what was or will be executed is useful."""
        if fill < _LEAST_FILL and self.shape.rows > 1:
            logging.warning(
                "%.0f %% of the operations are padding: the samples of a step do not fill %d rows; split the "
                "model over more devices by config.mesh.tensor",
                *(100 - 100 * fill, self.shape.rows),
            )

    def _check(self, size: TreeSize) -> None:
        longest = size.prompt + max(size.branches, default=0)
        if longest > self.shape.width:
            raise UserError(
                f"a prompt of {size.prompt} tokens with a response of {longest - size.prompt} tokens does "
                f"not fit a row of {self.shape.width} tokens: raise config.row_tokens"
            )
        if len(size.patches) > self.shape.images:
            raise UserError(
                f"a prompt of {len(size.patches)} images does not fit a row, which has room for "
                f"{self.shape.images}: leave it out"
            )

    def _cost(self, work: Work) -> int:
        """Operations of a row that its width does not fix: attention and vocabulary head."""
        return decoder_flops(self.config, 0, work.pairs) + head_flops(self.config, work.scored)

    def _work(self, row: Row, sizes: Sequence[TreeSize]) -> Work:
        return useful_work([sizes[part.tree].part(part.branches) for part in row])

    def _slowest(self, rows: Rows, sizes: Sequence[TreeSize]) -> int:
        return max(self._cost(self._work(row, sizes)) for row in rows)

    def _plans(self, sizes: Sequence[TreeSize], count: int) -> Iterator[list[Rows]]:
        """Yields plans of at most `count` micro-batches, by several heuristics as far as they succeed."""
        # The longest first, or those with the longest prompts, which cost most to cut.
        orders: list[Callable[[TreeSize], int]] = [lambda size: size.tokens, lambda size: size.prompt]
        choices: list[Callable[[_Bin], float]] = [
            lambda row: row.cost,  # Levels the cost ("longest processing time first", Graham 1969).
            lambda row: row.tokens,  # Fills rows one after another ("best fit").
        ]
        for order in orders:
            numbers = sorted(range(len(sizes)), key=lambda number: -order(sizes[number]))
            for choice in choices:
                bins = self._bins(count)
                if all(self._place(number, sizes[number], bins, choice) for number in numbers):
                    yield self._micro_batches(bins)
        bins = self._bins(count)
        for row, numbers in zip(bins, even_parts([size.tokens for size in sizes], len(bins)), strict=True):
            if not all(self._place(number, sizes[number], [row], choices[0]) for number in numbers):
                return
        yield self._micro_batches(bins)

    def _bins(self, count: int) -> list[_Bin]:
        return [_Bin(self.shape) for _ in range(count * self.shape.rows)]

    def _micro_batches(self, bins: Sequence[_Bin]) -> list[Rows]:
        # Devices wait for the costliest row, so rows of similar cost are in one micro-batch.
        full = sorted((row for row in bins if row.parts), key=lambda row: -row.cost)
        rows = [tuple(row.parts) for row in full]
        starts = range(0, len(rows), self.shape.rows)
        return [tuple(rows[start : start + self.shape.rows]) for start in starts]

    def _place(
        self, number: int, size: TreeSize, bins: Sequence[_Bin], choice: Callable[[_Bin], float]
    ) -> bool:
        """Puts a tree whole into the row that `choice` ranks lowest, or cuts it; False if that fails."""
        whole = [row for row in bins if row.holds(size)]
        if whole:
            every = tuple(range(len(size.branches)))
            min(whole, key=choice).add(Part(number, every), size, self._cost(size.work))
            return True
        if not size.branches:
            return False
        left = sorted(range(len(size.branches)), key=lambda branch: -size.branches[branch])
        while left:
            # The row that takes most of it, so that the prompt is repeated seldom; of these the fullest.
            options = [(row.fitting(size, left), row) for row in bins]
            taken, row = max(
                options,
                key=lambda option: (sum(size.branches[branch] for branch in option[0]), -option[1].tokens),
            )
            if not taken:
                return False
            part = size.part(taken)
            row.add(Part(number, tuple(sorted(taken))), part, self._cost(part.work))
            left = [branch for branch in left if branch not in taken]
        return True


class _Bin:
    """A row that is being filled: the tokens and images that it still holds, and its cost so far."""

    def __init__(self, shape: RowShape):
        self.tokens, self.images, self.cost = shape.width, shape.images, 0
        self.parts: list[Part] = []

    def holds(self, size: TreeSize) -> bool:
        return size.tokens <= self.tokens and len(size.patches) <= self.images

    def add(self, part: Part, size: TreeSize, cost: int) -> None:
        self.parts.append(part)
        self.tokens -= size.tokens
        self.images -= len(size.patches)
        self.cost += cost

    def fitting(self, size: TreeSize, branches: Sequence[int]) -> list[int]:
        """Numbers of the branches that it holds after the prompt, taken in the given order."""
        taken: list[int] = []
        room = self.tokens - size.prompt if len(size.patches) <= self.images else 0
        for number in branches:
            if size.branches[number] <= room:
                taken.append(number)
                room -= size.branches[number]
        return taken


def even_parts(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Splits numbered things into parts whose sums are nearly even.

    By the largest differencing method (Karmarkar and Karp, 1982) for any number of parts: it starts with a
    partition for each thing, and joins the two whose sums are furthest apart, the largest part of one with
    the smallest of the other, until one is left. Then things are exchanged while the largest sum gets less.

    Returns:
      The numbers in each part; parts may be empty.
    """
    # Sums are less those of the smallest part; the second entry breaks ties.
    heap: list[tuple[int, int, list[tuple[int, list[int]]]]] = [
        (-size, number, [(size, [number]), *[(0, [])] * (count - 1)]) for number, size in enumerate(sizes)
    ]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, number, one = heapq.heappop(heap)
        _, _, other = heapq.heappop(heap)
        pairs = zip(one, reversed(other), strict=True)
        joined = sorted(((a + b, [*here, *there]) for (a, here), (b, there) in pairs), reverse=True)
        least = joined[-1][0]
        parts = [(total - least, members) for total, members in joined]
        heapq.heappush(heap, (-parts[0][0], number, parts))
    parts = [members for _, members in heap[0][2]] if heap else [[] for _ in range(count)]
    while _exchange(parts, sizes):
        pass
    return parts


def _exchange(parts: list[list[int]], sizes: Sequence[int]) -> bool:
    """Exchanges one thing of the largest part with one or none of another; False if that evens nothing."""
    sums = [sum(sizes[number] for number in part) for part in parts]
    largest = max(range(len(parts)), key=sums.__getitem__)
    best, chosen = sums[largest], None
    for other in range(len(parts)):
        for one in parts[largest]:
            for back in (*parts[other], None):
                moved = sizes[one] - (0 if back is None else sizes[back])
                larger = max(sums[largest] - moved, sums[other] + moved)
                if other != largest and larger < best:
                    best, chosen = larger, (other, one, back)
    if chosen is None:
        return False
    other, one, back = chosen
    parts[largest].remove(one)
    parts[other].append(one)
    if back is not None:
        parts[other].remove(back)
        parts[largest].append(back)
    return True


def choose_packer(
    steps: Sequence[Sequence[TreeSize]],
    config: Qwen3VLConfig,
    *,
    rows: int,
    least: int,
    most: int,
    multiple: int,
    images: int,
    window: int,
) -> Packer:
    """Chooses the shape of a run's rows by packing some of its steps: that with the least padding.

    Args:
      rows: rows of a micro-batch, one for each shard.
      least, most: the longest prompt with a response, and the largest width that fits memory.
      multiple: of all widths.
      images: most images of a tree. Rows have room for half as many again as their trees have on average.
      window: patches of the largest image.

    Raises:
      UserError: `most` is less than `least`.
    """
    low = -(-least // multiple) * multiple
    high = most // multiple * multiple
    if low > high:
        raise UserError(
            f"a prompt and one response take up to {least} tokens, config.row_tokens is {most}: raise it "
            f"to {low}, or lower the limits of prompts and responses"
        )
    step = max(multiple, -(-(high - low) // (_TRIALS * multiple)) * multiple)
    trees = [size for sizes in steps for size in sizes]
    share = 1.5 * sum(len(size.patches) for size in trees) / sum(size.tokens for size in trees)

    def packer(width: int) -> Packer:
        return Packer(RowShape(width, rows, max(images, math.ceil(share * width)), window), config)

    def fill(width: int) -> float:
        tried = packer(width)
        return tried.fill([tried.pack(sizes) for sizes in steps], steps)

    fills = {width: fill(width) for width in range(high, low - 1, -step)}
    best = max(fills, key=lambda width: fills[width])
    # A little narrower may do as well.
    fills |= {width: fill(width) for width in range(max(low, best - step + multiple), best, multiple)}
    # Of equally good ones the narrowest, which needs the least memory.
    best = max(sorted(fills), key=lambda width: fills[width])
    samples = max(sum(len(size.branches) for size in sizes) for sizes in steps)
    return dataclasses.replace(packer(best), expected_fill=fills[best], samples=samples)
