"""The shapes that a server compiles, and which of them a pool of requests has."""

from __future__ import annotations

import dataclasses
import itertools

from rmsweb_jax.errors import UserError
from rmsweb_jax.serve.requests import Ticket


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
      max_pools: pools whose caches a worker holds at once. Requests of other adapters, formats or numbers of
        replies than those in decoding need their own.
      workers: threads that decode at the same time, each in pools of its own. A CPU computes much of a step
        on one core: as many workers as cores are faster where many requests come; accelerators want one.
      chunk: tokens of each reply that are drawn between looks at who has come and gone.
      max_waiting: requests that may wait for a slot.
    """

    slots: tuple[int, ...]
    prompt_widths: tuple[int, ...]
    max_new_tokens: int
    max_images: int
    warm_widths: int
    max_pools: int = 2
    workers: int = 1
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
        for name in ("max_pools", "workers", "chunk", "max_waiting", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"config.{name} is {getattr(self, name)}: give 1 or more")


@dataclasses.dataclass(frozen=True)
class Room:
    """What one pool has room for.

    Attributes:
      slots: requests.
      width: tokens of a prompt.
      prefill_widths: what prompts are padded to while they are prefilled, ascending, `width` the last.
      max_new_tokens: of a reply.
      images, window: of a prompt, and patches of each image at most.
    """

    slots: int
    width: int
    prefill_widths: tuple[int, ...]
    max_new_tokens: int
    images: int
    window: int


class Rooms:
    """The rooms that there are.

    Args:
      window: patches of an image at most.
    """

    def __init__(self, config: EngineConfig, window: int):
        self._config, self._window = config, window

    def room(self, slots: int, width: int) -> Room:
        """Of a pool of so many slots for prompts of one of the widths."""
        config = self._config
        narrower = {one for one in config.prompt_widths + config.prefill_widths if one < width}
        return Room(
            slots, width, (*sorted(narrower), width), config.max_new_tokens, config.max_images, self._window
        )

    def slots(self, replies: int) -> int:
        """The fewest slots that hold so many replies, or as many as there are."""
        return next((slots for slots in self._config.slots if slots >= replies), self._config.slots[-1])

    def width(self, ticket: Ticket) -> int:
        """The narrowest width that holds a request's prompt."""
        length = len(ticket.prepared.prompt.tokens)
        return next(width for width in self._config.prompt_widths if width >= length)
