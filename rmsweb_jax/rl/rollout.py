"""Rollouts: generates K responses per prompt, locally or at an endpoint, and scores them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.sampler import Responses, Sampler, SamplingParams
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.rl.dynamic_sampling import PromptCycle, PromptDraw
from rmsweb_jax.rl.losses import GatedAdvantages, gates_on_host
from rmsweb_jax.rl.prompts import Prompt, RlData


@runtime_checkable
class RolloutFuture(Protocol):
    """Responses that are being generated."""

    def result(self) -> list[Responses]:
        """Waits for the responses; returns one entry per prompt, in order."""
        ...


@runtime_checkable
class RolloutEngine(Protocol):
    """Generates responses with a policy, on the training devices or at an endpoint."""

    def load(self, model: Qwen3VL, version: int) -> None:
        """Switches to a new policy.

        Args:
          model: with its adapters; only read during this call.
          version: number of RL iterations that produced it.
        """
        ...

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: SamplingParams
    ) -> RolloutFuture:
        """Starts generating `sampling.num_samples` responses to each prompt.

        A response depends only on the policy, its prompt, the seed and the sample's index.

        Args:
          seeds: one per prompt.
        """
        ...

    def unload(self) -> None:
        """Frees the policy's weights and caches, so that the update has the memory."""
        ...


@dataclasses.dataclass(frozen=True)
class Group:
    """K responses to one prompt and their rewards.

    Attributes:
      responses: tokens of each sample, the end token included.
      log_probs: their log-probabilities under the sampler.
      truncated: True where a response has no end token within the limit.
      rewards: reward of each sample.
      advantages: after the gates; 0 before `with_gates`.
      accepted: the group passed both gates.
      version: version of the policy that generated the responses.
    """

    prompt: Prompt
    responses: tuple[Int32[np.ndarray, " _"], ...]
    log_probs: tuple[Float32[np.ndarray, " _"], ...]
    truncated: Bool[np.ndarray, " samples"]
    rewards: Float64[np.ndarray, " samples"]
    advantages: Float[np.ndarray, " samples"]
    accepted: bool = False
    version: int = 0


def with_gates(groups: Sequence[Group], gates: GatedAdvantages) -> list[Group]:
    """Returns the groups with their advantages and the gates' decisions."""
    return [
        dataclasses.replace(group, advantages=gates.advantages[number], accepted=bool(gates.accepted[number]))
        for number, group in enumerate(groups)
    ]


class LocalRolloutEngine:
    """Generates on the training mesh.

    Args:
      merge, cache_dtype: see `Generator`.
    """

    def __init__(self, sampler: Sampler, *, merge: bool = True, cache_dtype: str = "model"):
        self._sampler, self._merge, self._cache_dtype = sampler, merge, cache_dtype
        self._policy: Generator | None = None

    def load(self, model: Qwen3VL, version: int) -> None:
        self._policy = Generator(model, merge=self._merge, cache_dtype=self._cache_dtype)

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: SamplingParams
    ) -> RolloutFuture:
        assert self._policy is not None, "load a policy first"
        return self._sampler.submit(self._policy, prompts, seeds, sampling)

    def unload(self) -> None:
        self._policy = None


def score_groups(
    prompts: Sequence[Prompt],
    drawn: Sequence[Responses],
    decode: Callable[[Int32[np.ndarray, " tokens"]], str],
    score: Callable[[str, str], float],
    version: int = 0,
) -> list[Group]:
    """Scores responses into one group per prompt, in order.

    Args:
      decode: response tokens -> text.
      score: (response text, target text) -> reward.
    """
    groups = []
    for prompt, responses in zip(prompts, drawn, strict=True):
        rewards = [score(decode(tokens), prompt.target) for tokens in responses.tokens]
        groups.append(
            Group(
                prompt,
                responses.tokens,
                responses.log_probs,
                responses.truncated,
                np.asarray(rewards, np.float64),
                np.zeros(len(rewards)),
                version=version,
            )
        )
    return groups


Score = Callable[[str, str], float]


@dataclasses.dataclass
class RolloutBatch:
    """A generation batch: prompts whose responses are being generated."""

    rollouts: Rollouts
    draws: Sequence[PromptDraw]
    prompts: Sequence[Prompt]
    future: RolloutFuture
    drawn: Sequence[Responses] = ()

    def wait(self) -> None:
        start = time.monotonic()
        self.drawn = self.future.result()
        self.rollouts.seconds += time.monotonic() - start

    def groups(self) -> list[Group]:
        """Returns one group per prompt, in order, with advantages and the gates' decisions."""
        rollouts = self.rollouts
        groups = score_groups(
            self.prompts, self.drawn, rollouts.data.decode, rollouts.score, rollouts.version
        )
        rewards = np.stack([group.rewards for group in groups])
        gates = gates_on_host(rewards, **rollouts.gate)
        for draw, solved, unsolved in zip(self.draws, gates.solved, gates.unsolved, strict=True):
            # Kept until `close`: the next batch may have been drawn before this one was scored.
            rollouts.no_contrast[draw.number] = bool(solved or unsolved)
        return with_gates(groups, gates)


@dataclasses.dataclass
class Rollouts:
    """The source of an iteration's generation batches.

    Attributes:
      engine: with the policy loaded.
      cycle: order of the prompts.
      score: (response text, target text) -> reward.
      gate: settings of `gated_advantages`.
      size: prompts per batch.
      seed, version: of run and policy; with prompt and epoch they determine the responses.
      no_contrast: by prompt index, whether its latest group failed the std gate.
      seconds: time spent waiting for responses.
    """

    engine: RolloutEngine
    data: RlData
    cycle: PromptCycle
    sampling: SamplingParams
    score: Score
    gate: Mapping[str, Any]
    size: int
    seed: int
    version: int
    no_contrast: dict[int, bool] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def begin(self) -> RolloutBatch:
        """Takes the next prompts and starts generating their responses."""
        draws = self.cycle.next(self.size)
        prompts = [self.data.prompt(self.data.train[draw.number]) for draw in draws]
        # The sampler adds the prompt's id and the sample's index, so a response does not depend on its batch.
        seeds = [stable_hash(self.seed, self.version, draw.epoch) for draw in draws]
        return RolloutBatch(self, draws, prompts, self.engine.generate(prompts, seeds, self.sampling))

    def give_back(self, batch: RolloutBatch) -> None:
        """Drops an unneeded batch; the next iteration begins with its prompts."""
        self.cycle.give_back(batch.draws)

    def close(self) -> None:
        """Reports the gates' results to the cycle; they affect the order from the next iteration on."""
        for number, no_contrast in self.no_contrast.items():
            self.cycle.observe(number, no_contrast)


def groups_to_json(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Serializes groups losslessly for a checkpoint; prompts are stored by id."""
    # float32 values as Python floats: JSON keeps enough digits for them to come back bit for bit.
    return [
        {
            "prompt_id": group.prompt.prompt_id,
            "responses": [tokens.tolist() for tokens in group.responses],
            "log_probs": [part.tolist() for part in group.log_probs],
            "truncated": group.truncated.tolist(),
            "rewards": group.rewards.tolist(),
            "advantages": group.advantages.tolist(),
            "version": group.version,
        }
        for group in groups
    ]


def groups_from_json(values: Sequence[Mapping[str, Any]], data: RlData) -> list[Group]:
    """Restores the groups of `groups_to_json`; reads their prompts from the data set."""
    return [
        Group(
            prompt=data.prompt(data.numbers[value["prompt_id"]]),
            responses=tuple(np.asarray(tokens, np.int32) for tokens in value["responses"]),
            log_probs=tuple(np.asarray(part, np.float32) for part in value["log_probs"]),
            truncated=np.asarray(value["truncated"], bool),
            rewards=np.asarray(value["rewards"], np.float64),
            advantages=np.asarray(value["advantages"], np.float32),
            # Only accepted groups are carried over.
            accepted=True,
            version=value["version"],
        )
        for value in values
    ]


def fresh_enough(groups: Sequence[Group], version: int, max_staleness: int) -> tuple[Group, ...]:
    """Returns the groups whose policy is at most `max_staleness` iterations older than `version`."""
    return tuple(group for group in groups if version - group.version <= max_staleness)
