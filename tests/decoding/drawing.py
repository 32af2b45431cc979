"""Draws responses through an engine, for tests that compare them with the training forward."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmsweb_jax.data.batching import Encodable, Example
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Drawn, Request, Responses, Sampling, join
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.qwen.model import Qwen3VL

SIZES = EngineSizes(lanes=8, prompts=4, prompt_width=16, response_width=16, samples=4, chunks=(4, 8), steps=4)


def text_example(tokens: Sequence[int], number: int = 0) -> Example:
    """A prompt of text."""
    return Example(str(number), np.asarray(tokens, np.int32), len(tokens), np.zeros(0, bool))


def draw(
    model: Qwen3VL,
    prompts: Sequence[Encodable | Sequence[int]],
    sampling: Sampling,
    *,
    eos: int = -1,
    seeds: Sequence[int] | int = 0,
    prompt_ids: Sequence[int] | None = None,
    sizes: EngineSizes = SIZES,
    **settings: Any,
) -> list[Responses]:
    """Draws responses to prompts (tokens, or examples); settings are those of `Engine.for_policy`."""
    engine = Engine.for_policy(model, sizes, eos=eos, **settings)
    return generate(engine, requests(engine, prompts, sampling, seeds, prompt_ids))


def generate(engine: Engine, requests: Sequence[Request]) -> list[Responses]:
    """Draws all responses to the requests; returns them in order."""
    drawn = dict(join(engine.stream(requests)))
    return [drawn[request] for request in requests]


def step(engine: Engine) -> list[Drawn]:
    """What one step of an engine draws, which may be nothing."""
    engine._make_calls()
    engine._step()
    drawn = list(engine._reports)
    engine._reports.clear()
    return drawn


def busy(engine: Engine) -> bool:
    """True while a request waits or is decoded."""
    engine._make_calls()
    return bool(engine._all())


def requests(
    engine: Engine,
    prompts: Sequence[Encodable | Sequence[int]],
    sampling: Sampling,
    seeds: Sequence[int] | int = 0,
    prompt_ids: Sequence[int] | None = None,
) -> list[Request]:
    """Makes a request for each prompt; ids are their numbers by default."""
    return [
        Request(
            prompt if isinstance(prompt, Encodable) else text_example(prompt, number),
            sampling,
            seeds if isinstance(seeds, int) else seeds[number],
            number if prompt_ids is None else prompt_ids[number],
            engine.policy,
        )
        for number, prompt in enumerate(prompts)
    ]


def tokens_of(drawn: Sequence[Responses]) -> list[list[list[int]]]:
    """Tokens of each sample of each prompt."""
    return [[tokens.tolist() for tokens in responses.tokens] for responses in drawn]


def with_sizes(**changes: Any) -> EngineSizes:
    return dataclasses.replace(SIZES, **changes)
