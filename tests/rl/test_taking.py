"""Which groups an iteration takes, and what their requests are drawn with."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.decoding.requests import Request, Responses, Sampling
from rmsweb_jax.rl.gates import salvage_ds
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import Rollouts, make_group

PROMPTS = 4


def prompt(number: int) -> Prompt:
    encode: Any = None  # It is never read.
    return Prompt(SampleSize(f"p{number}", 8, 2, ()), encode, target="")


def responses(version: int) -> Responses:
    """Two of them with a token each."""
    return Responses(
        tokens=(np.ones(1, np.int32),) * 2,
        log_probs=(np.zeros(1, np.float32),) * 2,
        truncated=np.zeros(2, bool),
        versions=(np.asarray([version], np.int32),) * 2,
    )


class Answering:
    """A sampler that completes what it is asked at once."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self._new: list[Request] = []
        self._version = 0

    def load(self, model: Any, version: int) -> None:
        self._version = version

    def submit(self, request: Request) -> None:
        self.asked.append(request)
        self._new.append(request)

    def poll(self) -> list[tuple[Request, Responses]]:
        new, self._new = self._new, []
        return [(request, responses(self._version)) for request in new]

    def unload(self) -> None: ...


def rollouts(sampler: Any, **changes: Any) -> Rollouts:
    data: Any = types.SimpleNamespace(train=tuple(range(PROMPTS)), prompt=prompt, decode=lambda tokens: "")
    return Rollouts(sampler, data, Sampling(2, 1), lambda text, target: 0.0, salvage_ds, 0, **changes)


def test_groups_of_policies_before_the_oldest_are_dropped():
    kept = [
        make_group(prompt(place), responses(version), (0.0, 1.0), position=place)
        for place, version in enumerate((0, 1, 1, 2))
    ]
    own = rollouts(sampler := Answering(), kept=kept)
    own.load(None, 2)  # type: ignore[arg-type]
    assert [(group.position, group.version) for group in own.take(2, oldest=1)] == [(1, 1), (2, 1)]
    assert own.dropped == 1 and not sampler.asked


def test_each_policy_and_epoch_draws_with_seeds_of_its_own():
    asked = {}
    for version in (0, 1):
        own = rollouts(sampler := Answering())
        own.load(None, version)  # type: ignore[arg-type]
        own.take(2 * PROMPTS)
        read: list[Any] = [request.prompt for request in sampler.asked]
        seeds = [request.seed for request in sampler.asked]
        asked[version] = list(zip([one.size.sample_id for one in read], seeds, strict=True))
    prompts, seeds = zip(*(asked[0] + asked[1]), strict=True)
    assert set(prompts[:PROMPTS]) == set(prompts[PROMPTS : 2 * PROMPTS])
    # A seed for each version and epoch; the prompt is part of the key.
    assert len(set(seeds)) == 4 and len(set(zip(prompts, seeds, strict=True))) == 4 * PROMPTS
