"""Refusals told twice: by the check of a window's address, and by the proxy that it asked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collection.browser.guard.policy import Target, read_url
from rmsweb_jax.records.schema import Incident

# As `Guard.incidents` ends its lines.
_TAIL = re.compile(r" \[\w+\](?: \(\d+ times\))?$")


def merge_refusals(incidents: Iterable[Incident]) -> list[Incident]:
    """The same incidents, refusals of one host and port for one reason as one.

    Args:
      incidents: details of refusals are `URL: reason`, or `HOST:PORT: reason` of a tunnel.

    Returns:
      The first of each, in order, with the proxy's word for it and its count.
    """
    merged: list[Incident] = []
    known: dict[tuple[str, int, str], int] = {}
    for incident in incidents:
        key = _key(incident.detail) if incident.kind == "refused" else None
        if key is None or key not in known:
            if key is not None:
                known[key] = len(merged)
            merged.append(incident)
            continue
        first, tail = merged[known[key]], _TAIL.search(incident.detail)
        if tail is not None and not _TAIL.search(first.detail):
            merged[known[key]] = first.model_copy(update={"detail": first.detail + tail[0]})
    return merged


def _key(detail: str) -> tuple[str, int, str] | None:
    """Host, port and reason; None for what names no host."""
    place, colon, reason = detail.partition(": ")
    target = read_url(place if "://" in place else f"https://{place}")
    if not colon or not isinstance(target, Target):
        return None
    return target.host, target.port, _TAIL.sub("", reason)
