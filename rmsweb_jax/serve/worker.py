"""Threads that decode requests as slots fall free for them."""

from __future__ import annotations

import collections
import threading

from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.lanes import Kind, Lanes
from rmsweb_jax.serve.metrics import Metrics
from rmsweb_jax.serve.policies import Policies
from rmsweb_jax.serve.requests import Ticket
from rmsweb_jax.serve.rooms import EngineConfig, Room, Rooms

STOPPED = "the engine has stopped; see the server's log"


class EngineStoppedError(Exception):
    """The engine has ended and answers nothing any more."""


class Line:
    """Who waits for a slot, in order, and how busy the workers are who take them.

    Attributes:
      changed: held by whoever reads or changes the rest; workers without work wait for it.
      waiting: who waits, the first one first.
      held: requests that each worker has in slots.
      closing: workers are to end.
      stopped: one has ended, as it was to or because it failed.
    """

    def __init__(self, workers: int):
        self.changed = threading.Condition()
        self.waiting: collections.deque[Ticket] = collections.deque()
        self.held = [0] * workers
        self.closing = self.stopped = False

    def add(self, ticket: Ticket) -> None:
        self.waiting.append(ticket)
        self.changed.notify_all()

    def counts(self) -> tuple[int, int]:
        """Requests in slots, and those that wait."""
        return sum(self.held), len(self.waiting)

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()


class Worker:
    """One thread with its pools.

    Args:
      number: among the workers of the line.

    Attributes:
      lanes: the pools whose caches it holds, one of a kind.
    """

    def __init__(
        self,
        number: int,
        line: Line,
        config: EngineConfig,
        rooms: Rooms,
        processor: Processor,
        policies: Policies,
        metrics: Metrics,
    ):
        self.lanes: list[Lanes] = []
        self._number, self._line, self._config, self._rooms = number, line, config, rooms
        self._processor, self._policies, self._metrics = processor, policies, metrics
        # Taken from the line and not yet in a slot.
        self._taken: Ticket | None = None
        self._thread = threading.Thread(target=self._run, name=f"engine-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait():
                self.lanes = [lanes for lanes in self.lanes if not self._is_stale(lanes)]
                self.admit()
                for lanes in self.lanes:
                    if lanes.busy:
                        self._advance(lanes)
                self._count()
        finally:
            # Also when decoding failed: whoever waits must hear of it, and the failure itself is printed.
            with self._line.changed:
                self._line.closing = self._line.stopped = True
                left = [*self._line.waiting, *(ticket for lanes in self.lanes for ticket in lanes.tickets)]
                self._line.waiting.clear()
                self._line.changed.notify_all()
            if self._taken is not None:
                left.append(self._taken)
            for ticket in left:
                if not ticket.future.done():
                    ticket.fail(EngineStoppedError(STOPPED))

    def _wait(self) -> bool:
        """Until there is something to do; False: to end."""
        line = self._line
        with line.changed:
            line.changed.wait_for(
                lambda: (
                    line.closing
                    or self._is_next()
                    or any(lanes.busy or self._is_stale(lanes) for lanes in self.lanes)
                )
            )
            return not line.closing

    def _is_stale(self, lanes: Lanes) -> bool:
        """Whether they hold nothing but the weights of a policy that was unloaded."""
        return not lanes.busy and not self._policies.holds(lanes.kind.generator)

    def _is_next(self) -> bool:
        """Whether somebody waits, and the worker has less than its share of all requests."""
        running, waiting = self._line.counts()
        return waiting > 0 and self._line.held[self._number] * self._config.workers < running + waiting

    def admit(self) -> None:
        """Gives slots to those who wait, in order: who cannot have one is not overtaken."""
        line = self._line
        while True:
            with line.changed:
                while line.waiting and line.waiting[0].cancelled:
                    line.waiting.popleft()
                place = self._place() if self._is_next() else None
                if place is None:
                    return
                ticket = self._taken = line.waiting.popleft()
                line.held[self._number] += 1
            lanes, room = place
            if lanes.room != room:
                # Steps of one pool are fewer than those of two.
                lanes.enlarge(room)
            lanes.insert(ticket)
            self._taken = None
            self._metrics.admitted(ticket)

    def _place(self) -> tuple[Lanes, Room] | None:
        """Where the first of those who wait is decoded, and the room for that; None while all is taken."""
        kind = Kind.of(self._line.waiting[0])
        lanes = next((lanes for lanes in self.lanes if lanes.kind == kind), None)
        if lanes is not None and lanes.busy:
            return self._join(lanes)
        room = self._room_for(kind, 0)
        if lanes is not None and lanes.room != room:
            # With it goes the memory of its caches.
            self.lanes.remove(lanes)
            lanes = None
        if lanes is None:
            if len(self.lanes) >= self._config.max_pools:
                idle = [other for other in self.lanes if not other.busy]
                if not idle:
                    return None
                self.lanes.remove(idle[0])
            lanes = Lanes(kind, room, self._processor)
            self.lanes.append(lanes)
        return lanes, room

    def _join(self, lanes: Lanes) -> tuple[Lanes, Room] | None:
        """Lanes in use, and the room that they need for the first of those who wait; None: they are full."""
        slots = lanes.room.slots
        if not lanes.free:
            slots = self._room_for(lanes.kind, len(lanes.tickets)).slots
            if slots <= lanes.room.slots:
                return None
        width = max(lanes.room.width, self._rooms.width(self._line.waiting[0]))
        return lanes, self._rooms.room(slots, width)

    def _room_for(self, kind: Kind, held: int) -> Room:
        """Of a pool for its worker's share of what waits for it, beside the requests that it holds."""
        alike = [ticket for ticket in self._line.waiting if Kind.of(ticket) == kind]
        share = -(-len(alike) // self._config.workers)
        slots = self._rooms.slots((held + share) * kind.samples) // kind.samples or 1
        return self._rooms.room(slots, max(self._rooms.width(ticket) for ticket in alike[:share]))

    def _advance(self, lanes: Lanes) -> None:
        for ticket, completions in lanes.advance(self._config.chunk):
            self._metrics.completed(ticket, completions)
            ticket.complete(completions)

    def _count(self) -> None:
        with self._line.changed:
            self._line.held[self._number] = sum(len(lanes.tickets) for lanes in self.lanes)
            self._metrics.holding(*self._line.counts())
