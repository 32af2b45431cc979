"""Rollouts: K responses to each prompt, from the training devices or an endpoint, scored in prompt order.

And dynamic sampling, which takes them until enough groups are accepted.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Request, Responses, Sampling, join
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.gates import Gate, gate_group, salvage_ds
from rmsweb_jax.rl.prompts import Prompt, RlData
from rmsweb_jax.rl.remote.generator import Endpoint
from rmsweb_jax.training.mesh import from_all_processes

# Assumed share of accepted groups before any group has been scored.
FIRST_SHARE = 0.5
# Prompts that are encoded ahead of need: tokenizing leaves Python's lock.
_AHEAD, _THREADS = 8, 2


class Sampler:
    """Draws on the training devices. With several processes all of them must make the same calls.

    Args:
      make: makes the engine of a policy, whose adapters are in slot 1.
    """

    def __init__(self, make: Callable[[Qwen3VL], Engine]):
        self._make = make
        self._engine: Engine | None = None
        self._complete: Iterator[tuple[Request, Responses]] = iter(())
        self._submitted = 0
        # Requests that the engine does not want yet; of the first ones the prompts are encoded.
        self._waiting: collections.deque[Request] = collections.deque()
        self._ahead: collections.deque[Request] = collections.deque()
        self._encoding: dict[Request, concurrent.futures.Future[Any]] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "prompts")

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "load a policy first"
        return self._engine

    def load(self, model: Qwen3VL, version: int) -> None:
        """Switches to a new policy, also for what is under way.

        Args:
          model: with its adapters; only read during this call.
          version: number of RL iterations that produced it.
        """
        if self._engine is None:
            self._engine = self._make(model)
            self._complete = join(self._engine.stream())
        self._engine.load_adapters(1, model, version)

    def submit(self, request: Request) -> None:
        """Queues a request."""
        hosts = self.engine.hosts
        request.adapter, request.host = 1, hosts[self._submitted % len(hosts)]
        self._submitted += 1
        self._waiting.append(request)

    def poll(self) -> list[tuple[Request, Responses]]:
        """Goes on until a request is complete, and returns it; one at least must be under way."""
        self._feed()
        request, responses = next(self._complete)
        encoding = self._encoding.pop(request, None)
        # A thread that is late would encode the prompt again after it was released.
        if encoding and not encoding.cancel():
            concurrent.futures.wait([encoding])
        return [(request, responses)]

    def unload(self) -> None:
        """Drops all requests, and frees weights and caches, so that the update has the memory."""
        self._engine, self._complete, self._submitted = None, iter(()), 0
        self._waiting.clear()
        self._ahead.clear()
        for encoding in self._encoding.values():
            encoding.cancel()
        self._encoding.clear()

    def _feed(self) -> None:
        """Gives the engine what it wants, and has a few more prompts encoded in the background."""
        while True:
            while self._waiting and len(self._ahead) < _AHEAD:
                request = self._waiting.popleft()
                self._ahead.append(request)
                if request.host == jax.process_index():
                    # Errors are raised where the engine asks for the prompt.
                    self._encoding[request] = self._threads.submit(request.prompt.encoded)
            if not self._ahead or not self.engine.wants:
                return
            self.engine.submit(self._ahead.popleft())


@dataclasses.dataclass(frozen=True)
class Turn:
    """A prompt and the responses to it, with their part in the objective: a branch point of a row.

    Attributes:
      responses: tokens of each sample, the end token included; none of a prompt that is anchored alone.
      log_probs: their log-probabilities under the sampler.
      truncated: True where a response has no end token within the limit.
      rewards: reward of each sample.
      advantages: after the gates; 0 in a group that is not accepted.
      version: version of the oldest policy that drew one of its tokens.
      weights: of each sample in the means over responses; empty: all alike.
    """

    prompt: Prompt
    responses: tuple[Int32[np.ndarray, " _"], ...]
    log_probs: tuple[Float32[np.ndarray, " _"], ...]
    truncated: Bool[np.ndarray, " samples"]
    rewards: Float64[np.ndarray, " samples"]
    advantages: Float[np.ndarray, " samples"]
    version: int = 0
    weights: tuple[float, ...] = ()

    def weight(self, sample: int) -> float:
        """Weight of a sample in the means over responses."""
        return self.weights[sample] if self.weights else 1.0

    @classmethod
    def of_target(cls, prompt: Prompt) -> Turn:
        """Makes a turn without responses: of the prompt the target alone is trained on."""
        none = np.zeros(0)
        return cls(prompt, (), (), none.astype(bool), none, none)

    @property
    def total_weight(self) -> float:
        return sum(map(self.weight, range(len(self.responses))))


@dataclasses.dataclass(frozen=True)
class Group:
    """What a gate decides on: K responses to one prompt, or K episodes of one task.

    Attributes:
      turns: what is trained on: the prompt with its responses. Of episodes one for each prompt, of the calls
        with that prompt; in a rejected group without success, prompts with verified replies to the task come
        last.
      rewards: reward of each response or episode; of episodes, those that have one.
      fate: what the gate has decided, one of `gates.FATES`; of episodes also `episodes.TOO_FEW`.
      version: version of the oldest policy that drew one of its tokens.
      position: place of the prompt in the order of the run.
      left_out: turns that are not trained on, because `config.negative_weight` is 0.
      faults: why the other episodes have no reward.
      steps: number of steps of each episode with a reward.
      too_long: calls left out because their prompts are too long.
      forked: the turns are those at a fork of its episodes, see `OnlineConfig.credit`.
    """

    turns: tuple[Turn, ...]
    rewards: Float64[np.ndarray, " samples"]
    fate: str
    version: int
    position: int = 0
    left_out: tuple[Turn, ...] = ()
    faults: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    too_long: int = 0
    forked: bool = False

    @property
    def accepted(self) -> bool:
        return self.fate == "accepted"

    @property
    def sampled(self) -> tuple[Turn, ...]:
        """All turns, also those that are not trained on."""
        return (*self.turns, *self.left_out)

    def release(self) -> None:
        """Frees the encoded prompts."""
        for turn in self.turns:
            turn.prompt.release()


def make_group(
    prompt: Prompt,
    responses: Responses,
    rewards: Sequence[float],
    gate: Gate = salvage_ds,
    position: int = 0,
) -> Group:
    """Joins the responses to a prompt and their rewards."""
    values = np.asarray(rewards, np.float64)
    fate, advantages = gate_group(gate, values)
    version = min(int(part.min()) for part in responses.versions)
    turn = Turn(
        *(prompt, responses.tokens, responses.log_probs, responses.truncated, values, advantages, version)
    )
    return Group((turn,), values, fate, version, position)


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

    Responses are scored in threads. With several processes each of them does its share, and the rewards are
    exchanged.

    Args:
      sampler: draws the responses; the policy is loaded before groups are taken.
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
        sampler: Sampler | Endpoint,
        data: RlData,
        sampling: Sampling,
        score: Score,
        gate: Gate,
        seed: int,
        *,
        position: int = 0,
        kept: Sequence[Group] = (),
    ):
        self.sampler, self.position, self.limit = sampler, position, position
        self.share, self.seconds, self.version, self.dropped = FIRST_SHARE, 0.0, 0, 0
        self._data, self._sampling, self._score, self._seed = data, sampling, score, seed
        self._gate = gate
        self._begun = position
        self._under_way: dict[Request, int] = {}
        self._scored: dict[int, Group] = {group.position: group for group in kept}
        self._complete: dict[int, _Complete] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "rollouts")

    def load(self, model: Qwen3VL, version: int) -> None:
        """Switches to a new policy; what is under way goes on with it."""
        self.sampler.load(model, version)
        self.version = version

    def take(self, count: int, oldest: int = 0) -> list[Group]:
        """Returns the next groups.

        Args:
          oldest: groups with tokens from earlier versions of the policy are dropped, and others taken.
        """
        groups: list[Group] = []
        while len(groups) < count:
            self.limit = max(self.limit, self.position + count - len(groups))
            # Also where the next group is complete: an endpoint goes on with them during the update.
            self._begin()
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
        for request in requests:
            self.sampler.submit(request)
        found: dict[Request, Responses] = {}
        while len(found) < len(requests):
            found |= self._go_on()
        return [found[request] for request in requests]

    def unload(self) -> None:
        """Drops what is under way and what was not taken; its prompts come again, with the next policy."""
        self.sampler.unload()
        self._under_way.clear()
        self._complete.clear()
        self._scored.clear()
        self._begun = self.limit = self.position

    def kept(self) -> list[Group]:
        """Returns the complete groups that were not taken, for a checkpoint."""
        self._exchange(everything=True)
        return [self._scored[position] for position in sorted(self._scored)]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _go_on(self) -> dict[Request, Responses]:
        """Begins what may be begun, and scores what is complete; returns responses to other requests."""
        self._begin()
        start = time.monotonic()
        finished = self.sampler.poll()
        self.seconds += time.monotonic() - start
        others = {}
        for request, responses in finished:
            prompt = request.prompt
            assert isinstance(prompt, Prompt)
            position = self._under_way.pop(request, None)
            if position is None:
                others[request] = responses
                prompt.release()
                continue
            mine = position % jax.process_count() == jax.process_index()
            scores = self._threads.submit(self._rewards, prompt, responses) if mine else None
            self._complete[position] = _Complete(prompt, responses, scores)
        self._exchange()
        return others

    def _begin(self) -> None:
        """Begins the prompts of the run before the limit."""
        for position in range(self._begun, self.limit):
            if position in self._scored:  # From the checkpoint.
                continue
            epoch, place = divmod(position, len(self._data.train))
            order = prompt_order(len(self._data.train), self._seed, epoch)
            prompt = self._data.prompt(self._data.train[order[place]])
            # With the prompt's id and the sample's index, so that a response does not depend on its batch.
            seed = stable_hash(self._seed, self.version, epoch)
            request = Request(prompt, self._sampling, seed, stable_hash(prompt.prompt_id))
            self._under_way[request] = position
            self.sampler.submit(request)
        self._begun = max(self._begun, self.limit)

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
            "prompt_id": turn.prompt.prompt_id,
            "responses": [tokens.tolist() for tokens in turn.responses],
            "log_probs": [part.tolist() for part in turn.log_probs],
            "truncated": turn.truncated.tolist(),
            "rewards": turn.rewards.tolist(),
            "version": group.version,
            "position": group.position,
        }
        for group in groups
        for turn in group.turns
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


@dataclasses.dataclass(frozen=True)
class SampledGroups:
    """The groups of one iteration, in the order of their prompts.

    Attributes:
      accepted: accepted groups to train on: at most `train_groups`, a multiple of the mini-batch.
      salvaged: rejected groups that are kept for the salvage anchor and the KL term.
      generated: every group that was taken, for the metrics.
      batches: number of generation batches, of which the last may be a part.
      exhausted: all batches were used and too few groups were accepted.
    """

    accepted: tuple[Group, ...]
    salvaged: tuple[Group, ...]
    generated: tuple[Group, ...]
    batches: int
    exhausted: bool


def dynamic_sampling(
    source: Rollouts,
    config: RlConfig,
    report: Callable[[int, int], None] = lambda accepted, batches: None,
) -> SampledGroups:
    """Takes groups until `train_groups` are accepted, at most `max_gen_batches` of `gen_batch_groups` each.

    Of D rejected groups, the first `M floor(min(D, max_salvage_groups) / M)` in order are kept, with
    M = `mini_batch_groups`. When the batches run out, the accepted groups are rounded down to a multiple of
    M, possibly zero. Source: RMSWeb, appendix "Salvage-DS RL configuration".

    `config.groups_at_once` are taken at a time. Without `max_staleness` these are whole batches, all by the
    version of the source, and prompts of the next one are begun where it is likely to be needed. Otherwise
    groups by earlier versions, up to so many, are taken as well, and the source goes on with as many more
    prompts.

    Args:
      report: called with (accepted groups, batches) after each batch.
    """
    batch_groups, train_groups, mini = config.gen_batch_groups, config.train_groups, config.mini_batch_groups
    accepted: list[Group] = []
    rejected: list[Group] = []
    generated: list[Group] = []
    most = config.max_gen_batches * batch_groups
    # Tasks that are played give fewer groups than were asked for if one comes twice or is set aside.
    count, taken = config.groups_at_once, 0
    while len(accepted) < train_groups and taken < most:
        # A guess counts as a batch, so that a first group that is rejected decides nothing. The last
        # iterations give a better one, but with it a resumed run would begin other prompts, next to which
        # log-probabilities round differently: it is left to runs that do not repeat bit for bit.
        guess = source.share if config.max_staleness else FIRST_SHARE
        share = (len(accepted) + guess * batch_groups) / (len(generated) + batch_groups)
        if config.max_staleness:
            # What an iteration takes, for each version that may be trained on. Some groups may be left over
            # and too old after the next iteration; fewer would leave the update waiting.
            needed = min(most, round(train_groups / max(share, 1 / config.max_gen_batches)))
            begun = source.position + (config.max_staleness + 1) * needed - taken
            source.limit = max(source.limit, begun)
        else:
            another = len(accepted) + share * count < train_groups and taken + count < most
            source.limit = source.position + count * (2 if another else 1)
        for group in source.take(count, source.version - config.max_staleness):
            generated.append(group)
            if group.accepted:
                accepted.append(group)
            elif group.turns:
                rejected.append(group)
                if len(rejected) > config.max_salvage_groups:
                    group.release()  # No step will read it.
        taken += count
        if taken % batch_groups == 0:
            report(len(accepted), taken // batch_groups)
    # Iterations are short: a single one says little.
    source.share += (len(accepted) / max(1, len(generated)) - source.share) / 2
    trained = min(len(accepted), train_groups) // mini * mini
    salvaged = min(len(rejected), config.max_salvage_groups) // mini * mini
    return SampledGroups(
        accepted=tuple(accepted[:trained]),
        salvaged=tuple(rejected[:salvaged]),
        generated=tuple(generated),
        batches=-(-taken // batch_groups),
        exhausted=len(accepted) < train_groups,
    )


@dataclasses.dataclass(frozen=True)
class MiniBatch:
    """The turns of one optimizer step, of accepted and of salvaged groups, and replies that are replayed."""

    accepted: tuple[Turn, ...]
    salvaged: tuple[Turn, ...]
    replayed: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        return (*self.accepted, *self.salvaged, *self.replayed)


def mini_batches(sampled_groups: SampledGroups, config: RlConfig) -> list[MiniBatch]:
    """Splits groups into optimizer steps, each with its share of accepted and of salvaged groups, in order.

    With `mini_batch_of` "accepted" a step has `mini_batch_groups` accepted groups; without any, the salvaged
    ones are split over as many steps as a full iteration has. With "all" a step has `mini_batch_groups` of
    both together.
    """
    accepted, salvaged = sampled_groups.accepted, sampled_groups.salvaged
    mini = config.mini_batch_groups
    if config.mini_batch_of == "all":
        # The salvaged groups lie evenly among the accepted ones: in a step of them alone AdamW, which divides
        # by the gradient's size, would undo their weight.
        places = [(np.arange(len(one)) + 0.5) / len(one) for one in (accepted, salvaged)]
        steps = np.argsort(np.concatenate(places), kind="stable").reshape(-1, mini)
        first = len(accepted)
        parts = [(step[step < first], step[step >= first] - first) for step in steps]
    else:
        count = len(accepted) // mini or min(config.train_groups // mini, len(salvaged))
        spread = [np.array_split(np.arange(len(one)), max(count, 1)) for one in (accepted, salvaged)]
        parts = list(zip(*spread, strict=True))

    def turns(groups: tuple[Group, ...], part: np.ndarray) -> tuple[Turn, ...]:
        return tuple(turn for at in part for turn in groups[at].turns)

    batches = [MiniBatch(turns(accepted, one), turns(salvaged, other)) for one, other in parts]
    # The prompts of all turns may have been too long.
    return [batch for batch in batches if batch.accepted or batch.salvaged]


def add_replay(batches: Sequence[MiniBatch], data: RlData, config: RlConfig, version: int) -> list[MiniBatch]:
    """Adds actions of the replayed corpus to each mini-batch, drawn anew for each of them."""
    rng = np.random.default_rng((config.seed, version, 1))
    count = min(config.replay_samples, len(data.train))
    drawn = [rng.choice(data.train, count, replace=False) for _ in batches]
    return [
        dataclasses.replace(batch, replayed=tuple(Turn.of_target(data.prompt(number)) for number in numbers))
        for batch, numbers in zip(batches, drawn, strict=True)
    ]
