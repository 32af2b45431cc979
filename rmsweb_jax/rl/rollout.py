"""K responses to each prompt, wherever they are drawn, and their rewards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen3_vl.decode import Generator
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.records.schema import Message
from rmsweb_jax.rl.advantages import GatedAdvantages
from rmsweb_jax.sampling import Responses, Sampler, Sampling


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A mined decision, tokenized.

    Attributes:
      prompt_id: of the record.
      example: prompt and target tokens, the target's action span, images.
      target: the verified reply as text, which responses are scored against.
      messages: the prompt as recorded, for engines that tokenize themselves.
      category: failure mode that it was mined for; empty in the full corpus.
    """

    prompt_id: str
    example: Example
    target: str
    messages: tuple[Message, ...] = ()
    category: str = ""


class Drawing(Protocol):
    """Responses that are being drawn."""

    def result(self) -> list[Responses]:
        """Waits for them: one entry a prompt, in order."""
        ...


class Engine(Protocol):
    """Draws responses from a policy: here on the accelerators that train, or at an endpoint."""

    def load(self, model: Qwen3VL, version: int) -> None:
        """Takes a new policy.

        Args:
          model: with its adapters; read during this call alone.
          version: optimizer iterations behind it.
        """
        ...

    def draw(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> Drawing:
        """Begins to draw `sampling.num_samples` responses to each prompt.

        A response depends on the policy, its prompt, the seed and the sample's number alone.

        Args:
          seeds: one a prompt.
        """
        ...

    def unload(self) -> None:
        """Lets go of the policy, and of drawings nobody waits for, so that the update has the memory."""
        ...


@dataclasses.dataclass(frozen=True)
class Group:
    """The K responses to one prompt.

    Attributes:
      responses: per sample [R_i] int32, the end token included.
      log_probs: per sample [R_i] float32, as the sampler saw them.
      truncated: [K] bool, no end token within the limit.
      rewards: [K] float64.
      advantages: [K] float32 after the gates; 0 until `with_gates`.
      accepted: whether both gates let it pass.
      version: of the policy that drew the responses.
    """

    prompt: Prompt
    responses: tuple[np.ndarray, ...]
    log_probs: tuple[np.ndarray, ...]
    truncated: np.ndarray
    rewards: np.ndarray
    advantages: np.ndarray
    accepted: bool = False
    version: int = 0


def with_gates(groups: Sequence[Group], gates: GatedAdvantages) -> list[Group]:
    """The groups with their advantages and the gates' verdict."""
    return [
        dataclasses.replace(group, advantages=gates.advantages[number], accepted=bool(gates.accepted[number]))
        for number, group in enumerate(groups)
    ]


class LocalEngine:
    """Draws on the mesh that trains.

    Args:
      merge, cache_dtype: see `Generator`.
    """

    def __init__(self, sampler: Sampler, *, merge: bool = True, cache_dtype: str = "model"):
        self._sampler, self._merge, self._cache_dtype = sampler, merge, cache_dtype
        self._policy: Generator | None = None

    def load(self, model: Qwen3VL, version: int) -> None:
        self._policy = Generator(model, merge=self._merge, cache_dtype=self._cache_dtype)

    def draw(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> Drawing:
        assert self._policy is not None, "load a policy first"
        return self._sampler.start(self._policy, [prompt.example for prompt in prompts], seeds, sampling)

    def unload(self) -> None:
        self._policy = None


def score_groups(
    prompts: Sequence[Prompt],
    drawn: Sequence[Responses],
    decode: Callable[[np.ndarray], str],
    score: Callable[[str, str], float],
    version: int = 0,
) -> list[Group]:
    """One group a prompt, in order.

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
