"""The order of jobs: rate limits per site, no lost jobs, no starvation.

Nothing here sleeps or reads a clock: the caller passes the time, so tests run on a clock of their own.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from collection.fleet.config import SiteLimits
from rmsweb_jax.records.schema import Outcome

J = TypeVar("J", bound=Hashable)

# Outcomes of refused episodes: the site does not let the agent in, or is down.
REFUSED: frozenset[Outcome] = frozenset({"blocked", "captcha", "unreachable"})
# All sites may be unreachable for this long before they count as refusing: it may be this machine's network.
_NETWORK_S = 3600.0


@dataclasses.dataclass
class SiteState:
    """How a site is visited, by all runs of a fleet."""

    running: int = 0
    refusals: int = 0
    started: float = float("-inf")
    closed_until: float = float("-inf")


class Scheduler(Generic[J]):
    """Queues of jobs by site. The site "" has no limits: local pages.

    Among the sites that are open the one visited least recently is next, so that a site with many jobs does
    not starve the others. Within a site jobs are first in, first out, except those that are added as the
    first, so that a task with rounds left finishes early.

    A site that refuses `max_refusals` episodes in a row, of any of its tasks, is left alone from then on; so
    is a task of which so many in a row are refused.

    Args:
      now: a monotonic clock's time, in seconds.
      sites: of the fleet.
    """

    def __init__(
        self, limits: SiteLimits, now: float = 0.0, sites: defaultdict[str, SiteState] | None = None
    ):
        self._limits = limits
        self._sites = defaultdict[str, SiteState](SiteState) if sites is None else sites
        self._waiting: defaultdict[str, deque[J]] = defaultdict(deque)
        self._running: dict[J, str] = {}
        # Refused episodes in a row.
        self._of_site, self._of_task = Counter[str](), Counter[str]()
        self._answered = now  # The last time that any site answered.
        self._silent: set[str] = set()  # Sites that were unreachable since.

    def add(self, job: J, site: str, first: bool = False) -> None:
        """Puts a job in its site's queue; `first` puts it at the front."""
        queue = self._waiting[site]
        (queue.appendleft if first else queue.append)(job)

    def next(self, now: float) -> J | None:
        """Takes the next job and counts it as running; returns None if none may start now."""
        ready = [name for name, jobs in self._waiting.items() if jobs and self._opens(name) <= now]
        if not ready:
            return None
        name = min(ready, key=lambda name: self._sites[name].started)
        site = self._sites[name]
        site.started = now
        site.running += 1
        job = self._waiting[name].popleft()
        self._running[job] = name
        return job

    def ended(self, job: J, now: float, outcome: Outcome | None = None) -> None:
        """Counts a job as ended. No outcome means that its worker died: the backoff does not change."""
        name = self._running.pop(job)
        site = self._sites[name]
        site.running -= 1
        if outcome in REFUSED and name:
            # The exponent is capped where a float would overflow.
            wait = min(self._limits.backoff_s * 2.0 ** min(site.refusals, 60), self._limits.backoff_max_s)
            site.refusals += 1
            if self._limits.site_interval_s:
                site.closed_until = max(site.closed_until, now + wait)
        # A crashed browser is not the site's answer; any other outcome ends the backoff.
        elif outcome is not None and outcome != "crashed":
            site.refusals = 0

    def count(self, task: str, site: str, outcome: Outcome, now: float) -> None:
        """Counts the refusals in a row; a lost browser says nothing about the site, and "" refuses none."""
        if outcome == "crashed" or not site:
            return
        if outcome == "unreachable":
            self._silent.add(site)
            if len(self._silent) > 1 and now - self._answered < _NETWORK_S:
                return
        else:
            self._answered = now
            self._silent.clear()
        if outcome in REFUSED:
            self._of_site[site] += 1
            self._of_task[task] += 1
        else:
            self._of_site[site] = self._of_task[task] = 0

    def refuses(self, task: str, site: str) -> str:
        """Returns the name of what is refused too often: "site" or "task"; "" if the task may be played."""
        limit = self._limits.max_refusals or math.inf
        if self._of_site[site] >= limit:
            return "site"
        return "task" if self._of_task[task] >= limit else ""

    def remove(self, site: str, goes: Callable[[J], bool] = lambda job: True) -> list[J]:
        """Takes the jobs that wait, or some of them, out of a site's queue."""
        queue = self._waiting[site]
        self._waiting[site] = deque(job for job in queue if not goes(job))
        return [job for job in queue if goes(job)]

    def wake_at(self) -> float | None:
        """Returns the earliest time for a waiting job to start; None if all wait for running episodes."""
        times = [self._opens(name) for name, jobs in self._waiting.items() if jobs]
        return min((time for time in times if time < float("inf")), default=None)

    def closed(self, now: float) -> dict[str, float]:
        """Returns the sites in backoff, with the seconds left."""
        return {
            name: site.closed_until - now for name, site in self._sites.items() if site.closed_until > now
        }

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return len(self._running)

    def _opens(self, name: str) -> float:
        """Returns the time of a site's next possible start; infinite while it is at its episode limit."""
        if not name:
            return float("-inf")
        site = self._sites[name]
        if site.running >= self._limits.max_per_site:
            return float("inf")
        return max(site.started + self._limits.site_interval_s, site.closed_until)
