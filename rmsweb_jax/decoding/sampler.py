"""Samples responses to any number of prompts through one pool of slots; RL and evaluation use it."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float32, Int32

from rmsweb_jax.data.batching import Encodable, lay_out_prompts, on_mesh, round_up
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.data.sizes import SampleSize
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.pool import DecodePool, HostResponses, to_host
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs
from rmsweb_jax.training.mesh import check_rows, process_rows, row_shards


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Sampling parameters, the same for all prompts of a call.

    Attributes:
      num_samples: responses to each prompt.
      max_response_tokens: a response is cut there and counts as truncated.
      temperature: 0 selects greedy decoding.
      eos: the end token `<|im_end|>`, which is part of the response.
      banned: tokens that are never drawn. A vision token without an image would break the training batch.
    """

    num_samples: int
    max_response_tokens: int
    temperature: float
    eos: int
    banned: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Responses:
    """All responses to one prompt.

    Attributes:
      tokens: for each sample, with the end token.
      log_probs: for each sample, as the sampler computed them.
      truncated: True where a response has no end token within the limit.
    """

    tokens: tuple[Int32[np.ndarray, " tokens"], ...]
    log_probs: tuple[Float32[np.ndarray, " tokens"], ...]
    truncated: Bool[np.ndarray, " samples"]


@dataclasses.dataclass(frozen=True)
class PromptShapes:
    """Shapes of the prompts that a sampler takes.

    Attributes:
      rows: number of slots.
      widths: lengths that prompts are padded to, ascending.
      images: images that a prompt can have; 0 if none has one.
      window: patches of the largest image.
    """

    rows: int
    widths: tuple[int, ...]
    images: int
    window: int

    def row(self, length: int) -> RowShape:
        """Shape of the prompts of the smallest width that holds `length` tokens."""
        width = next(width for width in self.widths if width >= length)
        return RowShape(width, self.rows, self.images, self.window)


class Sampler:
    """Samples responses: each prompt waits for a slot and leaves it when its last sample has ended.

    A prompt is padded to the smallest width that holds it and enough other prompts to fill the slots.

    Args:
      shapes: number of slots (`rows`), prompt widths, image capacity.
      mesh: that of the policies; `data` and `fsdp` split the slots.

    Raises:
      UserError: the slots do not divide over the mesh.
    """

    def __init__(self, config: Qwen3VLConfig, shapes: PromptShapes, mesh: Mesh):
        check_rows(mesh, shapes.rows, "rollout_slots")
        self.config, self.shapes, self.mesh = config, shapes, mesh
        # One prompt for each shard is prefilled at a time, so that its cache stays on the devices that made
        # it.
        self.shards = row_shards(mesh)
        self._rows = process_rows(mesh, self.shards)

    def generate(
        self, policy: Generator, examples: Sequence[Encodable], seeds: Sequence[int], sampling: SamplingParams
    ) -> list[Responses]:
        """Samples responses to the prompt of each example, in order; the targets are not read.

        A response depends only on the policy, its prompt, the seed and the index of the sample. With several
        processes all of them must call this with the same arguments, and all get all responses.

        Args:
          seeds: one for each prompt; with equal seeds a prompt (by its sample id) gets equal responses.
        """
        return self.submit(policy, examples, seeds, sampling).result()

    def submit(
        self, policy: Generator, examples: Sequence[Encodable], seeds: Sequence[int], sampling: SamplingParams
    ) -> SamplingFuture:
        """Begins to sample and returns once the first prompts are dispatched; arguments as in `generate`."""
        return SamplingFuture(self, policy, examples, seeds, sampling)

    def inputs(self, examples: Sequence[Encodable], width: int) -> ModelInputs:
        """Puts the prompts of a prefill, one for each shard, on the mesh; each process makes its own rows."""
        shape = dataclasses.replace(self.shapes.row(width), rows=self.shards)
        return on_mesh(lay_out_prompts(examples, shape, self.config, self._rows), self.mesh).inputs


class SamplingFuture:
    """Responses that are being sampled."""

    def __init__(
        self,
        sampler: Sampler,
        policy: Generator,
        examples: Sequence[Encodable],
        seeds: Sequence[int],
        sampling: SamplingParams,
    ):
        self._count = len(examples)
        lengths = [example.prompt_length for example in examples]
        # One pool after the other: two would need the memory of both caches.
        self._queues = deque(
            _WidthQueue(sampler, policy, width, numbers, examples, seeds, sampling)
            for width, numbers in _by_width(lengths, sampler.shapes)
        )
        if self._queues:
            self._queues[0].fill()

    def result(self) -> list[Responses]:
        """Decodes until all responses have ended; returns them in the order of the prompts."""
        found: dict[int, Responses] = {}
        while self._queues:
            queue = self._queues[0]
            queue.fill()
            while queue.busy:
                found |= queue.finished()
                queue.fill()
            # Frees the queue's caches before the next queue allocates its own.
            self._queues.popleft()
        return [found[number] for number in range(self._count)]


def _by_width(lengths: Sequence[int], shapes: PromptShapes) -> list[tuple[int, list[int]]]:
    """Groups prompts by the width at which they are decoded, widest first.

    A pool with idle slots costs as much as a full one, so prompts that do not fill the slots join the next
    wider ones.
    """
    found: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        found.setdefault(shapes.row(length).width, []).append(number)
    queues: list[tuple[int, list[int]]] = []
    # Widest first: narrower prompts may still join a wider pool, but not the other way round.
    for width in sorted(found, reverse=True):
        if queues and len(queues[-1][1]) < shapes.rows:
            queues[-1][1].extend(found[width])
        else:
            queues.append((width, found[width]))
    if len(queues) > 1 and len(queues[-1][1]) < shapes.rows:
        queues[-2][1].extend(queues.pop()[1])
    return queues


class _WidthQueue:
    """Queue of prompts of one width, and the pool in which they are decoded."""

    def __init__(
        self,
        sampler: Sampler,
        policy: Generator,
        width: int,
        numbers: Sequence[int],
        examples: Sequence[Encodable],
        seeds: Sequence[int],
        sampling: SamplingParams,
    ):
        self._sampler, self._policy, self._width, self._sampling = sampler, policy, width, sampling
        self._examples, self._seeds = examples, seeds
        self._waiting = deque(numbers)
        # Number of the prompt in each slot; the slots of a shard are contiguous.
        self._held: list[int | None] = [None] * sampler.shapes.rows
        self._pool: DecodePool | None = None

    @property
    def busy(self) -> bool:
        return any(number is not None for number in self._held)

    def fill(self) -> None:
        """Prefills waiting prompts into free slots; returns without waiting for the device."""
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
                else:  # The program needs a row for every shard; slot -1 discards this one.
                    chosen.append(chosen[-1] if chosen else self._waiting[0])
            self._prefill(chosen, taken)

    def _prefill(self, numbers: Sequence[int], slots: np.ndarray) -> None:
        examples, sampling = [self._examples[number] for number in numbers], self._sampling
        prompts = self._policy.prefill(
            self._sampler.inputs(examples, self._width),
            seeds=np.asarray([self._seeds[number] for number in numbers], np.uint32),
            # A hash of the id, not the position in the batch, which must not change a response.
            prompt_ids=np.asarray([stable_hash(example.sample_id) for example in examples], np.uint32),
            temperature=np.full(len(numbers), sampling.temperature, np.float32),
        )
        # Allocated after the first prefill, whose result has the dtypes of the caches.
        if self._pool is None:
            self._pool = self._policy.empty_pool(
                prompts,
                slots=len(self._held),
                width=self._width,
                num_samples=sampling.num_samples,
                max_new_tokens=sampling.max_response_tokens,
            )
        self._pool = self._policy.insert(self._pool, prompts, slots)

    def finished(self) -> dict[int, Responses]:
        """Decodes until slots are free for waiting prompts, or to the end.

        Returns:
          The responses that have ended, by the number of their prompt.
        """
        assert self._pool is not None, "a busy queue has a pool"
        sampling = self._sampling
        self._pool = self._policy.decode(
            self._pool,
            max_new_tokens=sampling.max_response_tokens,
            eos=sampling.eos,
            banned=sampling.banned,
            # A prefill serves all shards at once, so it pays to wait for as many free slots.
            free_slots=self._sampler.shards if self._waiting else None,
        )
        state = to_host(self._pool.state)
        found = {}
        for slot, number in enumerate(self._held):
            if number is not None and state.done[slot].all():
                found[number] = _responses(state, slot, sampling.eos)
                self._held[slot] = None
        return found


def choose_widths(lengths: Sequence[int], multiple: int, count: int) -> tuple[int, ...]:
    """Chooses up to `count` multiples of `multiple` that pad `lengths` least, by dynamic programming."""
    sizes, counts = np.unique([round_up(length, multiple) for length in lengths], return_counts=True)
    # Minimizing padding is minimizing padded tokens: a bucket has its largest size times its samples.
    prefix = np.concatenate([[0], np.cumsum(counts)])
    best = np.full((count + 1, len(sizes) + 1), np.inf)
    back = np.zeros((count + 1, len(sizes) + 1), np.int64)
    best[:, 0] = 0
    # best[used, stop]: fewest padded tokens for the `stop` smallest sizes with `used` widths; back: where the
    # last of these widths begins.
    for used in range(1, count + 1):
        for stop in range(1, len(sizes) + 1):
            costs = best[used - 1, :stop] + (prefix[stop] - prefix[:stop]) * sizes[stop - 1]
            back[used, stop] = np.argmin(costs)
            best[used, stop] = costs[back[used, stop]]
    widths, stop, used = [], len(sizes), count
    while stop:
        widths.append(int(sizes[stop - 1]))
        stop, used = int(back[used, stop]), used - 1
    return tuple(reversed(widths))


def prompt_shapes(sizes: Sequence[SampleSize], rows: int, multiple: int, count: int) -> PromptShapes:
    """Chooses the shapes of sampling for prompts of these sizes.

    Args:
      rows: number of slots.
      multiple, count: prompts are padded to at most `count` widths, multiples of `multiple`.
    """
    return PromptShapes(
        rows=rows,
        widths=choose_widths([size.prompt_length for size in sizes], multiple, count),
        images=max(len(size.patches) for size in sizes),
        window=max((count for size in sizes for count in size.patches), default=0),
    )


def _responses(state: HostResponses, slot: int, eos: int) -> Responses:
    samples = range(state.tokens.shape[1])
    tokens, log_probs = zip(*(state.response(slot, sample) for sample in samples), strict=True)
    return Responses(tokens, log_probs, np.asarray([part[-1] != eos for part in tokens]))
