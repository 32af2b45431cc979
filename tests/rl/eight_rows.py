"""The reference layout of an optimizer step: every response, and every salvage target, behind its own prompt.

Rows and weights are made here from the definitions alone, with the model's own tables of positions and
images; nothing of `rmsweb_jax.data.packing`, of `rmsweb_jax.rl.step`, or that lays out trees takes part.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from rmsweb_jax.data.batching import Batch, Example, ScoredTokens
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import ModelInputs, image_rows, mrope_positions, vision_inputs
from rmsweb_jax.rl.rollout import MiniBatch

Key = tuple[int, int]
_EPSILON = 1e-8
VALUES = (
    "advantages",
    "pg_weight",
    "kl_weight",
    "salvage_weight",
    "token_mean_weight",
    "replay_weight",
    "old_log_probs",
    "ref_log_probs",
    "behaviour_log_probs",
)


class PlainRow(NamedTuple):
    """One sequence of an optimizer step.

    Attributes:
      example: prompt and response, or prompt and target.
      key: number of its group, accepted ones first, and of the sample; -1 is the salvage target.
      advantage: 0 but for accepted groups.
      pg_weight, kl_weight, salvage_weight: [T] of its tokens in the means over sequences of means over
        tokens.
    """

    example: Example
    key: Key
    advantage: float
    pg_weight: np.ndarray
    kl_weight: np.ndarray
    salvage_weight: np.ndarray


class PlainBatch(NamedTuple):
    """Rows for one call of the model.

    Attributes:
      batch: old and reference log-probabilities are 0.
      places: where the scores of each sequence are.
    """

    batch: Batch
    places: dict[Key, tuple[int, slice]]


def plain_rows(batch: MiniBatch, *, salvage: bool) -> list[PlainRow]:
    """All sequences of an optimizer step.

    The surrogate is a mean over responses of accepted groups, the KL term one over all responses, the
    anchor one over the targets of salvaged groups, where only the action span counts.
    """
    groups = [*batch.accepted, *batch.salvaged]
    accepted = sum(len(group.responses) for group in batch.accepted)
    retained = sum(len(group.responses) for group in groups)
    rows = []
    for number, group in enumerate(groups):
        prompt = group.prompt.encoded()
        for sample, response in enumerate(group.responses):
            mean = np.full(len(response), 1 / (len(response) + _EPSILON))
            mine = number < len(batch.accepted)
            row = PlainRow(
                example=_behind(prompt, response),
                key=(number, sample),
                advantage=float(group.advantages[sample]) if mine else 0.0,
                pg_weight=mean / accepted if mine else 0 * mean,
                kl_weight=mean / retained,
                salvage_weight=0 * mean,
            )
            rows.append(row)
        if salvage and number >= len(batch.accepted):
            span = prompt.action_mask / (prompt.action_mask.sum() + _EPSILON)
            rows.append(PlainRow(prompt, (number, -1), 0.0, 0 * span, 0 * span, span / len(batch.salvaged)))
    return rows


def plain_batches(
    rows: list[PlainRow], config: Qwen3VLConfig, *, count: int, width: int, images: int | None = None
) -> list[PlainBatch]:
    """Micro-batches of `count` rows of `width` tokens.

    Args:
      images: images that a row has room for; by default those of the row with the most.
    """
    if images is None:
        images = max(len(row.example.grids) for row in rows)
    window = max((int(np.prod(grid)) for row in rows for grid in row.example.grids), default=0)
    return [
        _batch(rows[at : at + count], config, count, width, images, window)
        for at in range(0, len(rows), count)
    ]


def plain_inputs(
    examples: list[Example], config: Qwen3VLConfig, *, count: int, width: int, images: int, window: int
) -> ModelInputs:
    """Every example, prompt and target, at the beginning of a row of its own; the other rows are empty."""
    inputs = ModelInputs(
        tokens=np.zeros((count, width), np.int32),
        positions=np.zeros((3, count, width), np.int32),
        # Padding sees itself only.
        until=np.tile(np.arange(width, dtype=np.int32) + 1, (count, 1)),
        image_index=np.full((count, width), -1, np.int32),
    )
    patches, grids, starts = [], [], []
    for number, example in enumerate(examples):
        length = len(example.tokens)
        inputs.tokens[number, :length] = example.tokens
        inputs.positions[:, number, :length] = mrope_positions(example.tokens, example.grids, config)
        inputs.until[number, :length] = length
        # A window for each image.
        own = [(number * images + image) * window for image in range(len(example.grids))]
        inputs.image_index[number, :length] = image_rows(example.tokens, example.grids, own, config)
        patches, grids, starts = [*patches, *example.patches], [*grids, *example.grids], starts + own
    if images:
        vision = vision_inputs(patches, grids, config, count * images * window, window, starts)
        inputs = dataclasses.replace(inputs, vision=vision)
    return inputs


def _batch(
    rows: list[PlainRow], config: Qwen3VLConfig, count: int, width: int, images: int, window: int
) -> PlainBatch:
    examples = [row.example for row in rows]
    inputs = plain_inputs(examples, config, count=count, width=width, images=images, window=window)
    index, tokens, branch = np.zeros((3, count, width), np.int32)
    values: dict[str, Any] = {name: np.zeros((count, width), np.float32) for name in VALUES}
    places = {row.key: (number, slice(0, row.example.num_targets)) for number, row in enumerate(rows)}
    for row in rows:
        place, start = places[row.key], row.example.prompt_length
        tokens[place] = row.example.tokens[start:]
        index[place] = np.arange(start, len(row.example.tokens)) - 1
        branch[place] = 1
        values["advantages"][place], values["pg_weight"][place] = row.advantage, row.pg_weight
        values["kl_weight"][place], values["salvage_weight"][place] = row.kl_weight, row.salvage_weight
    return PlainBatch(Batch(inputs, ScoredTokens(index, tokens, branch, values)), places)


def _behind(prompt: Example, response: np.ndarray) -> Example:
    return dataclasses.replace(
        prompt,
        tokens=np.concatenate([prompt.tokens[: prompt.prompt_length], response]),
        action_mask=np.zeros(len(response), bool),
    )
