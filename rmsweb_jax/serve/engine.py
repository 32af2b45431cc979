"""A thread that answers waiting requests in batches."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import jax
import numpy as np

from rmsweb_jax.data.batching import Example, Shapes, collate, single_rows
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.decode import Generated, Generator
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Encoded, Processor
from rmsweb_jax.serve.policies import BASE, Policies
from rmsweb_jax.serve.protocol import BadRequestError, ChatRequest, check_tokens, to_messages


class EngineStoppedError(Exception):
    """The engine has ended and answers nothing any more."""


class UnknownPolicyError(Exception):
    """Nothing of this name is loaded."""


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Shapes that are compiled; all of them ascending.

    Attributes:
      batch_sizes: requests answered together; a batch is filled up to the next size.
      prompt_widths: prompts are padded to the next width; longer ones are refused.
      max_new_tokens: of a reply; a request's own limit may only be smaller.
      max_images: of one request. Every batch has room for so many images a request.
      warm_widths: how many of the widths, shortest first, are compiled before the server is ready.
    """

    batch_sizes: tuple[int, ...]
    prompt_widths: tuple[int, ...]
    max_new_tokens: int
    max_images: int
    warm_widths: int

    def __post_init__(self) -> None:
        for name in ("batch_sizes", "prompt_widths"):
            values = getattr(self, name)
            if not values or any(low >= high for low, high in itertools.pairwise((0, *values))):
                raise UserError(f"config.{name} is {values}: give positive numbers in ascending order")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A request as the engine takes it: tokens and patches instead of text and images."""

    prompt: Encoded
    n: int
    temperature: float
    seed: int
    max_tokens: int


@dataclasses.dataclass(frozen=True)
class Completion:
    """One reply.

    Attributes:
      tokens: of the reply, `<|im_end|>` included where there is one.
      log_probs: of each token, as it was drawn.
      finish_reason: `stop` when the model ended its reply, `length` when a limit cut it.
    """

    text: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: str


@dataclasses.dataclass(frozen=True)
class _Waiting:
    prepared: Prepared
    generator: Generator
    future: Future[list[Completion]]

    @property
    def samples(self) -> int:
        """Samples that are drawn: `n` rounded up, so that few numbers of them are compiled."""
        return 1 << (self.prepared.n - 1).bit_length()

    def fits(self, other: _Waiting) -> bool:
        """Whether one call can answer both."""
        return self.samples == other.samples and self.generator is other.generator


class Engine:
    """Answers requests one batch of one policy at a time, in order of arrival.

    A reply depends on the prompt, seed, temperature and its number among the `n` alone. What else is
    in the batch changes its logits by rounding at most, as another batch size does.

    Args:
      model: read only.

    Attributes:
      policies: the model, and adapters on it.
    """

    def __init__(self, model: Qwen3VL, processor: Processor, config: EngineConfig):
        self.policies = Policies(model)
        self._processor, self._config = processor, config
        patch = model.config.vision.patch_size
        self._window = processor.max_pixels // patch**2
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._changed = threading.Condition()
        self._closing = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.served = 0

    def warm_up(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compiles the common shapes; call it before `start`.

        Args:
          report: told (done, total) after each program.
        """
        widths = self._config.prompt_widths[: self._config.warm_widths]
        shapes = list(itertools.product(self._config.batch_sizes, widths))
        for done, (size, width) in enumerate(shapes, start=1):
            prompt = Encoded(np.full(width, self._processor.start_id, np.int32), (), ())
            self._generate(self.policies.base, [Prepared(prompt, 1, 1.0, 0, 1)] * size, samples=1)
            report(done, len(shapes))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after the batch in progress; requests still waiting get `EngineStoppedError`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return not self._stopped

    def prepare(self, request: ChatRequest) -> Prepared:
        """Tokenizes a request; safe in any thread.

        Raises:
          BadRequestError: an image cannot be used, there is more of something than the shapes hold, or other
            tokens than the model's would have to be banned or to end a reply.
        """
        check_tokens(request, self._processor.end_id, self._processor.banned_ids)
        messages, images = to_messages(request)
        if len(images) > self._config.max_images:
            raise BadRequestError(
                f"messages: {len(images)} images, at most {self._config.max_images} are served", "messages"
            )
        prompt = self._processor.encode_prompt(messages, images.__getitem__)
        longest = self._config.prompt_widths[-1]
        if len(prompt.tokens) > longest:
            raise BadRequestError(
                f"messages: {len(prompt.tokens)} tokens, at most {longest} are served", "messages"
            )
        limit = min(request.token_limit or self._config.max_new_tokens, self._config.max_new_tokens)
        return Prepared(prompt, request.n, request.temperature, request.seed, limit)

    def submit(self, prepared: Prepared, policy: str = BASE) -> Future[list[Completion]]:
        """Queues a request; the future holds its `n` completions.

        Args:
          policy: name of adapters that are loaded; the model itself by default.

        Raises:
          UnknownPolicyError: no such adapters are loaded (any more).
          EngineStoppedError: nothing would ever answer.
        """
        generator = self.policies.get(policy)
        if generator is None:
            raise UnknownPolicyError(policy)
        waiting = _Waiting(prepared, generator, Future())
        with self._changed:
            if self._stopped or self._closing:
                raise EngineStoppedError("the engine has stopped; see the server's log")
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.future

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Each token on its own as text; a part of a character is a replacement mark."""
        return [str(self._processor.tokenizer.decode([token])) for token in tokens]

    def _run(self) -> None:
        batch: list[_Waiting] = []
        try:
            while batch := self._next_batch():
                self._answer(batch)
        finally:
            # Also when a batch failed: whoever waits must hear of it, and the failure itself is printed.
            with self._changed:
                self._stopped = True
                left = [*batch, *self._waiting]
                self._waiting.clear()
            for waiting in left:
                if not waiting.future.done():
                    waiting.future.set_exception(
                        EngineStoppedError("the engine has stopped; see the server's log")
                    )

    def _next_batch(self) -> list[_Waiting]:
        """The first waiting request and those that can be answered with it; empty when closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if self._closing:
                return []
            batch, rest = [], collections.deque()
            for waiting in self._waiting:
                fits = len(batch) < self._config.batch_sizes[-1]
                same = not batch or waiting.fits(batch[0])
                # A client that went away is not worth computing for.
                if fits and same and waiting.future.set_running_or_notify_cancel():
                    batch.append(waiting)
                elif not waiting.future.cancelled():
                    rest.append(waiting)
            self._waiting = rest
        return batch or self._next_batch()

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        prepared = [waiting.prepared for waiting in batch]
        drawn = self._generate(batch[0].generator, prepared, batch[0].samples)
        for row, waiting in enumerate(batch):
            self.served += 1
            samples = range(waiting.prepared.n)
            waiting.future.set_result([self._completion(drawn, row, i, waiting.prepared) for i in samples])

    def _generate(self, generator: Generator, prepared: Sequence[Prepared], samples: int) -> Generated:
        config = self._config
        size = next(size for size in config.batch_sizes if size >= len(prepared))
        # Empty rows would be decoded to the limit: repeat a request instead.
        rows = [*prepared, *[prepared[-1]] * (size - len(prepared))]
        longest = max(len(row.prompt.tokens) for row in rows)
        width = next(width for width in config.prompt_widths if width >= longest)
        shapes = Shapes(
            rows=size,
            widths=config.prompt_widths,
            num_targets=1,
            images=config.max_images,
            window=self._window,
        )
        examples = [_example(row.prompt) for row in rows]
        drawn = generator(
            collate(single_rows(examples, size), shapes, width, generator.config).inputs,
            num_samples=samples,
            max_new_tokens=config.max_new_tokens,
            eos=self._processor.end_id,
            # Both halves of a 64-bit seed count; keys are folded from 32-bit numbers.
            seed=np.asarray([row.seed & 0xFFFFFFFF for row in rows], np.uint32),
            prompt_ids=np.asarray([row.seed >> 32 for row in rows], np.uint32),
            temperature=np.asarray([row.temperature for row in rows], np.float32),
            banned=self._processor.banned_ids,
        )
        return Generated(*jax.device_get(drawn))

    def _completion(self, drawn: Generated, row: int, sample: int, prepared: Prepared) -> Completion:
        length = min(int(drawn.lengths[row, sample]), prepared.max_tokens)
        tokens = tuple(drawn.tokens[row, sample, :length].tolist())
        log_probs = tuple(drawn.log_probs[row, sample, :length].tolist())
        reason = "stop" if tokens[-1] == self._processor.end_id else "length"
        return Completion(self._processor.decode_response(tokens), tokens, log_probs, reason)


def _example(prompt: Encoded) -> Example:
    return Example(
        sample_id="",
        tokens=prompt.tokens,
        prompt_length=len(prompt.tokens),
        action_mask=np.zeros(0, bool),
        patches=prompt.patches,
        grids=prompt.grids,
    )
