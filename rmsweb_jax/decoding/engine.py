"""The decoding engine: prompts wait for a slot, their samples for a lane, and what ends is refilled at once.

A prompt is prefilled into a slot, a chunk at a time. Each of its samples decodes in a lane that points at the
slot; a lane takes the next sample when its own ends, and a slot is freed with its last lane. All shapes are
fixed, so that no request waits for a compilation.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Int32

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding import programs
from rmsweb_jax.decoding.draw import Restrictions
from rmsweb_jax.decoding.forward import Chunk, Vision
from rmsweb_jax.decoding.programs import Emitted, LaneTable
from rmsweb_jax.decoding.quantized import CACHE_DTYPES
from rmsweb_jax.decoding.requests import Constraint, Drawn, Request, Sampling, TopTokens
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.decoding.weights import LayerAdapters, Layout, adapter_rank, choose_layout
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.inputs import Array, image_rows, image_starts, mrope_positions, vision_inputs
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.mesh import check_rows, out_of_memory, process_rows, row_shards, shard_batch

# Shares of the lanes that may be free before decoding returns to refill them, and of the sequences that may
# have ended before the server reports them: the first one at once where few run.
_FREE_SHARE, _ENDED_SHARE = 16, 8
# Settings of a request that are columns of the lanes' restrictions.
_NUMBERS = ("top_p", "top_k", "presence_penalty", "frequency_penalty")


@dataclasses.dataclass(eq=False)
class _Prompt:
    """A request in the engine.

    Attributes:
      number: counts requests in order of arrival.
      shard, slot: where its cache is; -1 before.
      read: tokens that are prefilled.
      turn: chunks that the engine had read when this prompt was admitted, or last got one.
      version: of the adapters that read its last token, which give the first token of each response.
      waiting: samples that have no lane yet.
      lanes: lane of each rank, or None.
    """

    request: Request
    number: int
    length: int
    shard: int = -1
    slot: int = -1
    read: int = 0
    turn: int = 0
    version: int = 0
    waiting: collections.deque[int] = dataclasses.field(default_factory=collections.deque)
    lanes: list[int | None] = dataclasses.field(default_factory=list)
    tokens: Int32[np.ndarray, " tokens"] | None = None
    positions: Int32[np.ndarray, "3 tokens"] | None = None
    image_index: Int32[np.ndarray, " tokens"] | None = None
    example: Example | None = None

    @property
    def left(self) -> int:
        return self.length - self.read

    @property
    def ready(self) -> bool:
        return self.left == 0

    def has_image(self, count: int) -> bool:
        """True if an image is among the next `count` tokens."""
        index = self.image_index
        return index is not None and bool((index[self.read : self.read + count] >= 0).any())

    @property
    def over(self) -> bool:
        """True if its slot can be freed."""
        return not self.waiting and all(lane is None for lane in self.lanes)


@dataclasses.dataclass(eq=False)
class _Sequence:
    """A sample in a lane."""

    prompt: _Prompt
    sample: int
    rank: int
    constraint: Constraint | None
    drawn: int = 0


class Engine:
    """Draws responses with one model and some adapters on it.

    One thread draws, by `stream`. Others may submit and cancel requests and set adapters, which takes effect
    before the next step. With several processes all of them must make the same calls with the same requests.

    Args:
      model: read while the engine is made, and its vision tower later on.
      sizes: lanes and prompts must divide over the mesh's rows.
      eos: the token that ends a response.
      banned: tokens that are never drawn.
      layout: where weights lie; chosen by their size by default.
      cache_dtype: one of `CACHE_DTYPES`.
      adapters, adapter_rank: slots for adapters, and their largest rank.
      serving: compile the program of restricted draws, and let prefill and decoding take turns, so that a
        long prompt does not hold up others. False fills lanes first.

    Attributes:
      steps, tokens: `tokens` of `steps * lanes` that could have been drawn.
      chunks: of prompts that were read.

    Raises:
      UserError: the mesh does not divide the sizes, or a device's memory does not hold them.
    """

    def __init__(
        self,
        model: Qwen3VL,
        sizes: EngineSizes,
        *,
        eos: int,
        banned: tuple[int, ...] = (),
        layout: Layout | None = None,
        cache_dtype: str = "model",
        adapters: int = 0,
        adapter_rank: int = 0,
        serving: bool = False,
    ):
        if cache_dtype not in CACHE_DTYPES:
            raise ValueError(f"the cache's dtype is {cache_dtype!r}, not one of {CACHE_DTYPES}")
        self.layout = layout or choose_layout(model)
        self.sizes, self.config, self.serving = sizes, model.config, serving
        self._shards = row_shards(self.layout.mesh)
        if self.layout.mesh is not None:
            check_rows(self.layout.mesh, sizes.lanes, "lanes")
            check_rows(self.layout.mesh, sizes.prompts, "prompts")
            self._held = process_rows(self.layout.mesh, self._shards)
            # The first of the processes that hold a shard's devices.
            rows = self.layout.mesh.devices.reshape(self._shards, -1)
            self._host_of = [min(device.process_index for device in row) for row in rows]
        else:
            self._held, self._host_of = (0,), [0]
        self._eos, self._cache_dtype, self._dtype = np.int32(eos), cache_dtype, model.dtype
        self._banned = np.zeros(self.config.text.vocab_size, bool)
        self._banned[list(banned)] = True
        self._vision = nnx.split(model.visual)
        self._adapters: tuple[LayerAdapters, ...] = ()
        with _one_line_if_full(sizes):
            self._weights = programs.prepare_weights(*nnx.split(model), layout=self.layout)
            if adapters:
                self._adapters = programs.empty_adapters(
                    config=self.config.text,
                    count=adapters,
                    rank=adapter_rank,
                    dtype=self._dtype,
                    layout=self.layout,
                )
            self._slots, self._lanes = self._allocate()
        self.versions = [0] * (adapters + 1)
        self.steps = self.tokens = self.chunks = 0
        self._waiting: collections.deque[_Prompt] = collections.deque()
        self._held_prompts: list[list[_Prompt | None]] = [
            [None] * (sizes.prompts // self._shards) for _ in range(self._shards)
        ]
        self._prefilling: list[list[_Prompt]] = [[] for _ in range(self._shards)]
        # Features of one prompt's images for each shard, and whose they are.
        self._images: Vision | None = None
        self._shown: list[_Prompt | None] = [None] * self._shards
        self._sequences: list[_Sequence | None] = [None] * sizes.lanes
        self._serial = self._arrived = 0
        self._table = empty_table(sizes)
        self._limits = _empty_limits(sizes, self.config.text.vocab_size)
        self._on_device: LaneTable | None = None
        self._reports: collections.deque[Drawn] = collections.deque()
        # Of any thread; the one that draws makes them between two steps. They do not hold the engine, which
        # would keep its memory after its last owner has dropped it.
        self._calls: collections.deque[Callable[[Engine], None]] = collections.deque()
        self._called, self._stopped = threading.Condition(), False

    @classmethod
    def for_policy(
        cls, model: Qwen3VL, sizes: EngineSizes, *, adapters: bool = True, **settings: Any
    ) -> Engine:
        """Makes the engine of one policy; requests with `adapter=engine.policy` draw from it.

        Args:
          adapters: False leaves out the model's adapters, which gives the reference policy.
        """
        rank = adapter_rank(model) if adapters else 0
        engine = cls(model, sizes, adapters=bool(rank), adapter_rank=rank, **settings)
        if rank:
            engine.load_adapters(1, model)
        return engine

    @property
    def policy(self) -> int:
        """Slot of the policy's adapters; 0 if it has none."""
        return 1 if self._adapters else 0

    # --- policies

    def load_adapters(self, slot: int, model: Qwen3VL, version: int = 0) -> None:
        """Puts a model's adapters into a slot, from 1, and takes its vision tower.

        Raises:
          UserError: see `prepare_adapters`.
        """
        self._vision = nnx.split(model.visual)
        self.set_adapters(slot, self.prepare_adapters(model), version)

    def prepare_adapters(self, model: Qwen3VL) -> tuple[LayerAdapters, ...]:
        """Takes the adapters on attention from a model, in any thread.

        Raises:
          UserError: the model has none, their rank is larger than the slots', or they are damaged.
        """
        rank = adapter_rank(model)
        if not rank:
            raise UserError("the policy has no adapters on attention's projections: nothing to load")
        held = self._adapters[0].qkv.a.shape[2] if self._adapters else 0
        if rank > held:
            raise UserError(
                f"adapters of rank {rank} do not fit the engine's rank {held}: start it with a larger "
                "adapter rank"
            )
        new, finite = programs.prepare_adapters(*nnx.split(model), rank=held, layout=self.layout)
        if not finite:
            raise UserError("adapters with values that are not finite: load others")
        return new

    def set_adapters(self, slot: int, new: tuple[LayerAdapters, ...], version: int = 0) -> None:
        """Puts prepared adapters into a slot, from 1; lanes that use it go on with the new ones."""
        if not 1 <= slot < len(self.versions):
            raise UserError(f"adapters for slot {slot}: the engine has {len(self.versions) - 1}")

        def put(engine: Engine) -> None:
            engine._adapters = programs.set_adapters(
                engine._adapters, new, np.int32(slot - 1), layout=engine.layout
            )
            engine.versions[slot] = version

        self._call(put)

    # --- requests

    @property
    def wants(self) -> bool:
        """True while another request would soon get lanes on some host; for the thread that draws."""
        self._make_calls()
        for host in self.hosts:
            rows = [held for shard, held in enumerate(self._held_prompts) if self._host_of[shard] == host]
            free = sum(prompt is None for held in rows for prompt in held)
            if sum(prompt.request.host in (None, host) for prompt in self._waiting) < free:
                return True
        return False

    @property
    def hosts(self) -> list[int]:
        """Processes that read prompts, see `Request.host`."""
        return sorted(set(self._host_of))

    def check(self, prompt_length: int, sampling: Sampling) -> None:
        """Raises UserError if a request of this size can never be served."""
        if not 0 < prompt_length <= self.sizes.prompt_width:
            raise UserError(
                f"a prompt of {prompt_length} tokens: at most {self.sizes.prompt_width} are served"
            )
        if sampling.max_response_tokens > self.sizes.response_width:
            raise UserError(
                f"a limit of {sampling.max_response_tokens} tokens: at most {self.sizes.response_width} are "
                "served"
            )
        if sampling.num_samples < 1:
            raise UserError(f"{sampling.num_samples} samples: ask for 1 or more")
        if _restricted(sampling) and not self.serving:
            raise UserError("this engine draws from the whole distribution: start it with serving=True")

    def submit(self, request: Request) -> None:
        """Queues a request, first in first out.

        Raises:
          UserError: see `check`.
        """
        self.check(request.prompt.prompt_length, request.sampling)
        self._call(lambda engine: engine._add(request))

    def cancel(self, request: Request, sample: int | None = None) -> None:
        """Ends one sample, or the whole request, without another report of it."""
        self._call(lambda engine: engine._cancel(request, sample))

    def _call(self, work: Callable[[Engine], None]) -> None:
        with self._called:
            self._calls.append(work)
            self._called.notify()

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()(self)

    def _add(self, request: Request) -> None:
        self._arrived += 1
        prompt = _Prompt(request, self._arrived, request.prompt.prompt_length)
        prompt.waiting.extend(range(request.sampling.num_samples))
        prompt.lanes = [None] * min(self.sizes.samples, request.sampling.num_samples)
        self._waiting.append(prompt)

    def _cancel(self, request: Request, sample: int | None) -> None:
        self._reports = collections.deque(
            one
            for one in self._reports
            if one.request is not request or (sample is not None and one.sample != sample)
        )
        prompt = next((one for one in self._all() if one.request is request), None)
        if prompt is None:
            return
        if sample is None:
            prompt.waiting.clear()
        elif sample in prompt.waiting:
            prompt.waiting.remove(sample)
        for lane in [lane for lane in prompt.lanes if lane is not None]:
            sequence = self._sequences[lane]
            if sequence is not None and (sample is None or sequence.sample == sample):
                self._free_lane(lane)
        self._release(prompt)

    def _all(self) -> list[_Prompt]:
        held = [prompt for row in self._held_prompts for prompt in row if prompt is not None]
        return [*self._waiting, *held]

    # --- running

    def stream(self, requests: Iterable[Request] = (), *, wait: bool = False) -> Iterator[Drawn]:
        """Draws, and yields what is drawn after each step, until no request is left.

        What a caller does not take is there for the next one.

        Args:
          requests: submitted first.
          wait: wait for other requests when none is left, until `stop`.

        Raises:
          UserError: see `check`; or a device's memory does not hold a program.
        """
        for request in requests:
            self.submit(request)
        while True:
            if wait and not self._reports and not self._all():
                with self._called:
                    self._called.wait_for(lambda: self._stopped or self._calls)
            self._make_calls()
            if self._stopped:
                return
            if self._reports:
                yield self._reports.popleft()
            elif self._all():
                self._step()
            elif not wait:
                return

    def stop(self) -> None:
        """Ends streams after their step, for good."""
        with self._called:
            self._stopped = True
            self._called.notify()

    def _step(self) -> None:
        """Prefills and decodes a few steps, and reports what was drawn."""
        with _one_line_if_full(self.sizes):
            self._admit()
            self._prefill()
            self._fill_lanes()
            while not self.serving and self._idle_lanes_wait():
                self._prefill()
                self._fill_lanes()
                self._admit()
            if any(sequence is not None for sequence in self._sequences):
                self._decode()
            elif self.serving:
                # Chunks that wait on the device would hold up a request that comes now.
                jax.block_until_ready(self._slots.lengths)

    def warm_up(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compiles every program; later calls compile nothing.

        Raises:
          UserError: a device's memory does not hold one of them.
        """
        kinds = (False, True) if self.serving else (False,)

        def chunk(size: int) -> None:
            self._run_chunk(empty_chunk(self._shards, size), self._show_images([], 0))

        def decode(restricted: bool) -> None:
            jax.block_until_ready(self._run_decode(self.sizes.steps, 1, restricted).done)

        calls = [functools.partial(chunk, size) for size in self.sizes.chunks]
        calls += [functools.partial(decode, restricted) for restricted in kinds]
        with _one_line_if_full(self.sizes):
            for done, call in enumerate(calls, 1):
                call()
                report(done, len(calls))
            # On a mesh, results describe their layout otherwise than new arrays do, and the first program of
            # each kind was compiled for new ones.
            chunk(self.sizes.chunks[0])
            decode(kinds[0])
        if self._adapters:
            # Copied, since a whole slice is the array itself, which is donated.
            first = jax.tree.map(lambda x: jax.numpy.copy(x[:1]), self._adapters)
            self._adapters = programs.set_adapters(self._adapters, first, np.int32(0), layout=self.layout)

    def _allocate(self) -> Any:
        return programs.allocate(
            config=self.config.text,
            sizes=self.sizes,
            dtype=self._dtype,
            cache_dtype=self._cache_dtype,
            layout=self.layout,
            counted=self.serving,
        )

    def _put(self, tree: Any) -> Any:
        """Puts arrays of all shards on the devices; each process gives the rows of its own."""
        mesh = self.layout.mesh
        if mesh is None:
            return jax.tree.map(jax.numpy.asarray, tree)

        def own(x: np.ndarray) -> np.ndarray:
            each = len(x) // self._shards
            return np.concatenate([x[shard * each : (shard + 1) * each] for shard in self._held])

        return shard_batch(jax.tree.map(own, tree), mesh)

    # --- prefill

    def _admit(self) -> None:
        """Gives waiting requests a slot, in order, in a shard that can begin to read them."""
        for prompt in list(self._waiting):
            host = prompt.request.host
            free = [
                shard
                for shard in range(self._shards)
                if None in self._held_prompts[shard]
                and self._can_begin(shard, prompt)
                and (host is None or host == self._host_of[shard])
            ]
            if not free:
                continue
            # The shard with the least to do per lane; the first of equals, so that all processes agree.
            shard = min(free, key=self._load)
            self._waiting.remove(prompt)
            prompt.shard, prompt.slot = shard, self._held_prompts[shard].index(None)
            prompt.turn = self.chunks
            self._held_prompts[shard][prompt.slot] = prompt
            self._prefilling[shard].append(prompt)

    def _can_begin(self, shard: int, prompt: _Prompt) -> bool:
        """True if the shard reads no prompt, or only longer ones and this one fits a chunk."""
        reading = self._prefilling[shard]
        short = prompt.length <= self.sizes.chunks[-1]
        return not reading or (
            self.serving and short and all(one.length > self.sizes.chunks[-1] for one in reading)
        )

    def _load(self, shard: int) -> int:
        own = [prompt for prompt in self._held_prompts[shard] if prompt is not None]
        return sum(len(prompt.waiting) + sum(lane is not None for lane in prompt.lanes) for prompt in own)

    def _prefill(self) -> None:
        """Reads the next chunk of a prompt of each shard."""
        for prompt in [one for reading in self._prefilling for one in reading]:
            if prompt.shard in self._held and prompt.tokens is None:
                self._encode_prompt(prompt)
        # The one that has waited longest for a chunk, of equals the shorter: a prompt that fits a chunk goes
        # between those of a long one, and each of them delays the long one by a chunk at most.
        following = [
            min(one, key=lambda prompt: (prompt.turn, prompt.left)) for one in self._prefilling if one
        ]
        if not following:
            return
        # Chunks depend on a prompt's length alone, so that no neighbour changes a prompt's rounding.
        sizes = [self.sizes.chunk(prompt.left) for prompt in following]
        turns = [prompt.turn for prompt in following]
        size = sizes[turns.index(min(turns))] if self.serving else max(sizes)
        taking = [prompt for prompt, own in zip(following, sizes, strict=True) if own == size]
        chunk = empty_chunk(self._shards, size)
        for prompt in taking:
            if prompt.shard in self._held:
                _fill_chunk(chunk, prompt)
        self._run_chunk(chunk, self._show_images(taking, size))
        self.chunks += 1
        for prompt in taking:
            prompt.read += min(size, prompt.left)
            prompt.turn = self.chunks
            if prompt.ready:
                prompt.version = self.versions[prompt.request.adapter]
                self._prefilling[prompt.shard].remove(prompt)
                prompt.tokens = prompt.positions = prompt.image_index = prompt.example = None

    def _run_chunk(self, chunk: Chunk, images: Vision | None) -> None:
        placed = Chunk(*self._put(tuple(chunk)))
        cache = programs.prefill(
            self._weights,
            self._adapters,
            self._slots,
            placed,
            images,
            config=self.config.text,
            cache_dtype=self._cache_dtype,
            layout=self.layout,
        )
        self._slots = programs.store(self._slots, placed, cache, layout=self.layout)

    def _encode_prompt(self, prompt: _Prompt) -> None:
        """Encodes a prompt; one that cannot be encoded ends with an error."""
        try:
            example = prompt.request.prompt.encoded()
            tokens = example.prompt
            if len(tokens) != prompt.length:
                raise UserError(f"the prompt has {len(tokens)} tokens, not {prompt.length} as announced")
            if len(example.grids) > self.sizes.images:
                raise UserError(
                    f"a prompt with {len(example.grids)} images: at most {self.sizes.images} are served"
                )
            starts = image_starts(example.grids, self.sizes.window)
            prompt.positions = mrope_positions(tokens, example.grids, self.config)
            prompt.image_index = image_rows(tokens, example.grids, starts, self.config)
        except (UserError, ValueError, OSError) as failed:
            # Other processes know nothing of it, and would go on without this one.
            if self.layout.mesh is not None and jax.process_count() > 1:
                raise
            self._fail(prompt, str(failed))
        else:
            prompt.tokens, prompt.example = tokens, example

    def _fail(self, prompt: _Prompt, error: str) -> None:
        """Ends the samples that have no lane yet with an error."""
        for sample in prompt.waiting:
            self._reports.append(Drawn(prompt.request, sample, (), (), finish="error", error=error))
        prompt.waiting.clear()
        self._release(prompt)

    def _show_images(self, taking: list[_Prompt], size: int) -> Vision | None:
        """Returns the features of the images in the next chunks, encoded unless they were the last ones.

        An engine for images always returns some: one program, which rounds a prompt alike in any company.
        """
        if not self.sizes.images:
            return None
        alone = self.layout.mesh is None or jax.process_count() == 1
        # A process does not know of images in the prompts of others.
        showing = [prompt for prompt in taking if not alone or prompt.has_image(size)]
        shown = list(self._shown)
        for prompt in showing:
            shown[prompt.shard] = prompt
        if shown != self._shown or self._images is None:
            self._shown = shown
            self._images = self._encode(
                {shard: one for shard, one in enumerate(shown) if one is not None and shard in self._held}
            )
        return self._images

    def _encode(self, prompts: dict[int, _Prompt]) -> Vision:
        per_shard = self.sizes.images * self.sizes.window
        patches, grids, starts = [], [], []
        for place, shard in enumerate(self._held):
            example = prompts[shard].example if shard in prompts else None
            if example is None:
                continue
            patches += example.patches
            grids += example.grids
            own = image_starts(example.grids, self.sizes.window)
            starts += [place * per_shard + start for start in own]
        inputs = vision_inputs(
            patches, grids, self.config, len(self._held) * per_shard, self.sizes.window, starts
        )
        mesh = self.layout.mesh
        graphdef, state = self._vision
        placed = jax.tree.map(jax.numpy.asarray, inputs) if mesh is None else shard_batch(inputs, mesh)
        return programs.encode_images(graphdef, state, placed, layout=self.layout, shards=self._shards)

    # --- lanes

    def _lanes_of(self, shard: int) -> range:
        each = self.sizes.lanes // self._shards
        return range(shard * each, (shard + 1) * each)

    def _idle_lanes_wait(self) -> bool:
        """True while a lane is idle that a prompt under prefill, or a waiting one, could use."""
        return any(
            reading and any(self._sequences[lane] is None for lane in self._lanes_of(shard))
            for shard, reading in enumerate(self._prefilling)
        )

    def _fill_lanes(self) -> None:
        """Gives free lanes to samples of prefilled prompts: of those with lanes first, then of the oldest."""
        for shard in range(self._shards):
            free = [lane for lane in self._lanes_of(shard) if self._sequences[lane] is None]
            ready = [prompt for prompt in self._held_prompts[shard] if prompt is not None and prompt.ready]
            for prompt in sorted(
                ready, key=lambda prompt: (all(lane is None for lane in prompt.lanes), prompt.number)
            ):
                while free and prompt.waiting and None in prompt.lanes:
                    self._begin(free.pop(0), prompt)

    def _begin(self, lane: int, prompt: _Prompt) -> None:
        sample, rank = prompt.waiting.popleft(), prompt.lanes.index(None)
        request, sampling = prompt.request, prompt.request.sampling
        prompt.lanes[rank] = lane
        # One for each sample: a constraint has a state.
        constraint = request.constrain() if request.constrain else None
        self._sequences[lane] = _Sequence(prompt, sample, rank, constraint)
        self._serial += 1
        table, each = self._table, self.sizes.lanes // self._shards
        table.serial[lane] = self._serial
        table.prompt[lane], table.rank[lane] = prompt.slot, rank
        table.members[self._row(prompt), rank] = lane % each
        table.adapter[lane], table.limit[lane] = request.adapter, sampling.max_response_tokens
        table.seeds[lane] = request.seed & 0xFFFFFFFF
        table.prompt_ids[lane] = request.prompt_id & 0xFFFFFFFF
        table.samples[lane], table.temperature[lane] = sample, sampling.temperature
        self._on_device = None
        limits = self._limits
        for name in _NUMBERS:
            getattr(limits, name)[lane] = getattr(sampling, name)
        limits.allowed[lane] = -1
        if sampling.ignore_eos:
            word, bit = divmod(int(self._eos), 32)
            np.asarray(limits.allowed)[lane].view(np.uint32)[word] ^= np.uint32(1 << bit)

    def _row(self, prompt: _Prompt) -> int:
        """Number of a prompt's slot among those of all shards."""
        return prompt.shard * (self.sizes.prompts // self._shards) + prompt.slot

    def _free_lane(self, lane: int) -> None:
        sequence = self._sequences[lane]
        assert sequence is not None
        self._table.members[self._row(sequence.prompt), sequence.rank] = -1
        sequence.prompt.lanes[sequence.rank] = None
        self._sequences[lane] = None
        self._table.serial[lane] = 0
        self._on_device = None

    def _release(self, prompt: _Prompt) -> None:
        """Forgets a prompt without samples, and frees its slot."""
        if not prompt.over:
            return
        if prompt in self._waiting:
            self._waiting.remove(prompt)
        elif self._held_prompts[prompt.shard][prompt.slot] is prompt:
            self._held_prompts[prompt.shard][prompt.slot] = None
            if prompt in self._prefilling[prompt.shard]:
                self._prefilling[prompt.shard].remove(prompt)
            prompt.example = None

    def _decode(self) -> None:
        running = [sequence for sequence in self._sequences if sequence is not None]
        restricted = any(
            sequence.constraint is not None or _restricted(sequence.prompt.request.sampling)
            for sequence in running
        )
        steps = self.sizes.steps
        constrained = [
            (lane, sequence.constraint)
            for lane, sequence in enumerate(self._sequences)
            if sequence is not None and sequence.constraint is not None
        ]
        if constrained:
            # Each token changes what may follow.
            steps = 1
            for lane, constraint in constrained:
                constraint.allowed(np.asarray(self._limits.allowed)[lane])
        free = self.sizes.lanes - len(running)
        waits = any(prompt.waiting or not prompt.ready for prompt in self._all())
        most_free = free + max(1, self.sizes.lanes // _FREE_SHARE) if waits else self.sizes.lanes
        if self.serving:
            most_free = free + max(1, len(running) // _ENDED_SHARE)
        out = self._run_decode(steps, most_free, restricted)
        out = jax.tree.map(np.asarray, out)
        self.steps += int(out.steps)
        self.tokens += int(out.drawn.sum())
        for lane, sequence in enumerate(self._sequences):
            if sequence is not None and out.drawn[lane]:
                self._report(lane, sequence, out)

    def _run_decode(self, steps: int, free_lanes: int, restricted: bool) -> Emitted:
        if self._on_device is None:
            self._on_device = LaneTable(*self._put(tuple(self._table)))
        limits = Restrictions(*self._put(tuple(self._limits))) if restricted else None
        self._lanes, out = programs.decode(
            self._weights,
            self._adapters,
            self._slots,
            self._lanes,
            self._on_device,
            self._banned,
            self._eos,
            np.int32(free_lanes),
            np.int32(steps),
            limits,
            config=self.config.text,
            most_steps=self.sizes.steps,
            cache_dtype=self._cache_dtype,
            layout=self.layout,
        )
        return out

    def _report(self, lane: int, sequence: _Sequence, out: Emitted) -> None:
        """Reports what a call has drawn in a lane, and frees the lane if its sequence has ended."""
        prompt, request = sequence.prompt, sequence.prompt.request
        count = int(out.drawn[lane])
        drawn, log_probs = tuple(out.tokens[:count, lane].tolist()), out.log_probs[:count, lane]
        finish, error = None, ""
        if out.done[lane]:
            finish = "stop" if drawn[-1] == self._eos else "length"
        if not np.isfinite(log_probs).all():
            finish = "error"
            error = "a log-probability is not a number: the weights or the adapters are damaged"
        elif sequence.constraint is not None:
            try:
                sequence.constraint.take(drawn)
            except ValueError as failed:
                finish, error = "error", str(failed)
        versions = [self.versions[request.adapter]] * count
        if not sequence.drawn:
            versions[0] = prompt.version
        sequence.drawn += count
        wanted = request.sampling.top_log_probs
        top: tuple[TopTokens, ...] = ()
        if wanted and out.top.tokens.shape[-1]:
            top = tuple(
                _top_tokens(out.top.tokens[place, lane], out.top.log_probs[place, lane], wanted)
                for place in range(count)
            )
        self._reports.append(
            Drawn(
                *(request, sequence.sample, drawn, tuple(log_probs.tolist()), tuple(versions), top),
                *(finish, error),
            )
        )
        if finish is not None:
            self._free_lane(lane)
            self._release(prompt)


@contextlib.contextmanager
def _one_line_if_full(sizes: EngineSizes) -> Iterator[None]:
    """Says in one line that caches or programs do not fit a device's memory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not out_of_memory(error):
            raise
        raise UserError(
            f"a device's memory does not hold weights and caches of {sizes.prompts} prompts of "
            f"{sizes.prompt_width} tokens and {sizes.lanes} lanes of {sizes.response_width}: lower "
            "the lanes or the limits of prompts and responses, or set config.cache_dtype=int8"
        ) from None


def _restricted(sampling: Sampling) -> bool:
    names, default = (*_NUMBERS, "top_log_probs", "ignore_eos"), Sampling()
    return any(getattr(sampling, name) != getattr(default, name) for name in names)


def _top_tokens(tokens: Array, log_probs: Array, count: int) -> TopTokens:
    return TopTokens(tuple(tokens[:count].tolist()), tuple(log_probs[:count].tolist()))


def empty_table(sizes: EngineSizes) -> LaneTable:
    """Makes a table of free lanes."""
    numbers = {name: np.zeros(sizes.lanes, np.int32) for name in LaneTable._fields}
    bits = {name: np.zeros(sizes.lanes, np.uint32) for name in ("seeds", "prompt_ids")}
    return LaneTable(**numbers | bits)._replace(
        members=np.full((sizes.prompts, sizes.samples), -1, np.int32),
        limit=np.ones(sizes.lanes, np.int32),
        temperature=np.zeros(sizes.lanes, np.float32),
    )


def _empty_limits(sizes: EngineSizes, vocab: int) -> Restrictions:
    lanes, words, default = sizes.lanes, -(-vocab // 32), Sampling()
    kinds = {name: np.int32 if name == "top_k" else np.float32 for name in _NUMBERS}
    return Restrictions(
        **{name: np.full(lanes, getattr(default, name), kind) for name, kind in kinds.items()},
        allowed=np.full((lanes, words), -1, np.int32),
    )


def empty_chunk(shards: int, size: int) -> Chunk:
    """Makes a chunk of this size in which no shard has a prompt."""
    numbers = {name: np.zeros(shards, np.int32) for name in Chunk._fields}
    return Chunk(**numbers)._replace(
        tokens=np.zeros((shards, size), np.int32),
        positions=np.zeros((shards, 3, size), np.int32),
        image_index=np.full((shards, size), -1, np.int32),
        slot=np.full(shards, -1, np.int32),
    )


def _fill_chunk(chunk: Chunk, prompt: _Prompt) -> None:
    """Writes the next tokens of a prompt to its shard's row."""
    assert prompt.tokens is not None and prompt.positions is not None and prompt.image_index is not None
    shard, size = prompt.shard, chunk.tokens.shape[1]
    part = slice(prompt.read, min(prompt.read + size, prompt.length))
    count = part.stop - part.start
    chunk.tokens[shard, :count] = prompt.tokens[part]
    chunk.positions[shard, :, :count] = prompt.positions[:, part]
    chunk.image_index[shard, :count] = prompt.image_index[part]
    chunk.slot[shard], chunk.start[shard], chunk.count[shard] = prompt.slot, prompt.read, count
    chunk.next_position[shard] = int(prompt.positions.max()) + 1
    chunk.adapter[shard] = prompt.request.adapter
