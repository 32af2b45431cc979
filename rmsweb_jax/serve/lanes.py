"""Requests that are decoded together: the slots of one pool, and who is in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from rmsweb_jax.data.batching import Example, Shapes, collate, single_rows
from rmsweb_jax.qwen3_vl.decode import Generator
from rmsweb_jax.qwen3_vl.pool import HostAnswers, Pool, to_host
from rmsweb_jax.qwen3_vl.processor import Encoded, Processor
from rmsweb_jax.serve.grammar import GrammarError, Matching, allowed_tokens
from rmsweb_jax.serve.requests import Completion, Ticket
from rmsweb_jax.serve.rooms import Room


@dataclasses.dataclass(frozen=True)
class Kind:
    """Requests of one kind can share a pool.

    Attributes:
      samples: of each request.
      bound: held to a grammar, which has a say in every token.
    """

    generator: Generator
    samples: int
    bound: bool

    @classmethod
    def of(cls, ticket: Ticket) -> Kind:
        return cls(ticket.generator, ticket.samples, ticket.prepared.grammar is not None)


class _Held:
    """A request in a slot."""

    def __init__(self, ticket: Ticket):
        self.ticket = ticket
        grammar = ticket.prepared.grammar
        self.matching: list[Matching] = []
        if grammar is not None:
            self.matching = [grammar.begin() for _ in range(ticket.prepared.n)]
        self.taken = [0] * ticket.prepared.n
        self.completions: list[Completion | None] = [None] * ticket.prepared.n

    @property
    def open(self) -> list[int]:
        """Samples that are still being drawn."""
        return [number for number, completion in enumerate(self.completions) if completion is None]


class Lanes:
    """A pool with its requests. One thread uses it."""

    def __init__(self, kind: Kind, room: Room, processor: Processor):
        self.kind, self.room = kind, room
        self._processor = processor
        self._held: list[_Held | None] = [None] * room.slots
        self._pool: Pool | None = None
        # Put into a slot and not yet drawn from, as grammars must know.
        self._fresh = False

    @property
    def free(self) -> int:
        return self._held.count(None)

    @property
    def busy(self) -> bool:
        return self.free < self.room.slots

    @property
    def tickets(self) -> list[Ticket]:
        return [held.ticket for held in self._held if held is not None]

    def enlarge(self, room: Room) -> None:
        """Takes more requests, or longer ones; those in decoding stay where they are.

        Args:
          room: with as many slots and places as before, or more.
        """
        self._held += [None] * (room.slots - self.room.slots)
        self.room = room
        if self._pool is not None:
            self._pool = self.kind.generator.enlarge(self._pool, slots=room.slots, width=room.width)

    def insert(self, ticket: Ticket) -> None:
        """Prefills a request into a free slot, without waiting for the device."""
        room, prepared, generator = self.room, ticket.prepared, self.kind.generator
        shapes = Shapes(
            rows=1, widths=room.prefill_widths, num_targets=1, images=room.images, window=room.window
        )
        rows = single_rows([_example(prepared.prompt)], 1)
        asked = generator.prefill(
            collate(rows, shapes, shapes.width(len(prepared.prompt.tokens)), generator.config).inputs,
            # Both halves of a 64-bit seed count; keys are folded from 32-bit numbers.
            seeds=np.asarray([prepared.seed & 0xFFFFFFFF], np.uint32),
            prompt_ids=np.asarray([prepared.seed >> 32], np.uint32),
            temperature=np.asarray([prepared.temperature], np.float32),
        )
        if self._pool is None:
            self._pool = generator.empty_pool(
                asked,
                slots=room.slots,
                width=room.width,
                num_samples=self.kind.samples,
                room=room.max_new_tokens,
            )
        slot = self._held.index(None)
        self._pool = generator.insert(self._pool, asked, np.asarray([slot], np.int32))
        self._held[slot] = _Held(ticket)
        self._fresh = True
        if prepared.n < self.kind.samples:
            surplus = np.zeros((room.slots, self.kind.samples), bool)
            surplus[slot, prepared.n :] = True
            self._pool = generator.end(self._pool, surplus)

    def advance(self, steps: int) -> list[tuple[Ticket, list[Completion]]]:
        """Draws at most so many tokens of each reply, one under grammars; requests that are complete.

        It returns early when one might be. Those cancelled leave their slots.
        """
        assert self._pool is not None, "only busy lanes advance"
        if self.kind.bound:
            # Each token decides what may follow it, the first one too.
            steps = 0 if self._fresh else 1
        self._pool = self.kind.generator.decode(
            self._pool,
            room=self.room.max_new_tokens,
            eos=self._processor.end_id,
            banned=self._processor.banned_ids,
            free_slots=self.free + 1,
            steps=steps,
            allowed=self._allowed() if self.kind.bound else None,
        )
        self._fresh = False
        return self._collect(to_host(self._pool.answers))

    def _allowed(self) -> np.ndarray:
        """What each sample may draw: [G, K, W] int32."""
        samples = self.kind.samples
        matchings = {
            slot * samples + sample: held.matching[sample]
            for slot, held in enumerate(self._held)
            if held is not None
            for sample in held.open
        }
        rows = allowed_tokens(matchings, self.room.slots * samples, self._processor.config.text.vocab_size)
        return rows.reshape(self.room.slots, samples, -1)

    def _collect(self, answers: HostAnswers) -> list[tuple[Ticket, list[Completion]]]:
        complete = []
        ended = np.zeros(answers.done.shape, bool)
        for slot, held in enumerate(self._held):
            if held is None:
                continue
            try:
                for sample in held.open:
                    self._look(held, sample, *answers.response(slot, sample))
            except GrammarError as error:
                held.ticket.fail(error)
            over = [number for number in range(len(held.completions)) if number not in held.open]
            if not held.open:
                complete.append((held.ticket, [one for one in held.completions if one is not None]))
            if held.ticket.cancelled or not held.open:
                self._held[slot] = None
                over = list(range(len(held.completions)))
            ended[slot, over] = True
        if (ended & ~answers.done).any():
            assert self._pool is not None
            self._pool = self.kind.generator.end(self._pool, ended)
        return complete

    def _look(self, held: _Held, sample: int, tokens: np.ndarray, log_probs: np.ndarray) -> None:
        """Takes in new tokens of a reply, and completes it where it has ended."""
        prepared, known = held.ticket.prepared, held.taken[sample]
        held.taken[sample] = len(tokens)
        if held.matching:
            held.matching[sample].take(tokens[known:].tolist())
        limit = min(prepared.max_tokens, self.room.max_new_tokens)
        length = self._ended_at(tokens, known, prepared.stop)
        reason = "stop" if length is not None and length <= limit else "length"
        if reason == "length":
            if len(tokens) < limit:
                return
            length = limit
        text = self._processor.decode_response(tokens[:length])
        found = [at for at in map(text.find, prepared.stop) if at >= 0]
        held.completions[sample] = Completion(
            text[: min(found, default=None)],
            tuple(tokens[:length].tolist()),
            tuple(log_probs[:length].tolist()),
            reason,
        )

    def _ended_at(self, tokens: np.ndarray, known: int, stop: Sequence[str]) -> int | None:
        """Tokens of a reply that has ended by itself.

        Args:
          known: tokens that were looked at before.
        """
        # A stop text may lie across tokens, so that it is looked for in texts.
        if stop and self._holds(tokens, stop):
            return next(end for end in range(known + 1, len(tokens) + 1) if self._holds(tokens[:end], stop))
        return len(tokens) if tokens[-1] == self._processor.end_id else None

    def _holds(self, tokens: np.ndarray, stop: Sequence[str]) -> bool:
        text = self._processor.decode_response(tokens)
        return any(one in text for one in stop)


def _example(prompt: Encoded) -> Example:
    return Example(
        sample_id="",
        tokens=prompt.tokens,
        prompt_length=len(prompt.tokens),
        action_mask=np.zeros(0, bool),
        patches=prompt.patches,
        grids=prompt.grids,
    )
