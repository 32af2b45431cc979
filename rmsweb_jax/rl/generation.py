"""Generation batches: prompts drawn in order, their responses, rewards and gates."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.rl.advantages import gates_on_host
from rmsweb_jax.rl.prompts import RlData
from rmsweb_jax.rl.refill import Draw, PromptCycle
from rmsweb_jax.rl.rollout import Drawing, Engine, Group, Prompt, score_groups, with_gates
from rmsweb_jax.sampling import Responses, Sampling
from rmsweb_jax.splits import stable_hash

Score = Callable[[str, str], float]


@dataclasses.dataclass
class Batch:
    """Prompts whose responses are being drawn."""

    rollouts: Rollouts
    draws: Sequence[Draw]
    prompts: Sequence[Prompt]
    drawing: Drawing
    drawn: Sequence[Responses] = ()

    def wait(self) -> None:
        start = time.monotonic()
        self.drawn = self.drawing.result()
        self.rollouts.seconds += time.monotonic() - start

    def groups(self) -> list[Group]:
        """One group a prompt, in order, with its advantages and the gates' verdict."""
        rollouts = self.rollouts
        groups = score_groups(
            self.prompts, self.drawn, rollouts.data.decode, rollouts.score, rollouts.version
        )
        rewards = np.stack([group.rewards for group in groups])
        gates = gates_on_host(rewards, **rollouts.gate)
        for draw, solved, unsolved in zip(self.draws, gates.solved, gates.unsolved, strict=True):
            rollouts.settled[draw.number] = bool(solved or unsolved)
        return with_gates(groups, gates)


@dataclasses.dataclass
class Rollouts:
    """The generation batches of one iteration.

    Attributes:
      engine: has the policy.
      cycle: says which prompts are next.
      score: (response text, target text) -> reward.
      gate: settings of `gated_advantages`.
      size: prompts a batch.
      seed, version: of the run and of the policy; with prompt and epoch they decide the responses.
      settled: by number of the prompt, whether its latest group failed the std gate.
      seconds: waited for responses.
    """

    engine: Engine
    data: RlData
    cycle: PromptCycle
    sampling: Sampling
    score: Score
    gate: Mapping[str, Any]
    size: int
    seed: int
    version: int
    settled: dict[int, bool] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def begin(self) -> Batch:
        """Draws the next prompts, and begins with their responses."""
        draws = self.cycle.next(self.size)
        prompts = [self.data.prompt(self.data.train[draw.number]) for draw in draws]
        seeds = [stable_hash(self.seed, self.version, draw.epoch) for draw in draws]
        return Batch(self, draws, prompts, self.engine.draw(prompts, seeds, self.sampling))

    def give_back(self, batch: Batch) -> None:
        """Drops a batch that is not needed; its prompts come first in the next iteration."""
        self.cycle.give_back(batch.draws)

    def close(self) -> None:
        """Tells the cycle what became of the prompts; during an iteration their order does not change."""
        for number, settled in self.settled.items():
            self.cycle.observe(number, settled)
