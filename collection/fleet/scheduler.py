"""Which job is next: sites are treated kindly, no job is lost, no site waits for ever.

Nothing here sleeps or looks at a clock: whoever asks says what time it is.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from rmsweb_jax.records.schema import Outcome

J = TypeVar("J", bound=Hashable)

# A site that answers so is left alone for a while.
UNWELCOME: frozenset[Outcome] = frozenset({"blocked", "captcha", "unreachable"})


@dataclasses.dataclass(frozen=True)
class SiteLimits:
    """How kindly a site on the live web is treated. A site is a registrable domain.

    Attributes:
      max_per_site: episodes at once.
      site_interval_s: from the start of an episode to the start of the next.
      backoff_s: no episode for that long after one that was blocked, met a captcha or could not reach the
        site; doubled for each further one in a row.
      backoff_max_s: ... but at most this long.
    """

    max_per_site: int
    site_interval_s: float
    backoff_s: float
    backoff_max_s: float


@dataclasses.dataclass
class _Site:
    waiting: deque = dataclasses.field(default_factory=deque)
    running: int = 0
    refusals: int = 0
    started: float = float("-inf")
    closed_until: float = float("-inf")


class Scheduler(Generic[J]):
    """Jobs by site. The site "" is none to be kind to: its jobs only keep their order.

    Among sites that may be visited, the one whose last visit began longest ago is next; among a site's jobs,
    the one that waits longest, but a job that was begun goes on first.
    """

    def __init__(self, limits: SiteLimits):
        self._limits = limits
        self._sites: dict[str, _Site] = {}
        self._running: dict[J, str] = {}

    def add(self, job: J, site: str, first: bool = False) -> None:
        """Puts a job in its site's queue; `first`: before those that wait."""
        queue = self._sites.setdefault(site, _Site()).waiting
        (queue.appendleft if first else queue.append)(job)

    def next(self, now: float) -> J | None:
        """Takes the next job, which is running from then on; None when none may begin now."""
        ready = [name for name, site in self._sites.items() if site.waiting and self._opens(name) <= now]
        if not ready:
            return None
        name = min(ready, key=lambda name: self._sites[name].started)
        site = self._sites[name]
        site.started = now
        site.running += 1
        job = site.waiting.popleft()
        self._running[job] = name
        return job

    def ended(self, job: J, now: float, outcome: Outcome | None = None) -> None:
        """A running job has ended, or its worker has (then without an outcome)."""
        name = self._running.pop(job)
        site = self._sites[name]
        site.running -= 1
        if outcome in UNWELCOME and name:
            wait = min(self._limits.backoff_s * 2.0 ** min(site.refusals, 60), self._limits.backoff_max_s)
            site.refusals += 1
            site.closed_until = max(site.closed_until, now + wait)
        elif outcome is not None and outcome != "crashed":
            site.refusals = 0

    def wake_at(self) -> float | None:
        """When a waiting job may begin that waits for nothing but time; None when there is none."""
        times = [self._opens(name) for name, site in self._sites.items() if site.waiting]
        return min((time for time in times if time < float("inf")), default=None)

    def closed(self, now: float) -> dict[str, float]:
        """Sites that are left alone, and for how many seconds yet."""
        return {
            name: site.closed_until - now for name, site in self._sites.items() if site.closed_until > now
        }

    @property
    def waiting(self) -> int:
        return sum(len(site.waiting) for site in self._sites.values())

    @property
    def running(self) -> int:
        return len(self._running)

    def _opens(self, name: str) -> float:
        """When the next episode on a site may begin; infinite while it has as many as it may have."""
        if not name:
            return float("-inf")
        site = self._sites[name]
        if site.running >= self._limits.max_per_site:
            return float("inf")
        return max(site.started + self._limits.site_interval_s, site.closed_until)
