"""The reference layout of an optimizer step: every response, and every salvage target, behind its own prompt.

Rows and weights are made here from the definitions alone, by what supervised fine-tuning lays its samples
out with; nothing of `rmsweb_jax.rl.batching` or `rmsweb_jax.rl.batching` takes part.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from rmsweb_jax.data.batching import BatchShapes, Example, collate, single_rows
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.losses import TokenBatch
from rmsweb_jax.rl.rollout import Group

Key = tuple[int, int]
_EPSILON = 1e-8


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


@dataclasses.dataclass(frozen=True)
class PlainBatch:
    """Rows for one call of the model.

    Attributes:
      inputs: [B, W].
      targets: [B, N]; old and reference log-probabilities are 0.
      places: where the tokens of each sequence are in the targets.
    """

    inputs: ModelInputs
    targets: TokenBatch
    places: dict[Key, tuple[int, slice]]


def plain_rows(batch: MiniBatch[Group], *, salvage: bool) -> list[PlainRow]:
    """All sequences of an optimizer step.

    The surrogate is a mean over responses of accepted groups, the KL term one over all responses, the
    anchor one over the targets of salvaged groups, where only the action span counts.
    """
    groups = [*batch.accepted, *batch.salvaged]
    accepted = sum(len(group.responses) for group in batch.accepted)
    retained = sum(len(group.responses) for group in groups)
    rows = []
    for number, group in enumerate(groups):
        prompt = group.prompt.example
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
    rows: list[PlainRow], config: Qwen3VLConfig, *, count: int, width: int, scored: int
) -> list[PlainBatch]:
    """Micro-batches of `count` rows of `width` tokens, `scored` of which have a place in the targets."""
    shapes = BatchShapes(
        rows=count,
        widths=(width,),
        num_targets=scored,
        images=max(len(row.example.grids) for row in rows),
        window=max((int(np.prod(grid)) for row in rows for grid in row.example.grids), default=0),
    )
    return [_batch(rows[at : at + count], shapes, config) for at in range(0, len(rows), count)]


def _batch(rows: list[PlainRow], shapes: BatchShapes, config: Qwen3VLConfig) -> PlainBatch:
    (width,) = shapes.widths
    made = collate(single_rows([row.example for row in rows], shapes.rows), shapes, width, config)
    advantages, pg, kl, salvage, old, ref = np.zeros((6, shapes.rows, shapes.num_targets), np.float32)
    places = {row.key: (number, slice(0, row.example.num_targets)) for number, row in enumerate(rows)}
    for row in rows:
        part = places[row.key]
        advantages[part], pg[part], kl[part] = row.advantage, row.pg_weight, row.kl_weight
        salvage[part] = row.salvage_weight
    targets = TokenBatch(
        index=made.targets.index,
        tokens=made.targets.tokens,
        advantages=advantages,
        pg_weight=pg,
        kl_weight=kl,
        salvage_weight=salvage,
        old_log_probs=old,
        ref_log_probs=ref,
    )
    return PlainBatch(made.inputs, targets, places)


def _behind(prompt: Example, response: np.ndarray) -> Example:
    return dataclasses.replace(
        prompt,
        tokens=np.concatenate([prompt.tokens[: prompt.prompt_length], response]),
        action_mask=np.zeros(len(response), bool),
    )
