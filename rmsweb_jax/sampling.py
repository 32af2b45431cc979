"""Responses of a policy to many prompts, as slots fall free for them: for RL and for evaluation."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence

import numpy as np
from jax.sharding import Mesh

from rmsweb_jax.data.batching import (
    Example,
    Shapes,
    batch_axes,
    choose_widths,
    collate,
)
from rmsweb_jax.data.encoding import Measure
from rmsweb_jax.mesh import check_rows, process_rows, row_shards, shard_batch
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.decode import Generator
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.qwen3_vl.pool import HostAnswers, Pool, to_host
from rmsweb_jax.splits import stable_hash


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How responses are drawn.

    Attributes:
      num_samples: K.
      max_response_tokens: a response is cut there and counts as truncated.
      temperature: 0 is greedy.
      eos: `<|im_end|>`, part of the response.
      banned: vision tokens, which would break the next batch.
    """

    num_samples: int
    max_response_tokens: int
    temperature: float
    eos: int
    banned: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Responses:
    """The K responses to one prompt.

    Attributes:
      tokens: per sample [R_i] int32, the end token included.
      log_probs: per sample [R_i] float32, as the sampler saw them.
      truncated: [K] bool, no end token within the limit.
    """

    tokens: tuple[np.ndarray, ...]
    log_probs: tuple[np.ndarray, ...]
    truncated: np.ndarray


class Sampler:
    """Draws responses to prompts: each waits for a slot, and leaves it when its last sample has ended.

    A prompt is padded to the smallest width that holds it and others enough to fill the slots.

    Args:
      shapes: slots (`rows`), prompt widths, image places.
      mesh: of the policies; `data` and `fsdp` split the slots.

    Raises:
      UserError: the slots do not divide over the mesh.
    """

    def __init__(self, config: Qwen3VLConfig, shapes: Shapes, mesh: Mesh):
        check_rows(mesh, shapes.rows, "rollout_slots")
        self.config, self.shapes, self.mesh = config, shapes, mesh
        # One prompt a shard of the mesh is prefilled at a time, so that its cache stays where it is made.
        self.shards = row_shards(mesh)
        self._rows = process_rows(mesh, self.shards)

    def draw(
        self, policy: Generator, examples: Sequence[Example], seeds: Sequence[int], sampling: Sampling
    ) -> list[Responses]:
        """The responses to the prompt of each example, in order; its target is not read.

        A response depends on the policy, its prompt, the seed and the sample's number alone. With several
        processes all of them must call this with the same arguments, and all get all responses.

        Args:
          seeds: per prompt; the same prompt (by its sample id) under the same seed gives the same responses.
        """
        return self.start(policy, examples, seeds, sampling).result()

    def start(
        self, policy: Generator, examples: Sequence[Example], seeds: Sequence[int], sampling: Sampling
    ) -> Drawing:
        """As `draw`, but returns as soon as the first prompts are being prefilled."""
        return Drawing(self, policy, examples, seeds, sampling)

    def inputs(self, examples: Sequence[Example], width: int) -> ModelInputs:
        """The prompts of a prefill, one a shard, on the mesh; made of this process's rows."""
        shapes = dataclasses.replace(self.shapes, rows=self.shards)
        rows = [[_prompt_alone(examples[row])] for row in self._rows]
        batch = collate(rows, shapes, width, self.config, self._rows)
        return shard_batch(batch.inputs, self.mesh, batch_axes(batch).inputs)


class Drawing:
    """Responses that are being drawn."""

    def __init__(
        self,
        sampler: Sampler,
        policy: Generator,
        examples: Sequence[Example],
        seeds: Sequence[int],
        sampling: Sampling,
    ):
        self._count = len(examples)
        lengths = [example.prompt_length for example in examples]
        self._queues = deque(
            _Queue(sampler, policy, width, numbers, examples, seeds, sampling)
            for width, numbers in _by_width(lengths, sampler.shapes)
        )
        if self._queues:
            self._queues[0].fill()

    def result(self) -> list[Responses]:
        """Waits for them: one entry a prompt, in order."""
        found: dict[int, Responses] = {}
        while self._queues:
            queue = self._queues[0]
            queue.fill()
            while queue.busy:
                found |= queue.finished()
                queue.fill()
            # With it goes the memory of its caches.
            self._queues.popleft()
        return [found[number] for number in range(self._count)]


def _by_width(lengths: Sequence[int], shapes: Shapes) -> list[tuple[int, list[int]]]:
    """Numbers of prompts by the width they are decoded at, widest first.

    A pool with idle slots costs as much as a full one, so too few prompts of a width go with wider ones.
    """
    found: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        found.setdefault(shapes.width(length), []).append(number)
    queues: list[tuple[int, list[int]]] = []
    for width in sorted(found, reverse=True):
        if queues and len(queues[-1][1]) < shapes.rows:
            queues[-1][1].extend(found[width])
        else:
            queues.append((width, found[width]))
    if len(queues) > 1 and len(queues[-1][1]) < shapes.rows:
        queues[-2][1].extend(queues.pop()[1])
    return queues


class _Queue:
    """Prompts of one width, waiting for the slots of one pool."""

    def __init__(
        self,
        sampler: Sampler,
        policy: Generator,
        width: int,
        numbers: Sequence[int],
        examples: Sequence[Example],
        seeds: Sequence[int],
        sampling: Sampling,
    ):
        self._sampler, self._policy, self._width, self._sampling = sampler, policy, width, sampling
        self._examples, self._seeds = examples, seeds
        self._waiting = deque(numbers)
        # Which prompt is in each slot; a shard's slots are neighbours.
        self._held: list[int | None] = [None] * sampler.shapes.rows
        self._pool: Pool | None = None

    @property
    def busy(self) -> bool:
        return any(number is not None for number in self._held)

    def fill(self) -> None:
        """Prefills waiting prompts into free slots, without waiting for the device."""
        shards = self._sampler.shards
        slots = len(self._held) // shards
        while self._waiting and None in self._held:
            taken, chosen = np.full(shards, -1, np.int32), []
            for shard in range(shards):
                own = self._held[shard * slots : (shard + 1) * slots]
                if self._waiting and None in own:
                    taken[shard] = own.index(None)
                    self._held[shard * slots + taken[shard]] = self._waiting[0]
                    chosen.append(self._waiting.popleft())
                else:  # The program has a row for every shard; nothing is kept of this one.
                    chosen.append(chosen[-1] if chosen else self._waiting[0])
            self._prefill(chosen, taken)

    def _prefill(self, numbers: Sequence[int], slots: np.ndarray) -> None:
        examples, sampling = [self._examples[number] for number in numbers], self._sampling
        asked = self._policy.prefill(
            self._sampler.inputs(examples, self._width),
            seeds=np.asarray([self._seeds[number] for number in numbers], np.uint32),
            prompt_ids=np.asarray([stable_hash(example.sample_id) for example in examples], np.uint32),
            temperature=np.full(len(numbers), sampling.temperature, np.float32),
        )
        if self._pool is None:
            self._pool = self._policy.empty_pool(
                asked,
                slots=len(self._held),
                width=self._width,
                num_samples=sampling.num_samples,
                room=sampling.max_response_tokens,
            )
        self._pool = self._policy.insert(self._pool, asked, slots)

    def finished(self) -> dict[int, Responses]:
        """Decodes until a slot is free for a waiting prompt, or to the end; responses by prompt."""
        assert self._pool is not None, "a busy queue has a pool"
        sampling = self._sampling
        self._pool = self._policy.decode(
            self._pool,
            room=sampling.max_response_tokens,
            eos=sampling.eos,
            banned=sampling.banned,
            free_slots=self._sampler.shards if self._waiting else None,
        )
        answers = to_host(self._pool.answers)
        found = {}
        for slot, number in enumerate(self._held):
            if number is not None and answers.done[slot].all():
                found[number] = _responses(answers, slot, sampling.eos)
                self._held[slot] = None
        return found


def prompt_shapes(measures: Sequence[Measure], rows: int, multiple: int, count: int) -> Shapes:
    """Shapes of sampling: `rows` slots, prompts padded to at most `count` widths."""
    return Shapes(
        rows=rows,
        widths=choose_widths([measure.length - measure.num_targets for measure in measures], multiple, count),
        num_targets=1,
        images=max(measure.images for measure in measures),
        window=max(measure.window for measure in measures),
    )


def _prompt_alone(example: Example) -> Example:
    return dataclasses.replace(
        example, tokens=example.tokens[: example.prompt_length], action_mask=np.zeros(0, bool)
    )


def _responses(answers: HostAnswers, slot: int, eos: int) -> Responses:
    samples = range(answers.tokens.shape[1])
    tokens, log_probs = zip(*(answers.response(slot, sample) for sample in samples), strict=True)
    return Responses(tokens, log_probs, np.asarray([part[-1] != eos for part in tokens]))
