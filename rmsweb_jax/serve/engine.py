"""What answers requests: prepares them, and has workers decode them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Encoded, Processor
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.lanes import Kind, Lanes
from rmsweb_jax.serve.metrics import Metrics
from rmsweb_jax.serve.policies import BASE, Policies
from rmsweb_jax.serve.protocol import BadRequestError, ChatRequest, check_tokens, to_messages
from rmsweb_jax.serve.requests import Prepared, Ticket
from rmsweb_jax.serve.rooms import EngineConfig, Rooms
from rmsweb_jax.serve.worker import STOPPED, EngineStoppedError, Line, Worker

__all__ = ["Engine", "EngineConfig", "EngineStoppedError", "OverloadedError", "UnknownPolicyError"]


class UnknownPolicyError(Exception):
    """Nothing of this name is loaded."""


class OverloadedError(Exception):
    """More requests wait than may."""


class Engine:
    """Continuous batching: a request takes a slot of a pool as soon as one is free, in order of arrival.

    A reply depends on the prompt, seed, temperature and its number among the `n` alone. Who else is in the
    pool, and how large it is, changes its logits by rounding at most.

    Args:
      model: read only.
      reply_schema: JSON schema that replies are held to where a request names no format.

    Attributes:
      policies: the model, and adapters on it.
      metrics: of this engine alone.
    """

    def __init__(
        self,
        model: Qwen3VL,
        processor: Processor,
        config: EngineConfig,
        reply_schema: Mapping[str, Any] | None = None,
    ):
        if config.workers > 1 and model.attention.mesh is not None:
            raise UserError(f"config.workers is {config.workers}: devices that share a model want one worker")
        self.policies = Policies(model)
        self.metrics = Metrics()
        self._processor, self._config = processor, config
        self._rooms = Rooms(config, processor.max_pixels // model.config.vision.patch_size**2)
        self._grammars = Grammars(processor)
        self._reply_grammar = None if reply_schema is None else self._grammars.compile(reply_schema)
        self._line = Line(config.workers)
        self._workers = [
            Worker(number, self._line, config, self._rooms, processor, self.policies, self.metrics)
            for number in range(config.workers)
        ]

    def warm_up(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compiles the common shapes; call it before `start`.

        Args:
          report: told (done, total) after each program.
        """
        widths = self._config.prompt_widths[: self._config.warm_widths]
        shapes = list(itertools.product(self._config.slots, widths))
        for done, (slots, width) in enumerate(shapes, start=1):
            room = self._rooms.room(slots, width)
            lanes = Lanes(Kind.of(self._warm_ticket(width)), room, self._processor)
            for length in room.prefill_widths:
                lanes.insert(self._warm_ticket(length))
                while not lanes.advance(self._config.chunk):
                    pass
            report(done, len(shapes))

    def _warm_ticket(self, length: int) -> Ticket:
        """A request for two tokens after a prompt of so many."""
        prompt = Encoded(np.full(length, self._processor.start_id, np.int32), (), ())
        return Ticket(Prepared(prompt, 1, 1.0, 0, 2, grammar=self._reply_grammar), self.policies.base)

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Ends the workers; requests that have not been answered get `EngineStoppedError`."""
        self._line.close()
        for worker in self._workers:
            worker.join()

    @property
    def alive(self) -> bool:
        return not self._line.stopped

    def prepare(self, request: ChatRequest) -> Prepared:
        """Tokenizes a request; safe in any thread.

        Raises:
          BadRequestError: an image cannot be used, there is more of something than the shapes hold, a schema
            cannot be held to, or other tokens than the model's would have to be banned or to end a reply.
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
        return Prepared(
            prompt=prompt,
            n=request.n,
            temperature=request.temperature,
            seed=request.seed,
            max_tokens=min(request.token_limit or self._config.max_new_tokens, self._config.max_new_tokens),
            stop=request.stop_texts,
            grammar=self._grammar(request),
        )

    def submit(self, prepared: Prepared, policy: str = BASE) -> Ticket:
        """Queues a request.

        Args:
          policy: name of adapters that are loaded; the model itself by default.

        Raises:
          UnknownPolicyError: no such adapters are loaded (any more).
          OverloadedError: too many wait already.
          EngineStoppedError: nothing would ever answer.
        """
        generator = self.policies.get(policy)
        if generator is None:
            raise UnknownPolicyError(policy)
        ticket = Ticket(prepared, generator)
        with self._line.changed:
            if self._line.stopped or self._line.closing:
                raise EngineStoppedError(STOPPED)
            waiting = len(self._line.waiting)
            if waiting >= self._config.max_waiting:
                raise OverloadedError(f"{waiting} requests wait already; try again later")
            self._line.add(ticket)
            self.metrics.holding(*self._line.counts())
        return ticket

    def unload(self, name: str) -> None:
        """Forgets adapters, and their weights once those who wait for them have been answered.

        Raises:
          BadRequestError: no adapters have this name.
        """
        self.policies.unload(name)
        with self._line.changed:
            self._line.changed.notify_all()

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Each token on its own as text; a part of a character is a replacement mark."""
        return [str(self._processor.tokenizer.decode([token])) for token in tokens]

    def _grammar(self, request: ChatRequest) -> Grammar | None:
        if request.response_format is None:
            return self._reply_grammar
        schema = request.response_format.as_schema()
        return None if schema is None else self._grammars.compile(schema)
