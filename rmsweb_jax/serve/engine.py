"""The serving engine: tokenizes requests, queues them, and lets worker threads decode them."""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import EncodedPrompt, Processor
from rmsweb_jax.serve.adapters import BASE, AdapterRegistry
from rmsweb_jax.serve.batch import (
    BatchKey,
    DecodeBatch,
    EngineConfig,
    PendingRequest,
    PoolShape,
    PoolShapes,
    TokenizedRequest,
)
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.metrics import ServerMetrics
from rmsweb_jax.serve.protocol import BadRequestError, ChatRequest, check_tokens, to_messages

STOPPED = "the engine has stopped; see the server's log"


class EngineStoppedError(Exception):
    """The engine has stopped and accepts no requests."""


class RequestQueue:
    """Requests that wait for a slot, first in first out, and the load of each worker.

    Attributes:
      changed: condition that guards all other attributes; idle workers wait on it.
      waiting: requests in order of arrival.
      active: number of requests that each worker has in slots.
      closing: the workers must stop.
      stopped: at least one worker has stopped, on request or by an error.
    """

    def __init__(self, workers: int):
        self.changed = threading.Condition()
        self.waiting: collections.deque[PendingRequest] = collections.deque()
        self.active = [0] * workers
        self.closing = self.stopped = False

    def add(self, pending: PendingRequest) -> None:
        self.waiting.append(pending)
        self.changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """Numbers of requests in slots and of requests that wait."""
        return sum(self.active), len(self.waiting)

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()


class DecodeWorker:
    """One decoding thread with its own pools.

    Args:
      number: index among the engine's workers.

    Attributes:
      batches: the pools whose caches this worker holds, one per key.
    """

    def __init__(
        self,
        number: int,
        queue: RequestQueue,
        config: EngineConfig,
        shapes: PoolShapes,
        processor: Processor,
        adapters: AdapterRegistry,
        metrics: ServerMetrics,
    ):
        self.batches: list[DecodeBatch] = []
        self._number, self._queue, self._config, self._shapes = number, queue, config, shapes
        self._processor, self._adapters, self._metrics = processor, adapters, metrics
        # Taken from the queue and not in a slot yet: a failure in between must not lose it.
        self._admitting: PendingRequest | None = None
        self._thread = threading.Thread(target=self._run, name=f"engine-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                # Frees the caches of unloaded adapters before new requests may need a pool.
                self.batches = [batch for batch in self.batches if not self._is_stale(batch)]
                self.admit()
                for batch in self.batches:
                    if batch.busy:
                        self._advance(batch)
                self._report_load()
        finally:
            # This also runs when decoding failed: clients get an error, and the thread prints the cause.
            with self._queue.changed:
                self._queue.closing = self._queue.stopped = True
                left = [
                    *self._queue.waiting,
                    *(pending for batch in self.batches for pending in batch.requests),
                ]
                self._queue.waiting.clear()
                self._queue.changed.notify_all()
            if self._admitting is not None:
                left.append(self._admitting)
            for pending in left:
                if not pending.future.done():
                    pending.fail(EngineStoppedError(STOPPED))

    def _wait_for_work(self) -> bool:
        """Blocks until there is work. Returns False when the worker must stop."""
        queue = self._queue
        with queue.changed:
            queue.changed.wait_for(
                lambda: (
                    queue.closing
                    or self._is_next()
                    or any(batch.busy or self._is_stale(batch) for batch in self.batches)
                )
            )
            return not queue.closing

    def _is_stale(self, batch: DecodeBatch) -> bool:
        """Returns True if a batch is idle and keeps the weights of an unloaded adapter in memory."""
        return not batch.busy and not self._adapters.holds(batch.key.generator)

    def _is_next(self) -> bool:
        """Returns True if a request waits and this worker has less than its fair share of all requests."""
        running, waiting = self._queue.counts()
        # Without shares the first worker to wake up would take all requests into one large pool.
        return waiting > 0 and self._queue.active[self._number] * self._config.workers < running + waiting

    def admit(self) -> None:
        """Gives slots to waiting requests in order of arrival; a request without a slot blocks later ones."""
        queue = self._queue
        while True:
            with queue.changed:
                while queue.waiting and queue.waiting[0].cancelled:
                    queue.waiting.popleft()
                found = self._find_batch() if self._is_next() else None
                if found is None:
                    return
                # Counted under the lock, so that other workers see this one's new share.
                pending = self._admitting = queue.waiting.popleft()
                queue.active[self._number] += 1
            # Outside of the lock: prefill must not block `submit` and other workers.
            batch, shape = found
            if batch.shape != shape:
                # One large pool takes fewer decoding steps than two small ones.
                batch.enlarge(shape)
            batch.insert(pending)
            self._admitting = None
            self._metrics.admitted(pending)

    def _find_batch(self) -> tuple[DecodeBatch, PoolShape] | None:
        """Returns a batch for the first waiting request and the shape it needs; None if all are full."""
        key = BatchKey.of(self._queue.waiting[0])
        batch = next((batch for batch in self.batches if batch.key == key), None)
        if batch is not None and batch.busy:
            return self._extend(batch)
        shape = self._shape_for(key, 0)
        if batch is not None and batch.shape != shape:
            # Dropping the batch frees its caches before a pool of another shape is allocated.
            self.batches.remove(batch)
            batch = None
        if batch is None:
            if len(self.batches) >= self._config.max_pools:
                idle = [other for other in self.batches if not other.busy]
                if not idle:
                    return None
                self.batches.remove(idle[0])
            batch = DecodeBatch(key, shape, self._processor)
            self.batches.append(batch)
        return batch, shape

    def _extend(self, batch: DecodeBatch) -> tuple[DecodeBatch, PoolShape] | None:
        """Returns a busy batch and the shape it needs for the first waiting request; None if it is full."""
        slots = batch.shape.slots
        if not batch.free:
            slots = self._shape_for(batch.key, len(batch.requests)).slots
            if slots <= batch.shape.slots:
                return None
        width = max(batch.shape.width, self._shapes.width(self._queue.waiting[0]))
        return batch, self._shapes.shape(slots, width)

    def _shape_for(self, key: BatchKey, active: int) -> PoolShape:
        """Returns the smallest pool that fits `active` requests plus this worker's share of the queue."""
        same_key = [pending for pending in self._queue.waiting if BatchKey.of(pending) == key]
        share = -(-len(same_key) // self._config.workers)
        slots = self._shapes.slots((active + share) * key.samples) // key.samples or 1
        return self._shapes.shape(slots, max(self._shapes.width(pending) for pending in same_key[:share]))

    def _advance(self, batch: DecodeBatch) -> None:
        for pending, completions in batch.advance(self._config.chunk):
            self._metrics.completed(pending, completions)
            pending.complete(completions)

    def _report_load(self) -> None:
        with self._queue.changed:
            self._queue.active[self._number] = sum(len(batch.requests) for batch in self.batches)
            self._metrics.holding(*self._queue.counts())


__all__ = ["EngineConfig", "EngineStoppedError", "OverloadedError", "ServingEngine", "UnknownPolicyError"]


class UnknownPolicyError(Exception):
    """No model or adapter of this name is loaded."""


class OverloadedError(Exception):
    """The queue is full."""


class ServingEngine:
    """Continuous batching: a request takes a slot of a pool as soon as one is free, in order of arrival.

    A reply depends only on prompt, seed, temperature and its index among the `n`. Other requests in the
    pool and the pool's size change its logits by rounding at most.

    Args:
      model: not modified.
      reply_schema: JSON schema that constrains replies when a request names no format.

    Attributes:
      adapters: the model and the LoRA adapters loaded on it.
      metrics: counters of this engine.
    """

    def __init__(
        self,
        model: Qwen3VL,
        processor: Processor,
        config: EngineConfig,
        reply_schema: Mapping[str, Any] | None = None,
    ):
        # Two threads may dispatch collectives in different orders on two devices, which deadlocks.
        if config.workers > 1 and model.attention.mesh is not None:
            raise UserError(f"config.workers is {config.workers}: a model on a device mesh needs 1 worker")
        self.adapters = AdapterRegistry(model)
        self.metrics = ServerMetrics()
        self._processor, self._config = processor, config
        self._shapes = PoolShapes(config, processor.max_pixels // model.config.vision.patch_size**2)
        self._grammars = Grammars(processor)
        self._reply_grammar = None if reply_schema is None else self._grammars.compile(reply_schema)
        self._queue = RequestQueue(config.workers)
        self._workers = [
            DecodeWorker(number, self._queue, config, self._shapes, processor, self.adapters, self.metrics)
            for number in range(config.workers)
        ]

    def warm_up(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compiles the common shapes; call it before `start`.

        Args:
          report: called with (done, total) after each program.
        """
        widths = self._config.prompt_widths[: self._config.warm_widths]
        shapes = list(itertools.product(self._config.slots, widths))
        # Two tokens, so that prefill, insertion and a decoding step are compiled for every shape.
        for done, (slots, width) in enumerate(shapes, start=1):
            shape = self._shapes.shape(slots, width)
            batch = DecodeBatch(BatchKey.of(self._warm_up_request(width)), shape, self._processor)
            for length in shape.prefill_widths:
                batch.insert(self._warm_up_request(length))
                while not batch.advance(self._config.chunk):
                    pass
            report(done, len(shapes))

    def _warm_up_request(self, length: int) -> PendingRequest:
        """Returns a request for two tokens after a prompt of `length` tokens."""
        prompt = EncodedPrompt(np.full(length, self._processor.start_id, np.int32), (), ())
        return PendingRequest(
            TokenizedRequest(prompt, 1, 1.0, 0, 2, grammar=self._reply_grammar), self.adapters.base
        )

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Stops the workers; unanswered requests get `EngineStoppedError`."""
        self._queue.close()
        for worker in self._workers:
            worker.join()

    @property
    def alive(self) -> bool:
        return not self._queue.stopped

    def prepare(self, request: ChatRequest) -> TokenizedRequest:
        """Tokenizes a request. Thread-safe.

        Raises:
          BadRequestError: an image is unusable, the request exceeds the compiled shapes, its schema is not
            supported, or it names other banned or end tokens than the model's.
        """
        # Everything that a client can cause is refused here: an error in a worker would stop the engine.
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
        return TokenizedRequest(
            prompt=prompt,
            n=request.n,
            temperature=request.temperature,
            seed=request.seed,
            max_tokens=min(request.token_limit or self._config.max_new_tokens, self._config.max_new_tokens),
            stop=request.stop_texts,
            grammar=self._grammar(request),
        )

    def submit(self, prepared: TokenizedRequest, policy: str = BASE) -> PendingRequest:
        """Queues a request.

        Args:
          policy: name of a loaded adapter; the model itself by default.

        Raises:
          UnknownPolicyError: no adapter of this name is loaded.
          OverloadedError: the queue is full.
          EngineStoppedError: the engine has stopped.
        """
        generator = self.adapters.get(policy)
        if generator is None:
            raise UnknownPolicyError(policy)
        pending = PendingRequest(prepared, generator)
        with self._queue.changed:
            if self._queue.stopped or self._queue.closing:
                raise EngineStoppedError(STOPPED)
            waiting = len(self._queue.waiting)
            if waiting >= self._config.max_waiting:
                raise OverloadedError(f"{waiting} requests wait already; try again later")
            # Refused above instead of queued without bound: a client can retry after the 503.
            self._queue.add(pending)
            self.metrics.holding(*self._queue.counts())
        return pending

    def unload(self, name: str) -> None:
        """Unloads an adapter; its weights are freed once the requests that use it are answered.

        Raises:
          BadRequestError: no adapter has this name.
        """
        self.adapters.unload(name)
        with self._queue.changed:
            self._queue.changed.notify_all()

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Decodes each token alone; a partial UTF-8 character becomes the replacement character."""
        decode = self._processor.tokenizer.decode
        return [decode([token], skip_special_tokens=False) for token in tokens]

    def _grammar(self, request: ChatRequest) -> Grammar | None:
        if request.response_format is None:
            return self._reply_grammar
        schema = request.response_format.as_schema()
        return None if schema is None else self._grammars.compile(schema)
