"""A thread that answers requests as slots fall free for them."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.processor import Encoded, Processor
from rmsweb_jax.serve.grammar import Grammar, Grammars
from rmsweb_jax.serve.lanes import Kind, Lanes, Room
from rmsweb_jax.serve.metrics import Metrics
from rmsweb_jax.serve.policies import BASE, Policies
from rmsweb_jax.serve.protocol import BadRequestError, ChatRequest, check_tokens, to_messages
from rmsweb_jax.serve.requests import Prepared, Ticket


class EngineStoppedError(Exception):
    """The engine has ended and answers nothing any more."""


class UnknownPolicyError(Exception):
    """Nothing of this name is loaded."""


class OverloadedError(Exception):
    """More requests wait than may."""


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Shapes that are compiled, and how many of them are held.

    Attributes:
      slots: replies that are drawn together; ascending. A pool has the fewest that hold what waits for it,
        and is enlarged when more or longer requests come.
      prompt_widths: prompts are padded to one of them, ascending; longer ones are refused.
      max_new_tokens: of a reply; a request's own limit may only be smaller.
      max_images: of one request. Every prompt has room for so many.
      warm_widths: how many of the prompt widths, shortest first, are compiled before the server is ready.
      prefill_widths: prompts are padded to the narrowest of these or of `prompt_widths` while they are
        prefilled, ascending. Each is one more program, and prompts shorter than a pool's width cost less.
      max_pools: pools whose caches are held at once. Requests of other adapters, formats or numbers of
        replies than those in decoding need their own.
      chunk: tokens of each reply that are drawn between looks at who has come and gone.
      max_waiting: requests that may wait for a slot.
    """

    slots: tuple[int, ...]
    prompt_widths: tuple[int, ...]
    max_new_tokens: int
    max_images: int
    warm_widths: int
    max_pools: int = 2
    prefill_widths: tuple[int, ...] = ()
    chunk: int = 16
    max_waiting: int = 1024

    def __post_init__(self) -> None:
        for name in ("slots", "prompt_widths", "prefill_widths"):
            values = getattr(self, name)
            empty = not values and name != "prefill_widths"
            if empty or any(low >= high for low, high in itertools.pairwise((0, *values))):
                raise UserError(f"config.{name} is {values}: give positive numbers in ascending order")
        if self.prefill_widths and self.prefill_widths[-1] > self.prompt_widths[-1]:
            raise UserError(
                f"config.prefill_widths has {self.prefill_widths[-1]}: no prompt is longer than the last of "
                f"config.prompt_widths, {self.prompt_widths[-1]}"
            )
        for name in ("max_pools", "chunk", "max_waiting", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: give 1 or more")


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
        self.policies = Policies(model)
        self.metrics = Metrics()
        self._processor, self._config = processor, config
        self._window = processor.max_pixels // model.config.vision.patch_size**2
        self._grammars = Grammars(processor)
        self._reply_grammar = None if reply_schema is None else self._grammars.compile(reply_schema)
        self._waiting: collections.deque[Ticket] = collections.deque()
        self._lanes: list[Lanes] = []
        self._changed = threading.Condition()
        self._closing = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def warm_up(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compiles the common shapes; call it before `start`.

        Args:
          report: told (done, total) after each program.
        """
        widths = self._config.prompt_widths[: self._config.warm_widths]
        shapes = list(itertools.product(self._config.slots, widths))
        for done, (slots, width) in enumerate(shapes, start=1):
            room = self._room(slots, width)
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
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; requests that have not been answered get `EngineStoppedError`."""
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
        with self._changed:
            if self._stopped or self._closing:
                raise EngineStoppedError("the engine has stopped; see the server's log")
            if len(self._waiting) >= self._config.max_waiting:
                raise OverloadedError(f"{len(self._waiting)} requests wait already; try again later")
            self._waiting.append(ticket)
            self._count()
            self._changed.notify()
        return ticket

    def unload(self, name: str) -> None:
        """Forgets adapters, and their weights once those who wait for them have been answered.

        Raises:
          BadRequestError: no adapters have this name.
        """
        self.policies.unload(name)
        with self._changed:
            self._changed.notify()

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Each token on its own as text; a part of a character is a replacement mark."""
        return [str(self._processor.tokenizer.decode([token])) for token in tokens]

    def _grammar(self, request: ChatRequest) -> Grammar | None:
        if request.response_format is None:
            return self._reply_grammar
        schema = request.response_format.as_schema()
        return None if schema is None else self._grammars.compile(schema)

    def _run(self) -> None:
        try:
            while self._wait():
                self._lanes = [lanes for lanes in self._lanes if not self._is_stale(lanes)]
                self._admit()
                for lanes in self._lanes:
                    if lanes.busy:
                        self._advance(lanes)
                self._count()
        finally:
            # Also when decoding failed: whoever waits must hear of it, and the failure itself is printed.
            with self._changed:
                self._stopped = True
                left = [*self._waiting, *(ticket for lanes in self._lanes for ticket in lanes.tickets)]
                self._waiting.clear()
            for ticket in left:
                if not ticket.future.done():
                    ticket.fail(EngineStoppedError("the engine has stopped; see the server's log"))

    def _wait(self) -> bool:
        """Until there is something to do; False: to end."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._waiting
                    or self._closing
                    or any(lanes.busy or self._is_stale(lanes) for lanes in self._lanes)
                )
            )
            return not self._closing

    def _is_stale(self, lanes: Lanes) -> bool:
        """Whether they hold nothing but the weights of a policy that was unloaded."""
        return not lanes.busy and not self.policies.holds(lanes.kind.generator)

    def _admit(self) -> None:
        """Gives slots to those who wait, in order: who cannot have one is not overtaken."""
        while True:
            with self._changed:
                while self._waiting and self._waiting[0].cancelled:
                    self._waiting.popleft()
                lanes = self._place() if self._waiting else None
                if lanes is None:
                    return
                # Both at once, since a failing prefill must find it somewhere.
                ticket = self._waiting[0]
            lanes.insert(ticket)
            with self._changed:
                self._waiting.popleft()
            self.metrics.admitted(ticket)

    def _place(self) -> Lanes | None:
        """Where the first of those who wait is decoded; None while all that could be is taken."""
        kind = Kind.of(self._waiting[0])
        lanes = next((lanes for lanes in self._lanes if lanes.kind == kind), None)
        if lanes is not None and lanes.busy:
            return self._join(lanes)
        room = self._room_for(kind, 0)
        if lanes is not None and lanes.room != room:
            # With it goes the memory of its caches.
            self._lanes.remove(lanes)
            lanes = None
        if lanes is None:
            if len(self._lanes) >= self._config.max_pools:
                idle = [other for other in self._lanes if not other.busy]
                if not idle:
                    return None
                self._lanes.remove(idle[0])
            lanes = Lanes(kind, room, self._processor)
            self._lanes.append(lanes)
        return lanes

    def _join(self, lanes: Lanes) -> Lanes | None:
        """The lanes, with room for the first of those who wait; None while they are as full as may be.

        They are enlarged where they have to be: steps of one pool are fewer than those of two.
        """
        room = self._room_for(lanes.kind, len(lanes.tickets))
        slots = lanes.room.slots if lanes.free else room.slots
        width = max(lanes.room.width, self._width(self._waiting[0]))
        if not lanes.free and slots <= lanes.room.slots:
            return None
        if (slots, width) != (lanes.room.slots, lanes.room.width):
            lanes.enlarge(self._room(slots, width))
        return lanes

    def _room_for(self, kind: Kind, held: int) -> Room:
        """Of a pool for what waits for it, beside the requests that it holds."""
        alike = [ticket for ticket in self._waiting if Kind.of(ticket) == kind]
        slots = self._slots((held + len(alike)) * kind.samples) // kind.samples or 1
        return self._room(slots, max(self._width(ticket) for ticket in alike[:slots]))

    def _slots(self, replies: int) -> int:
        """The fewest slots that hold so many replies, or as many as there are."""
        return next((slots for slots in self._config.slots if slots >= replies), self._config.slots[-1])

    def _width(self, ticket: Ticket) -> int:
        length = len(ticket.prepared.prompt.tokens)
        return next(width for width in self._config.prompt_widths if width >= length)

    def _room(self, slots: int, width: int) -> Room:
        config = self._config
        narrower = {one for one in config.prompt_widths + config.prefill_widths if one < width}
        return Room(
            slots, width, (*sorted(narrower), width), config.max_new_tokens, config.max_images, self._window
        )

    def _advance(self, lanes: Lanes) -> None:
        for ticket, completions in lanes.advance(self._config.chunk):
            self.metrics.completed(ticket, completions)
            ticket.complete(completions)

    def _count(self) -> None:
        self.metrics.holding(
            running=sum(len(lanes.tickets) for lanes in self._lanes), waiting=len(self._waiting)
        )
