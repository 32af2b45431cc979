"""Whether responses are what the training forward says, and the same in any company."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Responses
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.qwen.lora import LoRAParam
from rmsweb_jax.qwen.model import Qwen3VL
from tests.qwen.rows import log_probs
from tests.rl.eight_rows import plain_inputs


def randomize_adapters(model: Qwen3VL) -> None:
    """Fresh adapters change nothing; these do."""
    rng = np.random.default_rng(0)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(0.1 * rng.standard_normal(variable.shape, dtype=np.float32))


def forward_log_probs(
    model: Qwen3VL, prompt: Example, responses: Sequence[np.ndarray], sizes: EngineSizes
) -> list[np.ndarray]:
    """Log-probabilities of responses to a prompt by the training forward, each behind its own prompt.

    Args:
      sizes: of the engine; rows are scored one at a time.
    """
    width = sizes.prompt_width + sizes.response_width
    found = []
    for response in responses:
        tokens = np.concatenate([prompt.tokens[: prompt.prompt_length], response])
        row = dataclasses.replace(prompt, tokens=tokens, action_mask=np.zeros(len(response), bool))
        inputs = plain_inputs(
            [row], model.config, count=1, width=width, images=sizes.images, window=sizes.window
        )
        scores = np.asarray(log_probs(model, inputs))[0]
        found.append(scores[prompt.prompt_length : len(tokens)])
    return found


class Gap(NamedTuple):
    """The engine's log-probabilities against the training forward's.

    Attributes:
      tokens: compared.
      largest, mean: absolute differences, nats.
    """

    tokens: int
    largest: float
    mean: float


def log_prob_gap(
    model: Qwen3VL, prompts: Sequence[Example], drawn: Sequence[Responses], sizes: EngineSizes
) -> Gap:
    """Over all tokens of all responses."""
    parts = []
    for prompt, responses in zip(prompts, drawn, strict=True):
        scored = forward_log_probs(model, prompt, responses.tokens, sizes)
        parts += [np.abs(own - one) for own, one in zip(responses.log_probs, scored, strict=True)]
    apart = np.concatenate(parts)
    return Gap(len(apart), float(apart.max()), float(apart.mean()))


class Sameness(NamedTuple):
    """Responses of one call against those of another.

    Attributes:
      tokens: compared.
      unlike: responses with another token.
      largest: difference of log-probabilities, nats, up to the first other token.
    """

    tokens: int
    unlike: int
    largest: float


def sameness(drawn: Sequence[Responses], again: Sequence[Responses]) -> Sameness:
    """Compares the responses to the same prompts, in order."""
    tokens, unlike, largest = 0, 0, 0.0
    for one, other in zip(drawn, again, strict=True):
        for number, (mine, theirs) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            tokens += len(mine)
            shorter = min(len(mine), len(theirs))
            same = mine[:shorter] == theirs[:shorter]
            unlike += len(mine) != len(theirs) or not same.all()
            upto = shorter if same.all() else int(np.argmin(same))
            gap = np.abs(one.log_probs[number][:upto] - other.log_probs[number][:upto])
            largest = max(largest, float(gap.max(initial=0.0)))
    return Sameness(tokens, unlike, largest)
