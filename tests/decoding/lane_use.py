"""Lanes that make a token: the engine's scheduler on responses of known lengths.

python -m tests.decoding.lane_use    (JSON; the real engine on all devices that JAX sees)
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.programs import Emitted, TopLogProbs
from rmsweb_jax.decoding.requests import Request, Sampling
from rmsweb_jax.decoding.sizes import EngineSizes, spare_prompts
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.mesh import make_mesh
from tests.decoding.drawing import busy, step, text_example
from tests.qwen.random_models import random_model
from tests.tiny import TINY

SAMPLES, PROMPTS = 8, 64
# Lengths of the demo's targets, and the paper's limit: as `tests.rl.row_fill`.
MEAN, SPREAD, LIMIT, RUNAWAYS = 280, 0.35, 2048, 0.01
PROMPT, CHUNK = 8, 8


class FixedLengths(Engine):
    """Cuts every response at a length that is known before.

    Attributes:
      lengths: of the responses to each request.
    """

    lengths: dict[Request, Sequence[int]]

    def _begin(self, lane: int, prompt: Any) -> None:
        super()._begin(lane, prompt)
        sequence = self._sequences[lane]
        assert sequence is not None
        self._table.limit[lane] = self.lengths[prompt.request][sequence.sample]


class Simulated(FixedLengths):
    """Counts steps instead of computing them, on any number of shards."""

    def __init__(self, model: Qwen3VL, sizes: EngineSizes, shards: int):
        self._simulated = shards
        super().__init__(model, sizes, eos=-1)

    def _allocate(self) -> Any:
        # No prompt is encoded, since no shard is held.
        self._shards, self._held, self._host_of = self._simulated, (), [0] * self._simulated
        return None, None

    def _run_chunk(self, *_: Any) -> None:
        return None

    def _run_decode(self, steps: int, free_lanes: int, restricted: bool) -> Emitted:
        left = np.asarray(
            [
                0 if sequence is None else self._table.limit[lane] - sequence.drawn
                for lane, sequence in enumerate(self._sequences)
            ]
        )
        running = np.sort(left[left > 0])
        ending = min(free_lanes - (len(left) - len(running)), len(running))
        made = min(steps, int(running[max(ending, 1) - 1]))
        empty = np.zeros((self.sizes.steps, len(left), 0))
        return Emitted(
            tokens=np.zeros((self.sizes.steps, len(left)), np.int32),
            log_probs=np.zeros((self.sizes.steps, len(left)), np.float32),
            drawn=np.minimum(left, made),
            done=(left > 0) & (left <= made),
            steps=np.asarray(made),
            top=TopLogProbs(empty, empty),
        )  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Use:
    """How a run used its lanes.

    Attributes:
      share: of the lanes' steps that made a token.
      steps, ideal_steps: of the engine, and of lanes that any sequence may take as soon as they are free.
      ideal_share: share with that many steps.
    """

    share: float
    steps: int
    ideal_steps: int
    ideal_share: float


def lengths(rng: np.random.Generator, runaways: float, limit: int = LIMIT, mean: float = MEAN) -> list[int]:
    """Of the responses to one prompt."""
    drawn = np.clip(mean * (1 + SPREAD * rng.normal(size=SAMPLES)), mean / 14, limit)
    return np.where(rng.random(SAMPLES) < runaways, limit, drawn).astype(int).tolist()


def run(engine: FixedLengths, iterations: Sequence[Sequence[Sequence[int]]], staleness: int) -> Use:
    """Draws the prompts of all iterations in order.

    Args:
      iterations: lengths of the responses to each prompt of each iteration.
      staleness: iterations that may be begun before an earlier one is complete.
    """
    engine.lengths, order = {}, iter_requests(engine, iterations)
    left = [sum(map(len, iteration)) for iteration in iterations]
    begun, iteration_of, first = next(order, None), {}, 0
    while begun or busy(engine):
        while begun and engine.wants and begun[1] <= first + staleness:
            engine.submit(begun[0])
            iteration_of[begun[0]] = begun[1]
            begun = next(order, None)
        for report in step(engine):
            if report.finish is not None:
                left[iteration_of[report.request]] -= 1
        while first < len(left) - 1 and left[first] == 0:
            first += 1
    ideal = ideal_steps(iterations, engine.sizes.lanes, staleness)
    places = engine.tokens / engine.sizes.lanes
    return Use(places / engine.steps, engine.steps, ideal, places / ideal)


def ideal_steps(iterations: Sequence[Sequence[Sequence[int]]], lanes: int, staleness: int) -> int:
    """Steps if each sequence, in order, takes the first free lane of all, and prompts cost nothing."""
    free, complete = [0] * lanes, []
    for number, iteration in enumerate(iterations):
        # An iteration may begin once all but the `staleness` before it are complete.
        begin = complete[number - staleness - 1] if number > staleness else 0
        last = 0
        for length in (length for prompt in iteration for length in prompt):
            end = max(heapq.heappop(free), begin) + length
            heapq.heappush(free, end)
            last = max(last, end)
        complete.append(max([last, *complete[-1:]]))
    return complete[-1]


def iter_requests(
    engine: FixedLengths, iterations: Sequence[Sequence[Sequence[int]]]
) -> Iterator[tuple[Request, int]]:
    for number, iteration in enumerate(iterations):
        for place, known in enumerate(iteration):
            prompt = text_example([1] * PROMPT, number * len(iteration) + place)
            request = Request(prompt, Sampling(len(known), max(known)), adapter=engine.policy)
            engine.lengths[request] = known
            yield request, number


def simulate(shards: int, lanes: int, runaways: float, staleness: int, iterations: int = 12) -> Use:
    """Runs `lanes` lanes a shard."""
    rng = np.random.default_rng(0)
    drawn = [[lengths(rng, runaways) for _ in range(PROMPTS)] for _ in range(iterations)]
    sizes = make_sizes(shards, lanes, LIMIT, 16)
    return run(Simulated(random_model(TINY, None), sizes, shards), drawn, staleness)


def make_sizes(shards: int, lanes: int, limit: int, steps: int) -> EngineSizes:
    return EngineSizes(
        lanes=lanes * shards,
        prompts=spare_prompts(lanes, SAMPLES) * shards,
        prompt_width=PROMPT,
        response_width=limit,
        samples=SAMPLES,
        chunks=(CHUNK,),
        steps=steps,
    )


def measure(runaways: float, staleness: int, iterations: int = 6) -> Use:
    """Runs the compiled engine on all devices; lengths are an eighth of the demo's."""
    mesh = make_mesh(fsdp=-1)
    model = random_model(TINY, None)
    model.attention = dataclasses.replace(model.attention, mesh=mesh)
    rng, limit = np.random.default_rng(0), LIMIT // 8
    drawn = [[lengths(rng, runaways, limit, MEAN / 8) for _ in range(PROMPTS)] for _ in range(iterations)]
    engine = FixedLengths(model, make_sizes(len(jax.devices()), 8, limit, 4), eos=-1)
    return run(engine, drawn, staleness)


if __name__ == "__main__":
    kinds = {"sync": (0.0, 0), "sync_runaways": (RUNAWAYS, 0), "async_runaways": (RUNAWAYS, 1)}
    print(json.dumps({name: dataclasses.asdict(measure(*kind)) for name, kind in kinds.items()}))
