"""Groups to rows, and rows to the micro-batches that waste least."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rmsweb_jax.aot.flops import Work, causal_pairs, decoder_flops, head_flops, slot_pairs
from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.rl.losses import token_weights
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
      old_log_probs: [T] float32 of a response that an earlier policy drew, by the sampler; otherwise None.
    """

    tokens: np.ndarray
    advantage: float
    pg_weight: np.ndarray
    kl_weight: np.ndarray
    salvage_weight: np.ndarray
    group: int
    sample: int
    old_log_probs: np.ndarray | None = None


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

    @property
    def work(self) -> Work:
        """What its tokens and images need, padding left out."""
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
    """One micro-batch, not laid out yet.

    Attributes:
      shape: of its rows.
      count: rows of all processes.
      rows: at most `count`; the others are empty.
    """

    shape: RowShape
    count: int
    rows: tuple[Row, ...]


def slots_of(batch: MiniBatch[Group], salvage: bool, version: int = 0) -> list[list[Slot]]:
    """The slots of each group of an optimizer step, accepted groups first.

    The surrogate is a mean over accepted responses, the KL term over all responses, the anchor over
    salvaged groups (its K samples share one target, so one sequence stands for them).

    Args:
      salvage: False leaves the target slots out (anchor weight 0).
      version: of the policy to update; earlier ones' responses keep the log-probabilities they were drawn
        with.
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


def plan_micro_batches(rows: Sequence[Row], shapes: RowShapes, config: Qwen3VLConfig) -> list[Plan]:
    """The cheapest way to share rows out over micro-batches of the compiled shapes (dynamic programming).

    The cost of a place is linear, that of attention quadratic in a row's width; empty rows cost as much as
    full ones. Rows are taken from the longest on and those of a micro-batch have one width, so that its
    devices do equal work. Every process makes the same plan, as it only depends on lengths.
    """
    ranks = {shape: number for number, shape in enumerate(shapes.shapes)}

    def size(row: Row) -> tuple[int, int]:
        shape = shapes.choose(*row.lengths)
        assert shape is not None, "shapes hold every prompt with one response"
        return ranks[shape], row.length

    order = sorted(rows, key=size, reverse=True)
    costs = {shape: _row_flops(shape, config) for shape in shapes.shapes}
    # Cost and number of the micro-batches for all rows from here on, and the first of them; cheapest first.
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
    """Operations of a forward pass of one row's language model, padding included."""
    # Without a layout, attention is the reference's, which computes every pair.
    pairs = shape.width**2
    if shape.layout is not None:
        pairs = slot_pairs(shape.layout, (shape.width - shape.layout.prompt) // shape.layout.slot)
    return decoder_flops(config, shape.width, pairs) + head_flops(config, shape.scored)
