"""Dynamic sampling (DAPO): draws prompts until enough groups pass the gates, then splits them into steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from jaxtyping import Integer

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.errors import UserError

G = TypeVar("G")
G_co = TypeVar("G_co", covariant=True)

# Smallest probability of drawing a prompt without contrast: the policy changes, and it may get contrast.
LEAST_WEIGHT = 0.1
# Assumed share of accepted groups before any group has been scored.
_FIRST_GUESS = 0.5


class PromptDraw(NamedTuple):
    """One use of a prompt: its index, and the epoch in which it is drawn."""

    number: int
    epoch: int


class PromptCycle:
    """Prompts in an order that is reshuffled each epoch, as a function of `seed` and the epoch only.

    Args:
      skip_solved_weight: a prompt whose last n groups all failed the std gate (always mastered or always
        hopeless) is drawn with probability `max(skip_solved_weight ** n, LEAST_WEIGHT)`; 1 draws all of them.
      state: `state` of an earlier cycle that this one continues.
    """

    def __init__(
        self,
        num_prompts: int,
        seed: int,
        skip_solved_weight: float = 1.0,
        state: Mapping[str, Any] | None = None,
    ):
        self._num_prompts, self._seed, self._skip_solved_weight = num_prompts, seed, skip_solved_weight
        # Position counts over all epochs; no_contrast holds the groups in a row that failed the std gate.
        state = state or {"position": 0, "no_contrast": {}}
        self._position = state["position"]
        self._no_contrast = {int(number): count for number, count in state["no_contrast"].items()}

    @property
    def state(self) -> dict[str, Any]:
        """The state that a checkpoint stores, JSON-serializable."""
        no_contrast = {str(number): count for number, count in sorted(self._no_contrast.items())}
        return {"position": self._position, "no_contrast": no_contrast}

    def next(self, count: int) -> list[PromptDraw]:
        """Takes the next `count` prompts; may cross the end of an epoch."""
        draws = []
        while len(draws) < count:
            epoch, place = divmod(self._position, self._num_prompts)
            number = int(self._order(epoch)[place])
            if self._is_drawn(number, epoch):
                draws.append(PromptDraw(number, epoch))
            self._position += 1
        return draws

    def give_back(self, draws: Sequence[PromptDraw]) -> None:
        """Returns unused draws, which must be the latest; `next` gives them again."""
        # Back to the position of the first of them. The order is a function of the epoch, so it can be found.
        epoch, number = draws[0].epoch, draws[0].number
        self._position = epoch * self._num_prompts + self._order(epoch).tolist().index(number)

    def observe(self, number: int, no_contrast: bool) -> None:
        """Records whether a prompt's latest group failed the std gate; affects later draws."""
        # One group with contrast resets the count: the prompt has something to teach again.
        if no_contrast:
            self._no_contrast[number] = self._no_contrast.get(number, 0) + 1
        else:
            self._no_contrast.pop(number, None)

    def _is_drawn(self, number: int, epoch: int) -> bool:
        weight = max(self._skip_solved_weight ** self._no_contrast.get(number, 0), LEAST_WEIGHT)
        # A hash (of 31 bits) and no generator: a resumed run and all processes draw the same prompts.
        return stable_hash("no_contrast", self._seed, epoch, number) < weight * 2**31

    def _order(self, epoch: int) -> Integer[np.ndarray, " prompts"]:
        return np.random.default_rng((self._seed, epoch)).permutation(self._num_prompts)


class GroupBatch(Protocol[G_co]):
    """A generation batch in flight."""

    def wait(self) -> None:
        """Waits until all responses are generated."""
        ...

    def groups(self) -> Sequence[G_co]:
        """Scores the responses and returns the groups."""
        ...


class GroupSource(Protocol[G_co]):
    """A source of generation batches."""

    def begin(self) -> GroupBatch[G_co]:
        """Starts the next batch."""
        ...

    def give_back(self, batch: Any) -> None:
        """Drops the batch that was started last; its prompts are drawn again."""
        ...


@dataclasses.dataclass(frozen=True)
class SampledGroups(Generic[G]):
    """The groups of one iteration, in arrival order.

    Attributes:
      accepted: accepted groups to train on: at most `train_groups`, a multiple of the mini-batch.
      salvaged: rejected groups that are kept for the salvage anchor and the KL term.
      generated: every group that was sampled, for the metrics.
      batches: number of generation batches.
      exhausted: all batches were used and too few groups were accepted.
      carried_over: accepted groups that this iteration does not train on.
    """

    accepted: tuple[G, ...]
    salvaged: tuple[G, ...]
    generated: tuple[G, ...]
    batches: int
    exhausted: bool
    carried_over: tuple[G, ...]


def dynamic_sampling(
    source: GroupSource[G],
    accepts: Callable[[G], bool],
    *,
    carried_over: Sequence[G] = (),
    train_groups: int,
    mini_batch_groups: int,
    max_gen_batches: int,
    max_salvage_groups: int,
    on_exhausted: str,
    report: Callable[[int, int], None] = lambda accepted, batches: None,
) -> SampledGroups[G]:
    """Generates until `train_groups` groups are accepted, at most `max_gen_batches` batches.

    Of D rejected groups, the first `M floor(min(D, max_salvage_groups) / M)` in order of arrival are kept,
    with M = `mini_batch_groups`. When the batches run out, the accepted groups are rounded down to a
    multiple of M, possibly zero. Source: RMSWeb, appendix "Salvage-DS RL configuration".

    The next batch is generated while a batch is scored, if it is likely to be needed.

    Args:
      carried_over: accepted groups of earlier iterations, used first.
      on_exhausted: "train" uses the groups that were accepted, "error" raises.
      report: called with (accepted groups, batches) after each batch.

    Raises:
      UserError: exhausted, and `on_exhausted` is "error".
    """
    accepted: list[G] = list(carried_over)
    rejected: list[G] = []
    generated: list[G] = []
    batches = 0
    ahead: GroupBatch[G] | None = None
    share = _FIRST_GUESS
    while len(accepted) < train_groups and batches < max_gen_batches:
        batch, ahead = ahead or source.begin(), None
        batch.wait()
        batches += 1
        size = len(generated) / (batches - 1) if generated else train_groups
        # Started before scoring, which then overlaps with its generation. The guess may be wrong either way:
        # a batch that turns out not to be needed is given back.
        if batches < max_gen_batches and len(accepted) + share * size < train_groups:
            ahead = source.begin()
        groups = batch.groups()
        generated += groups
        for group in groups:
            (accepted if accepts(group) else rejected).append(group)
        share = (len(accepted) - len(carried_over)) / len(generated)
        report(len(accepted), batches)
    if ahead is not None:
        source.give_back(ahead)
    exhausted = len(accepted) < train_groups
    if exhausted and on_exhausted == "error":
        raise UserError(
            f"{max_gen_batches} generation batches gave {len(accepted)} accepted groups of {train_groups}: "
            'raise config.max_gen_batches, use other prompts, or set config.on_exhausted="train"'
        )
    trained = min(len(accepted), train_groups) // mini_batch_groups * mini_batch_groups
    salvaged = min(len(rejected), max_salvage_groups) // mini_batch_groups * mini_batch_groups
    return SampledGroups(
        accepted=tuple(accepted[:trained]),
        salvaged=tuple(rejected[:salvaged]),
        generated=tuple(generated),
        batches=batches,
        exhausted=exhausted,
        carried_over=tuple(accepted[trained:]),
    )


@dataclasses.dataclass(frozen=True)
class MiniBatch(Generic[G]):
    """The groups of one optimizer step."""

    accepted: tuple[G, ...]
    salvaged: tuple[G, ...]


def mini_batches(
    sampled_groups: SampledGroups[G], *, train_groups: int, mini_batch_groups: int
) -> list[MiniBatch[G]]:
    """Splits groups into steps of `mini_batch_groups` accepted groups and a share of the salvaged ones.

    Without accepted groups, the salvaged groups are split over as many steps as a full iteration has.
    """
    # Accepted groups fill whole steps; salvaged ones are spread evenly over them, in order of arrival.
    full = train_groups // mini_batch_groups
    steps = len(sampled_groups.accepted) // mini_batch_groups or min(full, len(sampled_groups.salvaged))
    if not steps:
        return []
    shares = [
        [part.tolist() for part in np.array_split(np.arange(len(groups)), steps)]
        for groups in (sampled_groups.accepted, sampled_groups.salvaged)
    ]
    return [
        MiniBatch(
            tuple(sampled_groups.accepted[number] for number in accepted),
            tuple(sampled_groups.salvaged[number] for number in salvaged),
        )
        for accepted, salvaged in zip(*shares, strict=True)
    ]
