"""Bin packing of the samples of a batch into rows of few widths.

Packing changes the layout only. A batch holds the same samples with it and without it, so neither the order
of the data nor the loss depends on it. A plan depends on the samples' sizes alone, so every process of a run
makes the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from rmsweb_jax.data.batching import BatchShapes, round_up
from rmsweb_jax.data.encoding import SampleSize

Rows = list[list[int]]


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """Assignment of samples to the rows of one micro-batch.

    Attributes:
      width: length that all rows are padded to.
      rows: numbers of the samples of each row, in order. If there are fewer rows than a micro-batch has,
        empty ones are added.
    """

    width: int
    rows: tuple[tuple[int, ...], ...]


def plan_batch(sizes: Sequence[SampleSize], shapes: BatchShapes) -> list[RowPlan]:
    """Plans the micro-batches of a batch, widest first, with little padding.

    Args:
      sizes: sizes of the samples; each must fit a row of the last width.
      shapes: if not `packed`, every sample gets a row of its own.

    Returns:
      Plans whose rows hold the number of each sample (its index in `sizes`) once.
    """
    if not shapes.packed:
        return _plans([[number] for number in range(len(sizes))], sizes, shapes)
    # The best capacity of a row depends on the samples; trying all of them takes a millisecond.
    longest = max(size.length for size in sizes)
    capacities = [width for width in shapes.widths if width >= max(longest, shapes.widths[-1] // 2)]
    layouts = [rows for capacity in capacities for rows in _fill(sizes, shapes, capacity)]
    plans = [_plans(rows, sizes, shapes) for rows in (*layouts, *_balanced(sizes, shapes))]
    # The first of equally good plans, so that all processes choose the same.
    return min(plans, key=lambda plan: padded_tokens(plan, shapes))


def padded_tokens(plans: Sequence[RowPlan], shapes: BatchShapes) -> int:
    """Counts the tokens of all micro-batches, with padding."""
    return sum(plan.width * shapes.rows for plan in plans)


def row_caps(sizes: Sequence[SampleSize], width: int, multiple: int) -> tuple[int, int]:
    """Chooses how many targets and images a packed row of `width` tokens can hold.

    They are 1.5 times those of an average full row, and enough for every single sample. As part of the
    compiled shapes they are fixed for a run; a row that reaches them is closed early.

    Returns:
      Targets (a multiple of `multiple`) and images.
    """
    tokens = sum(size.length for size in sizes)
    targets = 3 * width * sum(size.num_targets for size in sizes) // (2 * tokens)
    images = -(-3 * width * sum(size.images for size in sizes) // (2 * tokens))
    most_targets = max(size.num_targets for size in sizes)
    return (
        round_up(max(targets, most_targets), multiple),
        max(images, *(size.images for size in sizes)),
    )


def _plans(rows: Rows, sizes: Sequence[SampleSize], shapes: BatchShapes) -> list[RowPlan]:
    """Groups rows of similar length into micro-batches."""
    # A micro-batch is as wide as its longest row, so that rows of similar length belong together.
    filled = sorted(((_length(row, sizes), row) for row in rows), key=lambda pair: -pair[0])
    plans = []
    for start in range(0, len(filled), shapes.rows):
        group = filled[start : start + shapes.rows]
        plans.append(RowPlan(shapes.width(group[0][0]), tuple(tuple(row) for _, row in group)))
    return plans


def _length(row: Sequence[int], sizes: Sequence[SampleSize]) -> int:
    return sum(sizes[number].length for number in row)


def _longest_first(sizes: Sequence[SampleSize]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda number: -sizes[number].length)


class _Bin:
    """A row that is being filled."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.length = self.targets = self.images = 0

    def holds(self, size: SampleSize, capacity: int, shapes: BatchShapes) -> bool:
        return (
            self.length + size.length <= capacity
            and self.targets + size.num_targets <= shapes.num_targets
            and self.images + size.images <= shapes.images
        )

    def add(self, number: int, size: SampleSize) -> None:
        self.numbers.append(number)
        self.length += size.length
        self.targets += size.num_targets
        self.images += size.images


def _fill(sizes: Sequence[SampleSize], shapes: BatchShapes, capacity: int) -> Iterator[Rows]:
    """Yields layouts with few rows of `capacity` tokens, by two heuristics."""
    # Best-fit decreasing: the fullest row that holds the sample.
    yield _place(sizes, shapes, capacity, lambda rows: max(rows, key=lambda row: row.length), [])
    yield _least_slack(sizes, shapes, capacity)


def _balanced(sizes: Sequence[SampleSize], shapes: BatchShapes) -> Iterator[Rows]:
    """Yields layouts that fill whole micro-batches with rows of similar length.

    Each sample goes to the shortest row, longest sample first ("longest processing time first", Graham 1969).
    """
    capacity = shapes.widths[-1]
    least = -(-sum(size.length for size in sizes) // (capacity * shapes.rows))
    # One more micro-batch than the lower bound, in case that targets, images or large samples do not fit.
    for count in (least, least + 1):
        rows = [_Bin() for _ in range(count * shapes.rows)]
        yield _place(sizes, shapes, capacity, lambda rows: min(rows, key=lambda row: row.length), rows)


def _place(
    sizes: Sequence[SampleSize],
    shapes: BatchShapes,
    capacity: int,
    choose: Callable[[list[_Bin]], _Bin],
    rows: list[_Bin],
) -> Rows:
    """Puts each sample, longest first, into one of the rows that can hold it, or into a new row.

    Args:
      choose: selects one of these rows.
    """
    rows = list(rows)
    for number in _longest_first(sizes):
        fitting = [row for row in rows if row.holds(sizes[number], capacity, shapes)]
        if not fitting:
            rows.append(_Bin())
            fitting = rows[-1:]
        choose(fitting).add(number, sizes[number])
    return [row.numbers for row in rows if row.numbers]


def _least_slack(sizes: Sequence[SampleSize], shapes: BatchShapes, capacity: int) -> Rows:
    """Begins each row with the longest sample left, and adds the samples that fill it best.

    These are the solution of a subset-sum problem, found exactly with bit sets. Source: minimum bin slack
    (Gupta and Ho 1999), with the first item fixed (Fleszar and Hindi 2002).
    """
    left, rows = _longest_first(sizes), []
    while left:
        row = _Bin()
        row.add(left[0], sizes[left[0]])
        rest = left[1:]
        for number in _best_subset(rest, sizes, capacity - row.length):
            if row.holds(sizes[number], capacity, shapes):
                row.add(number, sizes[number])
        taken = set(row.numbers)
        left = [number for number in left if number not in taken]
        rows.append(row.numbers)
    return rows


def _best_subset(numbers: Sequence[int], sizes: Sequence[SampleSize], capacity: int) -> list[int]:
    """Finds the samples with the largest sum of lengths that is at most `capacity`."""
    # Bit n of reachable[k] is set if some of the first k samples add up to n.
    reachable, mask = [1], (1 << (capacity + 1)) - 1
    for number in numbers:
        reachable.append((reachable[-1] | reachable[-1] << sizes[number].length) & mask)
    total, subset = reachable[-1].bit_length() - 1, []
    for index in range(len(numbers) - 1, -1, -1):
        if not reachable[index] >> total & 1:
            subset.append(numbers[index])
            total -= sizes[numbers[index]].length
    return subset
