"""Dynamic sampling (DAPO): takes groups until enough pass the gates, then splits them into steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.rollout import FIRST_SHARE, Group, Rollouts, Turn


@dataclasses.dataclass(frozen=True)
class SampledGroups:
    """The groups of one iteration, in the order of their prompts.

    Attributes:
      accepted: accepted groups to train on: at most `train_groups`, a multiple of the mini-batch.
      salvaged: rejected groups that are kept for the salvage anchor and the KL term.
      generated: every group that was taken, for the metrics.
      batches: number of generation batches, of which the last may be a part.
      exhausted: all batches were used and too few groups were accepted.
    """

    accepted: tuple[Group, ...]
    salvaged: tuple[Group, ...]
    generated: tuple[Group, ...]
    batches: int
    exhausted: bool


def dynamic_sampling(
    source: Rollouts,
    config: RlConfig,
    report: Callable[[int, int], None] = lambda accepted, batches: None,
) -> SampledGroups:
    """Takes groups until `train_groups` are accepted, at most `max_gen_batches` of `gen_batch_groups` each.

    Of D rejected groups, the first `M floor(min(D, max_salvage_groups) / M)` in order are kept, with
    M = `mini_batch_groups`. When the batches run out, the accepted groups are rounded down to a multiple of
    M, possibly zero. Source: RMSWeb, appendix "Salvage-DS RL configuration".

    `config.groups_at_once` are taken at a time. Without `max_staleness` these are whole batches, all by the
    version of the source, and prompts of the next one are begun where it is likely to be needed. Otherwise
    groups by earlier versions, up to so many, are taken as well, and the source goes on with as many more
    prompts.

    Args:
      report: called with (accepted groups, batches) after each batch.
    """
    batch_groups, train_groups, mini = config.gen_batch_groups, config.train_groups, config.mini_batch_groups
    accepted: list[Group] = []
    rejected: list[Group] = []
    generated: list[Group] = []
    most = config.max_gen_batches * batch_groups
    count = config.groups_at_once
    while len(accepted) < train_groups and len(generated) < most:
        # A guess counts as a batch, so that a first group that is rejected decides nothing. The last
        # iterations give a better one, but with it a resumed run would begin other prompts, next to which
        # log-probabilities round differently: it is left to runs that do not repeat bit for bit.
        guess = source.share if config.max_staleness else FIRST_SHARE
        share = (len(accepted) + guess * batch_groups) / (len(generated) + batch_groups)
        if config.max_staleness:
            # What an iteration takes, for each version that may be trained on. Some groups may be left over
            # and too old after the next iteration; fewer would leave the update waiting.
            needed = min(most, round(train_groups / max(share, 1 / config.max_gen_batches)))
            begun = source.position + (config.max_staleness + 1) * needed - len(generated)
            source.limit = max(source.limit, begun)
        else:
            another = len(accepted) + share * count < train_groups and len(generated) + count < most
            source.limit = source.position + count * (2 if another else 1)
        for group in source.take(count, source.version - config.max_staleness):
            generated.append(group)
            if group.accepted:
                accepted.append(group)
            elif group.turns:
                rejected.append(group)
                if len(rejected) > config.max_salvage_groups:
                    group.release()  # No step will read it.
        if len(generated) % batch_groups == 0:
            report(len(accepted), len(generated) // batch_groups)
    # Iterations are short: a single one says little.
    source.share += (len(accepted) / len(generated) - source.share) / 2
    trained = min(len(accepted), train_groups) // mini * mini
    salvaged = min(len(rejected), config.max_salvage_groups) // mini * mini
    return SampledGroups(
        accepted=tuple(accepted[:trained]),
        salvaged=tuple(rejected[:salvaged]),
        generated=tuple(generated),
        batches=-(-len(generated) // batch_groups),
        exhausted=len(accepted) < train_groups,
    )


@dataclasses.dataclass(frozen=True)
class MiniBatch:
    """The turns of one optimizer step, of accepted and of salvaged groups."""

    accepted: tuple[Turn, ...]
    salvaged: tuple[Turn, ...]


def mini_batches(sampled_groups: SampledGroups, config: RlConfig) -> list[MiniBatch]:
    """Splits groups into optimizer steps, each with its share of accepted and of salvaged groups, in order.

    With `mini_batch_of` "accepted" a step has `mini_batch_groups` accepted groups; without any, the salvaged
    ones are split over as many steps as a full iteration has. With "all" a step has `mini_batch_groups` of
    both together.
    """
    accepted, salvaged = sampled_groups.accepted, sampled_groups.salvaged
    mini = config.mini_batch_groups
    if config.mini_batch_of == "all":
        # The salvaged groups lie evenly among the accepted ones: in a step of them alone AdamW, which divides
        # by the gradient's size, would undo their weight.
        places = [(np.arange(len(one)) + 0.5) / len(one) for one in (accepted, salvaged)]
        steps = np.argsort(np.concatenate(places), kind="stable").reshape(-1, mini)
        first = len(accepted)
        parts = [(step[step < first], step[step >= first] - first) for step in steps]
    else:
        count = len(accepted) // mini or min(config.train_groups // mini, len(salvaged))
        spread = [np.array_split(np.arange(len(one)), max(count, 1)) for one in (accepted, salvaged)]
        parts = list(zip(*spread, strict=True))

    def turns(groups: tuple[Group, ...], part: np.ndarray) -> tuple[Turn, ...]:
        return tuple(turn for at in part for turn in groups[at].turns)

    batches = [MiniBatch(turns(accepted, one), turns(salvaged, other)) for one, other in parts]
    # The prompts of all turns may have been too long.
    return [batch for batch in batches if batch.accepted or batch.salvaged]
