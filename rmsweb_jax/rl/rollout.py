"""Rollouts: K responses to each prompt, from the training devices or an endpoint, scored in prompt order."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Collector, Request, Responses, Sampling
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.rl.gates import Gate, gate_group, salvage_ds
from rmsweb_jax.rl.prompts import Prompt, RlData
from rmsweb_jax.training.mesh import from_all_processes

# Assumed share of accepted groups before any group has been scored.
FIRST_SHARE = 0.5
# Prompts that are encoded ahead of need: tokenizing leaves Python's lock.
_AHEAD, _THREADS = 8, 2


@runtime_checkable
class Generator(Protocol):
    """What draws responses. With several processes all of them must make the same calls.

    Attributes:
      encodes: it encodes a prompt when its turn comes; otherwise prompts are encoded ahead of it.
    """

    encodes: bool

    def load(self, model: Qwen3VL, version: int) -> None:
        """Switches to a new policy, also for what is under way.

        Args:
          model: with its adapters; only read during this call.
          version: number of RL iterations that produced it.
        """
        ...

    @property
    def wants(self) -> bool:
        """True while another request would be begun soon."""
        ...

    @property
    def hosts(self) -> Sequence[int]:
        """Processes that share the reading of prompts."""
        ...

    def submit(self, request: Request) -> None:
        """Queues a request whose prompt is a `Prompt`, and whose host is one of `hosts`."""
        ...

    def poll(self) -> list[tuple[Request, Responses]]:
        """Goes on for a while, and returns the requests that are complete, of which there may be none."""
        ...

    def cancel(self, requests: Iterable[Request]) -> None:
        """Drops requests that are under way."""
        ...

    def unload(self) -> None:
        """Drops all requests, and frees weights and caches, so that the update has the memory."""
        ...


class LocalGenerator:
    """Draws on the training devices.

    Args:
      make: makes the engine of a policy, whose adapters are in slot 1.
    """

    encodes = False

    def __init__(self, make: Callable[[Qwen3VL], Engine]):
        self._make = make
        self._engine: Engine | None = None
        self._collector = Collector()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "load a policy first"
        return self._engine

    def load(self, model: Qwen3VL, version: int) -> None:
        if self._engine is None:
            self._engine = self._make(model)
            self._collector = Collector()
        self._engine.load_adapters(1, model, version)

    @property
    def wants(self) -> bool:
        return self.engine.wants

    @property
    def hosts(self) -> Sequence[int]:
        return self.engine.hosts

    def submit(self, request: Request) -> None:
        request.adapter = 1
        self.engine.add(request)

    def poll(self) -> list[tuple[Request, Responses]]:
        return self._collector.take(self.engine.advance())

    def cancel(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.engine.cancel(request)
            self._collector.drop(request)

    def unload(self) -> None:
        self._engine = None


@dataclasses.dataclass(frozen=True)
class Group:
    """K responses to one prompt and their rewards.

    Attributes:
      responses: tokens of each sample, the end token included.
      log_probs: their log-probabilities under the sampler.
      truncated: True where a response has no end token within the limit.
      rewards: reward of each sample.
      advantages: after the gates; 0 in a group that is not accepted.
      fate: what the gate has decided, one of `gates.FATES`.
      version: version of the oldest policy that drew one of its tokens.
      position: place of the prompt in the order of the run.
      weights: of each sample in the means over responses; empty: all alike.
    """

    prompt: Prompt
    responses: tuple[Int32[np.ndarray, " _"], ...]
    log_probs: tuple[Float32[np.ndarray, " _"], ...]
    truncated: Bool[np.ndarray, " samples"]
    rewards: Float64[np.ndarray, " samples"]
    advantages: Float[np.ndarray, " samples"]
    fate: str
    version: int = 0
    position: int = 0
    weights: tuple[float, ...] = ()

    def weight(self, sample: int) -> float:
        """Weight of a sample in the means over responses."""
        return self.weights[sample] if self.weights else 1.0

    @property
    def total_weight(self) -> float:
        return sum(map(self.weight, range(len(self.responses))))

    @property
    def accepted(self) -> bool:
        return self.fate == "accepted"

    @property
    def turns(self) -> tuple[Group, ...]:
        """Itself: what it adds to an optimizer step, see `rl.episodes.EpisodeGroup`."""
        return (self,)

    def release(self) -> None:
        """Frees the encoded prompt."""
        self.prompt.release()


def make_group(
    prompt: Prompt,
    responses: Responses,
    rewards: Sequence[float],
    gate: Gate = salvage_ds,
    position: int = 0,
) -> Group:
    """Joins responses and their rewards."""
    values = np.asarray(rewards, np.float64)
    fate, advantages = gate_group(gate, values)
    return Group(
        prompt,
        responses.tokens,
        responses.log_probs,
        responses.truncated,
        values,
        advantages,
        fate,
        version=min(int(part.min()) for part in responses.versions),
        position=position,
    )


Score = Callable[[str, str], float]


@functools.lru_cache(maxsize=2)
def prompt_order(num_prompts: int, seed: int, epoch: int) -> Int64[np.ndarray, " prompts"]:
    """Shuffles the numbers of the prompts for an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(num_prompts)


class _Complete(NamedTuple):
    """Responses whose scores are computed, by this process if `scores` is not None."""

    prompt: Prompt
    responses: Responses
    scores: concurrent.futures.Future[list[float]] | None


class Rollouts:
    """The scored groups of a run, in the order of its prompts.

    Prompts are encoded and responses scored in threads. With several processes each of them does its share,
    and the rewards are exchanged.

    Args:
      generator: with the policy loaded before groups are taken.
      score: (response text, target text) -> reward.
      gate: decides on each group.
      position: groups that were taken in earlier runs; the next one has this position.
      kept: groups that were complete and not taken.

    Attributes:
      position: groups taken so far.
      limit: position before which prompts may be begun.
      share: expected share of accepted groups, from the last iterations.
      seconds, dropped: time spent waiting for responses, and groups that were too old when it was their turn,
        since this object was made.
    """

    def __init__(
        self,
        generator: Generator,
        data: RlData,
        sampling: Sampling,
        score: Score,
        gate: Gate,
        seed: int,
        *,
        position: int = 0,
        kept: Sequence[Group] = (),
    ):
        self.generator, self.position, self.limit = generator, position, position
        self.share, self.seconds, self.version, self.dropped = FIRST_SHARE, 0.0, 0, 0
        self._data, self._sampling, self._score, self._seed = data, sampling, score, seed
        self._gate = gate
        self._begun = position
        self._under_way: dict[Request, int] = {}
        self._foreign: dict[Request, Responses | None] = {}
        self._scored: dict[int, Group] = {group.position: group for group in kept}
        self._complete: dict[int, _Complete] = {}
        self._waiting: collections.deque[Request] = collections.deque()
        self._encoding: collections.deque[Request] = collections.deque()
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "rollouts")

    def load(self, model: Qwen3VL, version: int) -> None:
        """Switches to a new policy; what is under way goes on with it."""
        self.generator.load(model, version)
        self.version = version

    def take(self, count: int, oldest: int = 0) -> list[Group]:
        """Returns the next groups.

        Args:
          oldest: groups with tokens from earlier versions of the policy are dropped, and others taken.
        """
        groups: list[Group] = []
        while len(groups) < count:
            self.limit = max(self.limit, self.position + count - len(groups))
            # Also where the next group is complete: the generator goes on with them during the update.
            self._submit()
            while self.position not in self._scored:
                self._go_on()
            group = self._scored.pop(self.position)
            self.position += 1
            if group.version < oldest:
                self.dropped += 1
            else:
                groups.append(group)
        return groups

    def draw(self, requests: Sequence[Request]) -> list[Responses]:
        """Draws responses to other requests, in order, while those of the run go on."""
        self._foreign |= dict.fromkeys(requests)
        hosts = self.generator.hosts
        for place, request in enumerate(requests):
            request.host = hosts[place % len(hosts)]
        self._waiting.extend(requests)
        while any(self._foreign[request] is None for request in requests):
            self._go_on()
        found = [self._foreign.pop(request) for request in requests]
        return [responses for responses in found if responses is not None]

    def stop(self) -> None:
        """Drops what is under way and what was not taken; its prompts come again."""
        self.generator.cancel(self._under_way)
        self._under_way.clear()
        self._encoding.clear()
        self._complete.clear()
        self._scored.clear()
        self._begun = self.limit = self.position

    def kept(self) -> list[Group]:
        """Returns the complete groups that were not taken, for a checkpoint."""
        self._exchange(everything=True)
        return [self._scored[position] for position in sorted(self._scored)]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _go_on(self) -> None:
        """Begins what may be begun, lets the generator go on, and scores what is complete."""
        self._submit()
        start = time.monotonic()
        finished = self.generator.poll()
        self.seconds += time.monotonic() - start
        for request, responses in finished:
            prompt = request.prompt
            assert isinstance(prompt, Prompt)
            if request in self._foreign:
                self._foreign[request] = responses
                prompt.release()
                continue
            position = self._under_way.pop(request)
            mine = position % jax.process_count() == jax.process_index()
            scores = self._threads.submit(self._rewards, prompt, responses) if mine else None
            self._complete[position] = _Complete(prompt, responses, scores)
        self._exchange()

    def _submit(self) -> None:
        while self.generator.wants and (request := self._next()) is not None:
            self.generator.submit(request)

    def _next(self) -> Request | None:
        """Returns the next request; its process encodes it in the background ahead of its turn."""
        while len(self._encoding) < _AHEAD and (request := self._begin()) is not None:
            self._encoding.append(request)
            if request.host == jax.process_index() and not self.generator.encodes:
                # Errors are raised where the generator asks for the prompt.
                self._threads.submit(request.prompt.encoded)
        return self._encoding.popleft() if self._encoding else None

    def _begin(self) -> Request | None:
        """Begins a request: one of `draw`, or the next of the run, which go to the processes in turn."""
        if self._waiting:
            return self._waiting.popleft()
        while self._begun < self.limit:
            position = self._begun
            self._begun += 1
            if position in self._scored:  # From the checkpoint.
                continue
            epoch, place = divmod(position, len(self._data.train))
            order = prompt_order(len(self._data.train), self._seed, epoch)
            prompt = self._data.prompt(self._data.train[order[place]])
            # With the prompt's id and the sample's index, so that a response does not depend on its batch.
            seed = stable_hash(self._seed, self.version, epoch)
            request = Request(prompt, self._sampling, seed, stable_hash(prompt.prompt_id))
            hosts = self.generator.hosts
            request.host = hosts[position % len(hosts)]
            self._under_way[request] = position
            return request
        return None

    def _rewards(self, prompt: Prompt, responses: Responses) -> list[float]:
        rewards = [self._score(self._data.decode(tokens), prompt.target) for tokens in responses.tokens]
        if not np.isfinite(rewards).all():
            raise UserError(
                f"prompt {prompt.prompt_id} of task {prompt.size.task_id}: the reward of a response by "
                f"{getattr(self._score, '__name__', self._score)} is {rewards}: it must give a finite number"
            )
        return rewards

    def _exchange(self, everything: bool = False) -> None:
        """Turns complete groups into scored ones; all processes see the same groups complete."""
        ready = sorted(self._complete) if everything else []
        if not everything:
            position = self.position
            while position in self._complete or position in self._scored:
                if position in self._complete:
                    ready.append(position)
                position += 1
        if not ready:
            return
        own = {
            position: scores.result()
            for position in ready
            if (scores := self._complete[position][2]) is not None
        }
        rewards: dict[int, list[float]] = {}
        for part in from_all_processes(json.dumps(list(own.items())).encode()):
            rewards |= dict(json.loads(part))
        for position in ready:
            prompt, responses, _ = self._complete.pop(position)
            self._scored[position] = make_group(prompt, responses, rewards[position], self._gate, position)


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
            "version": group.version,
            "position": group.position,
        }
        for group in groups
    ]


def groups_from_json(values: Sequence[Mapping[str, Any]], data: RlData, gate: Gate) -> list[Group]:
    """Restores the groups of `groups_to_json`; reads their prompts from the data set."""
    return [
        make_group(
            data.prompt(data.numbers[value["prompt_id"]]),
            Responses(
                tokens=tuple(np.asarray(tokens, np.int32) for tokens in value["responses"]),
                log_probs=tuple(np.asarray(part, np.float32) for part in value["log_probs"]),
                truncated=np.asarray(value["truncated"], bool),
                # The oldest of all tokens is the one that is read.
                versions=(np.asarray([value["version"]], np.int32),),
            ),
            value["rewards"],
            gate,
            value["position"],
        )
        for value in values
    ]
