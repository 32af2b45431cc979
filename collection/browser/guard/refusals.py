"""Refused requests: the errors, and the proxy's bounded record of refusals and traffic."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from collection.browser.guard.policy import RequestTarget, read_url
from rmsweb_jax.records.schema import Incident

# A page can ask for any number of hosts with names of any length.
_MAX_REFUSALS = 200
_MAX_CHARS = 300
# Reason of a document that robots.txt disallows.
ROBOTS = "robots"


class RequestRefusedError(Exception):
    """The guard refuses a request.

    Attributes:
      reason: a `policy.Reason`, or the name of the limit that was exceeded.
      detail: one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class UpstreamUnreachableError(Exception):
    """An allowed host cannot be reached, or its answer is not HTTP."""


@dataclasses.dataclass
class Refusal:
    """Refused requests to one place for one reason.

    Attributes:
      place: host and port as in the request, without the scheme's default port.
      url: address of the first request; `host:port` for a tunnel.
      reason: a `policy.Reason`, or `response_size`, `decompression`, `upload_size`, `idle`, `total_time`,
        `mismatch` (the host of a request and its Host header differ), `not_http`, `robots`.
      detail: one line.
    """

    place: str
    url: str
    reason: str
    detail: str
    count: int = 1


@dataclasses.dataclass
class TrafficLedger:
    """Traffic counts since the proxy started, and the refusals since the last report.

    Attributes:
      requests: number of plain requests and tunnels requested.
      received, sent: bytes of bodies and tunnels from and to servers.
      refused: number of all refusals.
      unlisted: number of refusals since the last report that exceeded the list's length.
      proxy_problem: the last problem of the upstream proxy since the last report; empty for none.
      disallowed: documents that were opened though robots.txt disallows them, since the last report: one
        line each.
    """

    requests: int = 0
    received: int = 0
    sent: int = 0
    refused: int = 0
    unlisted: int = 0
    proxy_problem: str = ""
    disallowed: list[str] = dataclasses.field(default_factory=list)
    _refusals: dict[tuple[str, str], Refusal] = dataclasses.field(default_factory=dict)

    def refuse(self, place: str, url: str, error: RequestRefusedError) -> None:
        """Records a refusal; refusals with the same `place` (host and port) and reason are counted as one."""
        self.refused += 1
        place = place[:_MAX_CHARS]
        key = (place, error.reason)
        if key in self._refusals:
            self._refusals[key].count += 1
        elif len(self._refusals) < _MAX_REFUSALS:
            self._refusals[key] = Refusal(place, url[:_MAX_CHARS], error.reason, error.detail[:_MAX_CHARS])
        else:
            self.unlisted += 1

    def note_disallowed(self, url: str, detail: str) -> None:
        """Records a document that robots.txt disallows and that is opened."""
        if len(self.disallowed) < _MAX_REFUSALS:
            self.disallowed.append(f"{url[:_MAX_CHARS]}: {detail}")

    def take(self) -> tuple[list[Refusal], int]:
        """Returns the refusals since the last call, and the number of those that are not listed."""
        taken = list(self._refusals.values()), self.unlisted
        self._refusals, self.unlisted = {}, 0
        return taken


# The suffix that `Guard.incidents` adds to a refusal.
_SUFFIX = re.compile(r" \[\w+\](?: \(\d+ times\))?$")


def merge_refusals(incidents: Iterable[Incident]) -> list[Incident]:
    """Merges refusals of one host and port for one reason.

    The check of a window's address and the proxy both report a page that is refused.

    Args:
      incidents: the details of refusals are `URL: reason`, or `HOST:PORT: reason` for a tunnel.

    Returns:
      The first incident of each group, in order, with the reason code and the count of the proxy's report.
    """
    merged: list[Incident] = []
    positions: dict[tuple[str, int, str], int] = {}
    for incident in incidents:
        key = _key(incident.detail) if incident.kind == "refused" else None
        if key is None or key not in positions:
            if key is not None:
                positions[key] = len(merged)
            merged.append(incident)
            continue
        first, suffix = merged[positions[key]], _SUFFIX.search(incident.detail)
        if suffix is not None and not _SUFFIX.search(first.detail):
            merged[positions[key]] = first.model_copy(update={"detail": first.detail + suffix[0]})
    return merged


def _key(detail: str) -> tuple[str, int, str] | None:
    """Returns host, port and reason; None if the detail does not start with an address."""
    place, colon, reason = detail.partition(": ")
    target = read_url(place if "://" in place else f"https://{place}")
    if not colon or not isinstance(target, RequestTarget):
        return None
    return target.host, target.port, _SUFFIX.sub("", reason)
