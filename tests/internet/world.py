"""An internet on loopback: sites of many kinds under names of their own, made from a seed."""

from __future__ import annotations

import random
import re
from collections import Counter

from tests.internet.network import Request, Response
from tests.internet.sites import KINDS, SHARED_HOSTS, Login, Record, Site, shared_answer

_FIRST = (
    *("bright", "silver", "north", "quiet", "amber", "copper", "maple", "harbor", "velvet", "winter"),
    *("golden", "hollow", "meadow", "cobalt", "raven", "juniper", "willow", "cedar", "marble", "linen"),
)
_SECOND = (
    *("field", "crest", "lane", "works", "market", "house", "trail", "bridge", "forge", "garden"),
    *("press", "stone", "point", "mill", "yard", "cove", "ridge", "barn", "well", "gate"),
)
_ENDS = ("com", "net", "org", "shop", "de", "co.uk", "info", "fr")
_BLOCKING = 0.2
SECRET = "corvid-lattice-8841"
# The guidance of each task has a word of its own in this form.
WATCHWORD = r"zyx\d{9}qv"


class World:
    """The sites, and what they have seen.

    Attributes:
      sites: in the order of their numbers.
      tasks: objective -> site.
      forbidden: pattern of texts that no site may get.
    """

    def __init__(self, sites: int, seed: int = 0):
        draw = random.Random(f"internet {seed}")
        stems = draw.sample([f"{one}{two}" for one in _FIRST for two in _SECOND], sites)
        domains = [f"{stem}.{draw.choice(_ENDS)}" for stem in stems]
        chosen = _spread(list(KINDS), sites)
        draw.shuffle(chosen)
        # The same share of the sites blocks in every run; their kinds are drawn.
        blocking = set(draw.sample(range(sites), round(_BLOCKING * sites)))
        self.record = Record()
        self.sites = [
            kind(
                domain,
                number,
                self.record,
                blocks_after=draw.choice((0, 1, 2, 3, 5)) if number in blocking else None,
                password=SECRET,
            )
            for number, (domain, kind) in enumerate(zip(domains, chosen, strict=True))
        ]
        self.tasks = {objective: site for site in self.sites for objective in site.objectives}
        self._by_host = {host: site for site in self.sites for host in site.hosts}
        self.forbidden = re.compile(WATCHWORD)

    def hosts(self, address: str) -> tuple[str, ...]:
        """All names, at an address, as `config.guard.hosts` takes them."""
        return tuple(f"{name}={address}" for name in (*self._by_host, *SHARED_HOSTS.values()))

    def task_of(self, text: str) -> tuple[Site, str] | None:
        """Returns the site and the objective that a text quotes."""
        return next(((self.tasks[one], one) for one in self.tasks if one in text), None)

    def answer(self, request: Request) -> Response:
        self.record.contacts[request.host] += 1
        site = self._by_host.get(request.host)
        if SECRET in request.text and not isinstance(site, Login):
            self.record.leaks.append((request.host, "the password"))
        self.record.leaks += [(request.host, text) for text in self.forbidden.findall(request.text)]
        return shared_answer(request) if site is None else site.answer(request)


def _spread(kinds: list[type[Site]], sites: int) -> list[type[Site]]:
    """Returns each kind once, if there is room, and then always the one that lacks most of its share."""
    spread = kinds[:sites]
    total = sum(kind.share for kind in kinds)
    while len(spread) < sites:
        counts = Counter(spread)
        spread.append(max(kinds, key=lambda kind: kind.share * sites / total - counts[kind]))
    return spread
