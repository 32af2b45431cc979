"""Other caches, dtypes and adapters, other batches, and pools that refill: the rest of `proof_sampler`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.sampler import Responses, SamplingParams
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from tests.rl.sampler_checks import Gap, Sameness, log_prob_gap, sameness
from tests.rl.sampler_sides import (
    SAMPLES,
    Run,
    Timed,
    make_prompt,
    make_sampler,
    special_tokens,
    timed_draw,
)

SLOTS = 4


def unlike_prompts(model: Qwen3VL, count: int) -> list[Example]:
    """Prompts of 40 to 200 tokens; every other one shows a screenshot of 25."""
    lengths = np.random.default_rng(0).integers(40, 201, count)
    return [
        make_prompt(model.config, number, int(length), 5 * (number % 2))
        for number, length in enumerate(lengths)
    ]


def forward_gap(model: Qwen3VL, *, merge: bool = True, cache_dtype: str = "model") -> Gap:
    """Log-probabilities against the training forward's: more prompts than slots, more tokens than a block."""
    prompts, most = unlike_prompts(model, 6), 160
    sampling = SamplingParams(SAMPLES, most, 1.0, eos=1, banned=special_tokens(model.config))
    sampler = make_sampler(model.config, prompts, SLOTS)
    drawn = sampler.generate(Timed(model, merge=merge, cache_dtype=cache_dtype), prompts, range(6), sampling)
    return log_prob_gap(model, prompts, drawn, sampler.shapes, most)


def other_batches(model: Qwen3VL) -> dict[str, Sameness]:
    """The responses to 16 prompts, sampled in other company, against those of one call with four slots."""
    prompts, most = unlike_prompts(model, 16), 144
    # A prompt's responses end at unlike times: one word of 250 ends them.
    banned = (*special_tokens(model.config), *range(250, min(special_tokens(model.config))))
    sampling, policy = SamplingParams(SAMPLES, most, 1.0, eos=1, banned=banned), Timed(model)
    seeds = list(range(len(prompts)))

    def draw(numbers: Sequence[int], slots: int = SLOTS, other: Sequence[int] = ()) -> list[Responses]:
        sampler = make_sampler(model.config, prompts, slots)
        chosen = [seeds[number] + 1000 * (number in other) for number in numbers]
        return sampler.generate(policy, [prompts[number] for number in numbers], chosen, sampling)

    drawn, even = draw(seeds), seeds[::2]
    neighbours = draw(seeds, other=seeds[1::2])
    found = {
        "the same call again": draw(seeds),
        "in reverse": draw(seeds[::-1])[::-1],
        "one prompt a call": [draw([number])[0] for number in seeds],
        "2 slots": draw(seeds, 2),
        "8 slots": draw(seeds, 8),
    }
    made = {name: sameness(drawn, again) for name, again in found.items()}
    kept = [drawn[number] for number in even], [neighbours[number] for number in even]
    return made | {"neighbours with other seeds": sameness(*kept)}


class PoolUse(NamedTuple):
    """Responses of unlike lengths in a pool.

    Attributes:
      seconds: of every repetition.
      steps: of the pool.
      tokens: of all responses.
      lanes: slots times samples.
    """

    seconds: list[float]
    steps: int
    tokens: int
    lanes: int

    @property
    def occupancy(self) -> float:
        """The part of the lanes' steps that made a token."""
        return self.tokens / (self.steps * self.lanes)


def pool_use(
    model: Qwen3VL, policy: Timed, prompt: int, most: int, repeat: int
) -> tuple[PoolUse, PoolUse, Sameness]:
    """Slots that are filled as they fall free, and batches that wait for their longest, in turns.

    One word of 48 ends a response, so that lengths are geometric.
    """
    count = 4 * SLOTS
    prompts = [make_prompt(model.config, number, prompt) for number in range(count)]
    end = min(special_tokens(model.config))
    banned = (*special_tokens(model.config), *range(48, end))
    sampler = make_sampler(model.config, prompts, SLOTS)
    sampling = SamplingParams(SAMPLES, most, 1.0, eos=1, banned=banned)

    def draw(size: int) -> Run:
        parts = [
            timed_draw(policy, sampler, prompts[at : at + size], range(at, at + size), sampling)
            for at in range(0, count, size)
        ]
        responses = [one for part in parts for one in part.responses]
        seconds, prefill = (sum(getattr(part, name) for part in parts) for name in ("seconds", "prefill"))
        return Run(seconds, prefill, sum(part.steps for part in parts), 0, responses)

    draw(SLOTS)
    turns = [(draw(count), draw(SLOTS)) for _ in range(repeat)]
    tokens = sum(len(part) for responses in turns[0][0].responses for part in responses.tokens)
    lanes = SLOTS * SAMPLES
    sampled_groups, waiting = (
        PoolUse([turn[way].seconds for turn in turns], turns[0][way].steps, tokens, lanes) for way in (0, 1)
    )
    return sampled_groups, waiting, sameness(turns[0][0].responses, turns[0][1].responses)
