"""The micro-batches of an optimizer step: every turn as a tree, with each token's part in the objective."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from rmsweb_jax.data.batching import Batch, Branch, LazyTree, Span, Tree, lay_out, spans
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import Packer, RowShape, TreeSize, choose_packer
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.flops import Work
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.dynamic_sampling import MiniBatch
from rmsweb_jax.rl.losses import VALUES, token_weights
from rmsweb_jax.rl.rollout import Turn
from rmsweb_jax.training.mesh import process_rows

# Steps that are packed in advance, to choose the rows of a run, and their share of responses without an end.
_TRIALS, _RUNAWAYS = 48, 0.01


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """Rows for one call of the model.

    Attributes:
      batch: the rows that this process holds.
      spans: places of the branches in the rows of all processes.
      executed: work of all rows as they are computed, with padding.
    """

    batch: Batch
    spans: tuple[Span, ...]
    executed: Work


def micro_batches(
    trees: Sequence[LazyTree], packer: Packer, config: Qwen3VLConfig, held: Sequence[int] | None = None
) -> Iterator[MicroBatch]:
    """Makes the micro-batches of one optimizer step, each when it is asked for.

    Args:
      held: numbers of the rows that this process holds; by default all.
    """
    sizes = [tree.size for tree in trees]
    for rows in packer.pack(sizes):
        yield MicroBatch(
            lay_out(lambda number: trees[number].made(), rows, packer.shape, config, held, VALUES),
            tuple(spans(rows, sizes)),
            packer.executed(rows, sizes),
        )


def empty_batch(shape: RowShape, config: Qwen3VLConfig, mesh: Mesh) -> Batch:
    """Makes this process's rows of a micro-batch of padding, to compile programs with."""
    held = process_rows(mesh, shape.rows)
    return lay_out(_no_tree, (), shape, config, held, VALUES)


def _no_tree(number: int) -> Tree:
    raise IndexError(number)


def rl_packer(
    sizes: Sequence[SampleSize], config: RlConfig, model: Qwen3VLConfig, shards: int, *, online: bool = False
) -> Packer:
    """Chooses the rows of a run by packing steps of random prompts.

    Responses are as long as targets, and some run to the limit. A step has as many rejected groups as
    accepted ones, as far as they are kept: where fewer are rejected, a run says how full its rows are.

    Args:
      online: rows fit the longest prompt and the largest screenshot that the limits allow.

    Raises:
      UserError: a prompt and one response do not fit a row.
    """
    rng = np.random.default_rng(config.seed)
    accepted = config.mini_batch_groups
    salvaged = min(accepted, config.max_salvage_groups * accepted // config.train_groups)
    if config.mini_batch_of == "all":
        accepted, salvaged = accepted - salvaged // 2, salvaged // 2
    targets = np.asarray([size.num_targets for size in sizes])
    longest = max(config.max_response_tokens, int(targets.max()))
    steps = []
    for _ in range(_TRIALS):
        chosen = rng.choice(len(sizes), accepted + salvaged, replace=len(sizes) < accepted + salvaged)
        step = []
        for number, size in enumerate(sizes[index] for index in chosen):
            responses = rng.choice(targets, config.num_samples + (number >= accepted))
            responses[rng.random(len(responses)) < _RUNAWAYS] = config.max_response_tokens
            step.append(TreeSize(size.prompt_length, tuple(responses.tolist()), size.patches))
        steps.append(step)
    patches = [count for size in sizes for count in size.patches]
    prompts = [size.prompt_length for size in sizes]
    if online:
        patches.append(config.max_pixels // model.vision.patch_size**2)
        prompts.append(config.max_prompt_tokens)
    return choose_packer(
        steps,
        model,
        rows=shards,
        least=max(prompts) + longest,
        most=config.row_tokens,
        multiple=config.row_multiple,
        images=max(int(online), *(len(size.patches) for size in sizes)),
        window=max(patches, default=0),
    )


def trees_of(batch: MiniBatch, *, salvage: bool) -> list[LazyTree]:
    """Makes the tree of each turn of an optimizer step, those of accepted groups first.

    The branches are the turn's responses, in order, and after them the salvage target of a rejected turn.
    The surrogate is a mean over accepted responses, the KL term over all responses, the anchor over salvaged
    groups (their K samples share one target, so one sequence represents them).

    Args:
      salvage: False leaves out the targets (anchor weight 0).
    """
    turns = (*batch.accepted, *batch.salvaged)
    # Two denominators. verl's actor masks both terms alike: with rejected rows in the mask they dilute the
    # surrogate, without them they have no KL term (docs/results/verl.md).
    accepted_weight = sum(turn.total_weight for turn in batch.accepted)
    total_weight = sum(turn.total_weight for turn in turns)
    accepted_tokens = sum(len(tokens) for turn in batch.accepted for tokens in turn.responses)
    # Turns of episodes have no target, but for those that are verified replies to their task.
    num_anchored = sum(bool(turn.prompt.target) for turn in batch.salvaged)

    def responses(turn: Turn, accepted: bool) -> Iterator[Branch]:
        for sample, tokens in enumerate(turn.responses):
            mask = np.ones(len(tokens), bool)
            values: dict[str, Any] = {
                "kl_weight": token_weights(mask, total_weight / turn.weight(sample)),
                "behaviour_log_probs": turn.log_probs[sample],
            }
            if accepted:
                values["pg_weight"] = token_weights(mask, accepted_weight / turn.weight(sample))
                values["token_mean_weight"] = 1 / accepted_tokens
                values["advantages"] = float(turn.advantages[sample])
            yield Branch(tokens, values)

    def tree(turn: Turn, accepted: bool) -> LazyTree:
        lengths = [len(tokens) for tokens in turn.responses]
        anchored = salvage and not accepted and bool(turn.prompt.target)
        size = turn.prompt.size
        if anchored:
            lengths.append(size.num_targets)

        def make() -> Tree:
            example, branches = turn.prompt.encoded(), list(responses(turn, accepted))
            if anchored:
                anchor = token_weights(example.action_mask, num_anchored)
                branches.append(Branch(example.target, {"salvage_weight": anchor}))
            return Tree(example, tuple(branches))

        return LazyTree(TreeSize(size.prompt_length, tuple(lengths), size.patches), make)

    return [tree(turn, number < len(batch.accepted)) for number, turn in enumerate(turns)]
