"""What the guard has refused: the one record for connections, documents and windows."""

from __future__ import annotations

import threading
from collections.abc import Callable

from collection.browser.guard.policy import RequestTarget, read_url
from rmsweb_jax.records.schema import Incident, IncidentKind

# A page can ask for any number of hosts with names of any length.
_MAX_PLACES = 200
_MAX_CHARS, _MAX_URL_CHARS = 300, 2000


class RefusedError(Exception):
    """The guard refuses a connection.

    Attributes:
      reason: a `policy.Reason`, `not_http` (a connection that begins with neither TLS nor HTTP),
        `upload_size`, `response_size` or `total_time`.
      detail: one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Record:
    """Refusals and other events since they were last taken; all threads may use it.

    A connection and the window that wanted it are at one place, so they are one incident.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[tuple[IncidentKind, str, str], tuple[str, int]] = {}
        self._problems: dict[str, str] = {}
        self._unlisted = 0

    def add(self, kind: IncidentKind, url: str, detail: str, reason: str = "", place: str = "") -> None:
        """Adds an event, or counts it with others of its kind, place and reason.

        Args:
          url: an address, or the host and port of a connection.
          place: of the event; by default the host and port of the address.
        """
        place = (place or place_of(url))[:_MAX_CHARS]
        line = f"{url[:_MAX_URL_CHARS]}: {detail}" if url else detail
        with self._lock:
            first, count = self._lines.get((kind, place, reason), (line, 0))
            if count or len(self._lines) < _MAX_PLACES:
                self._lines[kind, place, reason] = first, count + 1
            else:
                self._unlisted += 1

    def fail(self, place: str, text: str) -> None:
        """Notes why a connection to a host and port did not come about or was ended."""
        with self._lock:
            if place in self._problems or len(self._problems) < _MAX_PLACES:
                self._problems[place] = text

    def take_problems(self) -> dict[str, str]:
        """Returns the last text of `fail` of each place, since the last call."""
        with self._lock:
            taken, self._problems = self._problems, {}
        return taken

    def take(self, redact: Callable[[str], str], unreported: frozenset[str]) -> tuple[Incident, ...]:
        """Returns the events since the last call, in order.

        Args:
          redact: removes secrets from a line.
          unreported: hosts that are left out.
        """
        with self._lock:
            lines, self._lines = self._lines, {}
            unlisted, self._unlisted = self._unlisted, 0
        found = []
        for (kind, place, reason), (line, count) in lines.items():
            if place.rpartition(":")[0] not in unreported:
                code = f" [{reason}]" if reason else ""
                times = f" ({count} times)" if count > 1 else ""
                found.append(Incident(kind=kind, detail=redact(line)[: 2 * _MAX_CHARS] + code + times))
        if unlisted:
            found.append(Incident(kind="refused", detail=f"{unlisted} more requests"))
        return tuple(found)


def place_of(url: str) -> str:
    """Returns the host and port of an address, as in the record; an address without a host unchanged."""
    target = read_url(url)
    return f"{target.host}:{target.port}" if isinstance(target, RequestTarget) else url
