"""Where workers run: what the fleet asks of an engine."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from collection.worker import Ended, Failed, Order


@dataclasses.dataclass(frozen=True)
class Died:
    """A worker is gone. What it had finished is in its journal, whether or not it could still tell."""

    reason: str


Message = Ended | Failed | Died


class Engine(Protocol):
    """Starts workers, which are known by numbers that are never given twice."""

    def start(self, journal: str) -> int:
        """Starts a worker that writes that journal."""
        ...

    def give(self, worker: int, order: Order) -> None:
        """Gives an idle worker one round to play; if it has died meanwhile, `wait` tells."""
        ...

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """What workers tell, as soon as one does; nothing after that many seconds, or sooner after `wake`."""
        ...

    def wake(self) -> None:
        """Makes `wait` return; called from a signal handler."""
        ...

    def kill(self, worker: int) -> None:
        """Ends a worker at once with all it has started. A dead one may have left something, too."""
        ...

    def close(self, idle: frozenset[int]) -> None:
        """Ends all workers: those in `idle` by themselves, others at once."""
        ...
