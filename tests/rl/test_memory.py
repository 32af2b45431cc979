"""What rollouts take of the memory of devices and hosts."""

import dataclasses
import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.memory import abstract_weights, fit_memory
from rmsweb_jax.decoding.requests import Drawn, Request, Sampling
from rmsweb_jax.decoding.sizes import EngineSizes, token_bytes
from rmsweb_jax.decoding.weights import Layout
from rmsweb_jax.rl.gates import salvage_ds
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import Rollouts, Sampler
from rmsweb_jax.training.mesh import AXES, device_bytes
from tests.prompts import size_of

SIZES = EngineSizes(1, 1, 128, 64, samples=2, chunks=(64,))


@pytest.mark.parametrize("split", [False, True])
def test_lanes_fit_beside_the_weights_as_they_lie(model, split):
    mesh = AbstractMesh((1, 4, 1), AXES)
    layout = Layout(dataclasses.replace(model.attention, mesh=mesh), split)
    alone = device_bytes(abstract_weights(model, Layout(model.attention)))
    weights = device_bytes(abstract_weights(model, layout))
    # Norms are not split.
    assert alone / 4 <= weights < alone / 3 if split else weights == alone
    each, held, memory = token_bytes(model.config.text, "float32", "model"), 50_000, 20 * alone
    fitted = fit_memory(model, SIZES, layout, memory, held)
    caches = (fitted.prompts * SIZES.prompt_width + fitted.lanes * SIZES.response_width) // 4 * each
    assert fitted.lanes % 4 == 0 and 0.8 * memory < held + weights + caches <= 0.9 * memory


class Live:
    """Prompts whose encoded examples are counted while they are in memory."""

    def __init__(self):
        self._made: list[weakref.ref[Example]] = []

    def __len__(self) -> int:
        return sum(example() is not None for example in self._made)

    def prompt(self, number: int) -> Prompt:
        example = Example(f"p{number}", np.arange(8, dtype=np.int32), 6, np.ones(2, bool))
        return Prompt(size_of(example), functools.partial(self._encode, example), "")

    def _encode(self, example: Example) -> Example:
        made = dataclasses.replace(example)
        self._made.append(weakref.ref(made))
        return made


class OneByOne:
    """An engine with room for two requests, of which it completes the older one with every step."""

    hosts = (0,)

    def __init__(self, live: Live):
        self._requests: list[Request] = []
        self._live = live
        self.most = 0

    @property
    def wants(self) -> bool:
        return len(self._requests) < 2

    def load_adapters(self, slot: int, model: Any, version: int) -> None: ...

    def submit(self, request: Request) -> None:
        self._requests.append(request)

    def stream(self) -> Iterator[Drawn]:
        while self._requests:
            request = self._requests.pop(0)
            request.prompt.encoded()
            self.most = max(self.most, len(self._live))
            yield Drawn(request, 0, (0,), (0.0,), (0,), finish="length")


@pytest.mark.parametrize("late", [False, True])
def test_few_prompts_are_encoded_ahead_and_none_stays_so(late):
    live = Live()
    engine: Any = OneByOne(live)
    data: Any = None  # Prompts of the run are not read.
    sampler = Sampler(lambda _: engine)
    rollouts = Rollouts(sampler, data, Sampling(), lambda reply, target: 0.0, salvage_ds, 0)
    rollouts.load(data, 0)
    free = threading.Event()
    for _ in range(2 * late):  # The threads come to their work only after the engine has done it.
        sampler._threads.submit(free.wait)
    requests = [Request(live.prompt(number), Sampling()) for number in range(40)]
    try:
        assert len(rollouts.draw(requests)) == 40
    finally:
        rollouts.close()
        free.set()
        sampler._threads.shutdown()
    # Those that the engine has, and eight more.
    assert 0 < engine.most <= 2 + 8 and len(live) == 0
