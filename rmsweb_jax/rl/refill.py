"""Drawing prompts until enough groups are accepted, and sharing them out over optimizer steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from rmsweb_jax.errors import UserError

G = TypeVar("G")


class Draw(NamedTuple):
    """One use of a prompt: its number, and how often the order had been gone through before."""

    number: int
    epoch: int


class PromptCycle:
    """Prompts in an order that is shuffled anew each epoch, from `seed` and the epoch alone.

    Attributes:
      drawn: how many were drawn so far; all that a checkpoint needs to keep.
    """

    def __init__(self, num_prompts: int, seed: int, drawn: int = 0):
        self._num_prompts, self._seed = num_prompts, seed
        self.drawn = drawn

    def next(self, count: int) -> list[Draw]:
        draws = []
        for position in range(self.drawn, self.drawn + count):
            epoch, place = divmod(position, self._num_prompts)
            draws.append(Draw(int(self._order(epoch)[place]), epoch))
        self.drawn += count
        return draws

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(self._num_prompts)


@dataclasses.dataclass(frozen=True)
class Refilled(Generic[G]):
    """The groups of one iteration, in arrival order.

    Attributes:
      accepted: at most `train_groups`, a multiple of the mini-batch.
      salvaged: rejected groups that are kept for the salvage anchor and the KL term.
      generated: every group that was sampled, for the metrics.
      batches: generation batches used.
      exhausted: they were all used and too few groups were accepted.
      surplus: accepted groups that are not trained on.
    """

    accepted: tuple[G, ...]
    salvaged: tuple[G, ...]
    generated: tuple[G, ...]
    batches: int
    exhausted: bool
    surplus: int


def refill(
    generate: Callable[[], Sequence[G]],
    accepts: Callable[[G], bool],
    *,
    train_groups: int,
    mini_batch_groups: int,
    max_gen_batches: int,
    max_salvage_groups: int,
    on_exhausted: str,
) -> Refilled[G]:
    """Calls `generate` until `train_groups` groups are accepted, at most `max_gen_batches` times.

    Of D rejected groups the first `M floor(min(D, max_salvage_groups) / M)` in arrival order are kept, M
    being `mini_batch_groups`. When the batches run out, the accepted groups are rounded down to a multiple
    of M, maybe to none. Source: RMSWeb, appendix "Salvage-DS RL configuration".

    Args:
      on_exhausted: "train" on what there is, or "error".

    Raises:
      UserError: exhausted, and `on_exhausted` is "error".
    """
    accepted: list[G] = []
    rejected: list[G] = []
    generated: list[G] = []
    batches = 0
    while len(accepted) < train_groups and batches < max_gen_batches:
        groups = generate()
        batches += 1
        generated += groups
        for group in groups:
            (accepted if accepts(group) else rejected).append(group)
    exhausted = len(accepted) < train_groups
    if exhausted and on_exhausted == "error":
        raise UserError(
            f"{max_gen_batches} generation batches gave {len(accepted)} accepted groups of {train_groups}: "
            'raise config.max_gen_batches, take other prompts, or set config.on_exhausted="train"'
        )
    kept = min(len(accepted), train_groups) // mini_batch_groups * mini_batch_groups
    salvaged = min(len(rejected), max_salvage_groups) // mini_batch_groups * mini_batch_groups
    return Refilled(
        accepted=tuple(accepted[:kept]),
        salvaged=tuple(rejected[:salvaged]),
        generated=tuple(generated),
        batches=batches,
        exhausted=exhausted,
        surplus=len(accepted) - kept,
    )


@dataclasses.dataclass(frozen=True)
class MiniBatch(Generic[G]):
    """The groups of one optimizer step."""

    accepted: tuple[G, ...]
    salvaged: tuple[G, ...]


def mini_batches(refilled: Refilled[G], *, train_groups: int, mini_batch_groups: int) -> list[MiniBatch[G]]:
    """One optimizer step for every `mini_batch_groups` accepted groups, each with its share of the salvaged.

    Without accepted groups the salvaged ones are shared over as many steps as a full iteration has.
    """
    full = train_groups // mini_batch_groups
    steps = len(refilled.accepted) // mini_batch_groups or min(full, len(refilled.salvaged))
    if not steps:
        return []
    shares = [
        [part.tolist() for part in np.array_split(np.arange(len(groups)), steps)]
        for groups in (refilled.accepted, refilled.salvaged)
    ]
    return [
        MiniBatch(
            tuple(refilled.accepted[number] for number in accepted),
            tuple(refilled.salvaged[number] for number in salvaged),
        )
        for accepted, salvaged in zip(*shares, strict=True)
    ]
