"""Batches of requests that are decoded together, and the shapes of their slot pools."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from rmsweb_jax.data.batching import Example, lay_out_prompts
from rmsweb_jax.data.packing import RowShape
from rmsweb_jax.decoding.generator import Generator
from rmsweb_jax.decoding.pool import DecodePool, HostResponses, to_host
from rmsweb_jax.qwen3_vl.processor import EncodedPrompt, Processor
from rmsweb_jax.serve.config import EngineConfig
from rmsweb_jax.serve.grammar import Grammar, GrammarError, GrammarState, allowed_tokens


@dataclasses.dataclass(frozen=True)
class BatchKey:
    """Requests with equal keys can share a pool.

    Attributes:
      samples: completions drawn for each request.
      bound: a grammar constrains every token.
    """

    generator: Generator
    samples: int
    bound: bool

    @classmethod
    def of(cls, pending: PendingRequest) -> BatchKey:
        return cls(pending.generator, pending.samples, pending.prepared.grammar is not None)


class _ActiveRequest:
    """A request that occupies a slot."""

    def __init__(self, pending: PendingRequest):
        self.pending = pending
        grammar = pending.prepared.grammar
        self.grammar_state: list[GrammarState] = []
        if grammar is not None:
            self.grammar_state = [grammar.begin() for _ in range(pending.prepared.n)]
        self.taken = [0] * pending.prepared.n
        self.completions: list[Completion | None] = [None] * pending.prepared.n

    @property
    def open(self) -> list[int]:
        """Indices of the samples that are still being drawn."""
        return [number for number, completion in enumerate(self.completions) if completion is None]


class DecodeBatch:
    """A slot pool and the requests in it. Not thread-safe: one worker owns it."""

    def __init__(self, key: BatchKey, shape: PoolShape, processor: Processor):
        self.key, self.shape = key, shape
        self._processor = processor
        self._active: list[_ActiveRequest | None] = [None] * shape.slots
        self._pool: DecodePool | None = None
        # A request was prefilled but not sampled from yet: its grammar must constrain the first token.
        self._has_new_requests = False

    @property
    def free(self) -> int:
        return self._active.count(None)

    @property
    def busy(self) -> bool:
        return self.free < self.shape.slots

    @property
    def requests(self) -> list[PendingRequest]:
        return [active.pending for active in self._active if active is not None]

    def enlarge(self, shape: PoolShape) -> None:
        """Grows the pool for more or longer requests; running requests keep their slots.

        Args:
          shape: at least as many slots and at least as wide as the current one.
        """
        self._active += [None] * (shape.slots - self.shape.slots)
        self.shape = shape
        if self._pool is not None:
            self._pool = self.key.generator.enlarge(self._pool, slots=shape.slots, width=shape.width)

    def insert(self, pending: PendingRequest) -> None:
        """Prefills a request into a free slot without waiting for the device."""
        shape, prepared, generator = self.shape, pending.prepared, self.key.generator
        width = next(width for width in shape.prefill_widths if width >= len(prepared.prompt.tokens))
        row = RowShape(width, 1, shape.images, shape.window)
        chat_request = generator.prefill(
            lay_out_prompts([_example(prepared.prompt)], row, generator.config).inputs,
            # Random keys are folded from 32-bit numbers, so a 64-bit seed is passed in two halves.
            seeds=np.asarray([prepared.seed & 0xFFFFFFFF], np.uint32),
            prompt_ids=np.asarray([prepared.seed >> 32], np.uint32),
            temperature=np.asarray([prepared.temperature], np.float32),
        )
        if self._pool is None:
            self._pool = generator.empty_pool(
                chat_request,
                slots=shape.slots,
                width=shape.width,
                num_samples=self.key.samples,
                max_new_tokens=shape.max_new_tokens,
            )
        slot = self._active.index(None)
        self._pool = generator.insert(self._pool, chat_request, np.asarray([slot], np.int32))
        self._active[slot] = _ActiveRequest(pending)
        self._has_new_requests = True
        # A pool's samples are a power of two; those that the request does not need end at once.
        if prepared.n < self.key.samples:
            unused = np.zeros((shape.slots, self.key.samples), bool)
            unused[slot, prepared.n :] = True
            self._pool = generator.end(self._pool, unused)

    def advance(self, steps: int) -> list[tuple[PendingRequest, list[Completion]]]:
        """Draws up to `steps` tokens of each reply, or one under a grammar, and returns complete requests.

        It returns early when a request may be complete. Cancelled requests leave their slots.
        """
        assert self._pool is not None, "only busy batches advance"
        if self.key.bound:
            # Each token changes what may follow, so the grammar must run after every step.
            steps = 0 if self._has_new_requests else 1
        self._pool = self.key.generator.decode(
            self._pool,
            max_new_tokens=self.shape.max_new_tokens,
            eos=self._processor.end_id,
            banned=self._processor.banned_ids,
            # Returns as soon as one more request may be complete, so that its slot is used again.
            free_slots=self.free + 1,
            steps=steps,
            allowed=self._allowed() if self.key.bound else None,
        )
        self._has_new_requests = False
        return self._collect(to_host(self._pool.state))

    def _allowed(self) -> np.ndarray:
        """Returns the allowed tokens of each sample as bit masks [slots, samples, words] int32."""
        samples = self.key.samples
        states = {
            slot * samples + sample: active.grammar_state[sample]
            for slot, active in enumerate(self._active)
            if active is not None
            for sample in active.open
        }
        rows = allowed_tokens(states, self.shape.slots * samples, self._processor.config.text.vocab_size)
        return rows.reshape(self.shape.slots, samples, -1)

    def _collect(self, answers: HostResponses) -> list[tuple[PendingRequest, list[Completion]]]:
        complete = []
        ended = np.zeros(answers.done.shape, bool)
        for slot, active in enumerate(self._active):
            if active is None:
                continue
            try:
                for sample in active.open:
                    self._take(active, sample, *answers.response(slot, sample))
            except GrammarError as error:
                active.pending.fail(error)
            # A stop text or the request's own limit ends a sample that the device still draws.
            over = [number for number in range(len(active.completions)) if number not in active.open]
            if not active.open:
                complete.append((active.pending, [one for one in active.completions if one is not None]))
            if active.pending.cancelled or not active.open:
                self._active[slot] = None
                over = list(range(len(active.completions)))
            ended[slot, over] = True
        if (ended & ~answers.done).any():
            assert self._pool is not None
            self._pool = self.key.generator.end(self._pool, ended)
        return complete

    def _take(self, active: _ActiveRequest, sample: int, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Consumes the new tokens of a reply and completes the reply where it has ended."""
        prepared, known = active.pending.prepared, active.taken[sample]
        active.taken[sample] = len(tokens)
        if active.grammar_state:
            active.grammar_state[sample].take(tokens[known:].tolist())
        limit = min(prepared.max_tokens, self.shape.max_new_tokens)
        length = self._ended_at(tokens, known, prepared.stop)
        reason = "stop" if length is not None and length <= limit else "length"
        if reason == "length":
            if len(tokens) < limit:
                return
            length = limit
        # The last token may complete a stop text and go on after it: the text is cut, the tokens are kept.
        text = self._processor.decode_response(tokens[:length])
        found = [at for at in map(text.find, prepared.stop) if at >= 0]
        active.completions[sample] = Completion(
            text[: min(found, default=None)],
            tuple(tokens[:length].tolist()),
            tuple(log_probs[:length].tolist()),
            reason,
        )

    def _ended_at(self, tokens: np.ndarray, known: int, stop: Sequence[str]) -> int | None:
        """Returns the length of a reply that ended by an end token or a stop text, else None.

        Args:
          known: number of tokens that were checked before.
        """
        # A stop text may span several tokens, so the decoded text is searched: first all of it, then, in a
        # hit, each new prefix for the token that completes it.
        if stop and self._holds(tokens, stop):
            return next(end for end in range(known + 1, len(tokens) + 1) if self._holds(tokens[:end], stop))
        return len(tokens) if tokens[-1] == self._processor.end_id else None

    def _holds(self, tokens: np.ndarray, stop: Sequence[str]) -> bool:
        text = self._processor.decode_response(tokens)
        return any(one in text for one in stop)


def _example(prompt: EncodedPrompt) -> Example:
    return Example(
        sample_id="",
        tokens=prompt.tokens,
        prompt_length=len(prompt.tokens),
        action_mask=np.zeros(0, bool),
        patches=prompt.patches,
        grids=prompt.grids,
    )


@dataclasses.dataclass(frozen=True)
class PoolShape:
    """Capacity of one slot pool.

    Attributes:
      slots: number of requests.
      width: tokens of a padded prompt.
      prefill_widths: padded prompt lengths during prefill, ascending; the last is `width`.
      max_new_tokens: limit for a reply.
      images, window: images of a prompt, and the most patches of one image.
    """

    slots: int
    width: int
    prefill_widths: tuple[int, ...]
    max_new_tokens: int
    images: int
    window: int


class PoolShapes:
    """Chooses pool shapes from the configured ones.

    Args:
      window: most patches of an image.
    """

    def __init__(self, config: EngineConfig, window: int):
        self._config, self._window = config, window

    def shape(self, slots: int, width: int) -> PoolShape:
        """Returns the shape of a pool with `slots` slots for prompts of up to `width` tokens."""
        config = self._config
        narrower = {one for one in config.prompt_widths + config.prefill_widths if one < width}
        return PoolShape(
            slots, width, (*sorted(narrower), width), config.max_new_tokens, config.max_images, self._window
        )

    def slots(self, replies: int) -> int:
        """Returns the smallest configured number of slots that holds `replies`, or the largest."""
        return next((slots for slots in self._config.slots if slots >= replies), self._config.slots[-1])

    def width(self, pending: PendingRequest) -> int:
        """Returns the smallest configured width that fits a request's prompt."""
        length = len(pending.prepared.prompt.tokens)
        return next(width for width in self._config.prompt_widths if width >= length)


@dataclasses.dataclass(frozen=True)
class TokenizedRequest:
    """A request as tokens and image patches.

    Attributes:
      max_tokens: limit for each reply.
      stop: texts that end a reply; the reply is cut before them.
      grammar: constrains the replies; None for free text.
    """

    prompt: EncodedPrompt
    n: int
    temperature: float
    seed: int
    max_tokens: int
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None


@dataclasses.dataclass(frozen=True)
class Completion:
    """One reply.

    Attributes:
      tokens: tokens of the reply, including `<|im_end|>`, or up to the token that completes a stop text.
      log_probs: log-probability of each token under the model at the sampling temperature (at 1 when greedy).
      finish_reason: `stop` when the model ended its reply or wrote a stop text, `length` when a limit cut it.
    """

    text: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: str


@dataclasses.dataclass(eq=False)
class PendingRequest:
    """A request that the engine has accepted and not answered yet.

    Attributes:
      future: resolves to its `n` completions.
      submitted: time of arrival, in seconds of `time.perf_counter`.
      cancelled: the client is gone; `cancel` sets it from any thread.
    """

    prepared: TokenizedRequest
    generator: Generator
    future: Future[list[Completion]] = dataclasses.field(default_factory=Future)
    submitted: float = dataclasses.field(default_factory=time.perf_counter)
    cancelled: bool = False

    @property
    def samples(self) -> int:
        """Number of samples drawn: `n` rounded up to a power of two, so that few shapes are compiled."""
        return 1 << (self.prepared.n - 1).bit_length()

    def complete(self, completions: list[Completion]) -> None:
        """Resolves the future unless it was cancelled."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completions)

    def fail(self, error: Exception) -> None:
        """Rejects the future and lets the engine drop the request."""
        self.cancelled = True
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def cancel(self) -> None:
        """Lets the engine drop the request before its next chunk."""
        self.cancelled = True
        self.future.cancel()
