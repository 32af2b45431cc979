"""What the proxy has let through and what not: bounded, whatever a page asks for."""

from __future__ import annotations

import dataclasses

_MOST = 200
_LONGEST = 300


class RefusedError(Exception):
    """A request that the guard does not let through.

    Attributes:
      reason: one of `policy.Reason`, or the limit that was met.
      detail: one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class UnreachableError(Exception):
    """An allowed host that cannot be reached, or that answers nonsense."""


@dataclasses.dataclass
class Refusal:
    """Requests refused for one reason at one place.

    Attributes:
      place: host and port as in the request (the scheme's own port is left out).
      url: of the first of them; `host:port` of a tunnel.
      reason: a `policy.Reason`, or `response_size`, `expansion`, `upload_size`, `idle`, `total_time`,
        `mismatch` (the host of a request and its Host header differ), `not_http`.
      detail: one line.
    """

    place: str
    url: str
    reason: str
    detail: str
    count: int = 1


@dataclasses.dataclass
class Ledger:
    """Counts since the proxy started.

    Attributes:
      requests: plain requests and tunnels asked for.
      received, sent: bytes of bodies and tunnels from and to servers.
      refused: all refusals, those told before included.
    """

    requests: int = 0
    received: int = 0
    sent: int = 0
    refused: int = 0
    untold: int = 0
    _refusals: dict[tuple[str, str], Refusal] = dataclasses.field(default_factory=dict)

    def refuse(self, place: str, url: str, error: RefusedError) -> None:
        """Notes a refusal; `place` (a host and port) and reason tell whether it is a new one."""
        self.refused += 1
        place = place[:_LONGEST]
        key = (place, error.reason)
        if key in self._refusals:
            self._refusals[key].count += 1
        elif len(self._refusals) < _MOST:
            self._refusals[key] = Refusal(place, url[:_LONGEST], error.reason, error.detail[:_LONGEST])
        else:
            self.untold += 1

    def take(self) -> tuple[list[Refusal], int]:
        """Refusals since the last time, and how many more there were than are kept."""
        taken = list(self._refusals.values()), self.untold
        self._refusals, self.untold = {}, 0
        return taken
