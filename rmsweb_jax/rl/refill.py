"""Drawing prompts until enough groups are accepted, and sharing them out over optimizer steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from rmsweb_jax.errors import UserError
from rmsweb_jax.splits import stable_hash

G = TypeVar("G")
G_co = TypeVar("G_co", covariant=True)

# However settled a prompt is, the policy may change, so that it is tried again now and then.
LEAST_WEIGHT = 0.1
# Share of groups that is taken to pass the gates before any has been scored.
_FIRST_GUESS = 0.5


class Draw(NamedTuple):
    """One use of a prompt: its number, and how often the order had been gone through before."""

    number: int
    epoch: int


class PromptCycle:
    """Prompts in an order that is shuffled anew each epoch, from `seed` and the epoch alone.

    Args:
      settled_weight: a prompt whose last n groups all failed the std gate (always mastered or always
        hopeless) is drawn with probability `max(settled_weight ** n, LEAST_WEIGHT)`; 1 draws all of them.
      state: of an earlier cycle that this one continues.
    """

    def __init__(
        self,
        num_prompts: int,
        seed: int,
        settled_weight: float = 1.0,
        state: Mapping[str, Any] | None = None,
    ):
        self._num_prompts, self._seed, self._settled_weight = num_prompts, seed, settled_weight
        state = state or {"position": 0, "settled": {}}
        self._position = state["position"]
        self._settled = {int(number): count for number, count in state["settled"].items()}

    @property
    def state(self) -> dict[str, Any]:
        """All that a checkpoint needs to keep, as JSON."""
        settled = {str(number): count for number, count in sorted(self._settled.items())}
        return {"position": self._position, "settled": settled}

    def next(self, count: int) -> list[Draw]:
        draws = []
        while len(draws) < count:
            epoch, place = divmod(self._position, self._num_prompts)
            number = int(self._order(epoch)[place])
            if self._is_drawn(number, epoch):
                draws.append(Draw(number, epoch))
            self._position += 1
        return draws

    def give_back(self, draws: Sequence[Draw]) -> None:
        """Returns the latest draws, which were not used: they come next."""
        epoch, number = draws[0].epoch, draws[0].number
        self._position = epoch * self._num_prompts + self._order(epoch).tolist().index(number)

    def observe(self, number: int, settled: bool) -> None:
        """Tells whether a prompt's latest group failed the std gate; it counts from the next draw on."""
        if settled:
            self._settled[number] = self._settled.get(number, 0) + 1
        else:
            self._settled.pop(number, None)

    def _is_drawn(self, number: int, epoch: int) -> bool:
        weight = max(self._settled_weight ** self._settled.get(number, 0), LEAST_WEIGHT)
        return stable_hash("settled", self._seed, epoch, number) < weight * 2**31

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self._seed, epoch)).permutation(self._num_prompts)


class GenerationBatch(Protocol[G_co]):
    """Groups on their way."""

    def wait(self) -> None:
        """Waits until their responses are drawn."""
        ...

    def groups(self) -> Sequence[G_co]:
        """Scores them."""
        ...


class Generation(Protocol[G_co]):
    """Where groups come from, a batch at a time."""

    def begin(self) -> GenerationBatch[G_co]:
        """Begins with the next batch."""
        ...

    def give_back(self, batch: Any) -> None:
        """Takes back the batch begun last: its prompts come again."""
        ...


@dataclasses.dataclass(frozen=True)
class Refilled(Generic[G]):
    """The groups of one iteration, in arrival order.

    Attributes:
      accepted: at most `train_groups`, a multiple of the mini-batch.
      salvaged: rejected groups that are kept for the salvage anchor and the KL term.
      generated: every group that was sampled, for the metrics.
      batches: generation batches used.
      exhausted: they were all used and too few groups were accepted.
      surplus: accepted groups that are not trained on in this iteration.
    """

    accepted: tuple[G, ...]
    salvaged: tuple[G, ...]
    generated: tuple[G, ...]
    batches: int
    exhausted: bool
    surplus: tuple[G, ...]


def refill(
    generation: Generation[G],
    accepts: Callable[[G], bool],
    *,
    kept: Sequence[G] = (),
    train_groups: int,
    mini_batch_groups: int,
    max_gen_batches: int,
    max_salvage_groups: int,
    on_exhausted: str,
    report: Callable[[int, int], None] = lambda accepted, batches: None,
) -> Refilled[G]:
    """Generates until `train_groups` groups are accepted, at most `max_gen_batches` batches.

    Of D rejected groups the first `M floor(min(D, max_salvage_groups) / M)` in arrival order are kept, M
    being `mini_batch_groups`. When the batches run out, the accepted groups are rounded down to a multiple
    of M, maybe to none. Source: RMSWeb, appendix "Salvage-DS RL configuration".

    While the groups of a batch are scored, the next one has begun if it is likely to be needed.

    Args:
      kept: accepted groups left over from earlier iterations, used first.
      on_exhausted: "train" on what there is, or "error".
      report: told accepted groups and batches after each batch.

    Raises:
      UserError: exhausted, and `on_exhausted` is "error".
    """
    accepted: list[G] = list(kept)
    rejected: list[G] = []
    generated: list[G] = []
    batches = 0
    ahead: GenerationBatch[G] | None = None
    share = _FIRST_GUESS
    while len(accepted) < train_groups and batches < max_gen_batches:
        batch, ahead = ahead or generation.begin(), None
        batch.wait()
        batches += 1
        size = len(generated) / (batches - 1) if generated else train_groups
        if batches < max_gen_batches and len(accepted) + share * size < train_groups:
            ahead = generation.begin()
        groups = batch.groups()
        generated += groups
        for group in groups:
            (accepted if accepts(group) else rejected).append(group)
        share = (len(accepted) - len(kept)) / len(generated)
        report(len(accepted), batches)
    if ahead is not None:
        generation.give_back(ahead)
    exhausted = len(accepted) < train_groups
    if exhausted and on_exhausted == "error":
        raise UserError(
            f"{max_gen_batches} generation batches gave {len(accepted)} accepted groups of {train_groups}: "
            'raise config.max_gen_batches, take other prompts, or set config.on_exhausted="train"'
        )
    trained = min(len(accepted), train_groups) // mini_batch_groups * mini_batch_groups
    salvaged = min(len(rejected), max_salvage_groups) // mini_batch_groups * mini_batch_groups
    return Refilled(
        accepted=tuple(accepted[:trained]),
        salvaged=tuple(rejected[:salvaged]),
        generated=tuple(generated),
        batches=batches,
        exhausted=exhausted,
        surplus=tuple(accepted[trained:]),
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
