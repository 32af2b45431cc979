"""The guard of one browser: its proxy, its URL policy and its secrets."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from collection.browser.config import PageError
from collection.browser.guard.chromium_policy import BACKGROUND_HOSTS, proxy_flags
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.documents import Move
from collection.browser.guard.policy import (
    HostSource,
    PolicyVerdict,
    RequestTarget,
    UrlPolicy,
    read_url,
    secure_sources,
    site_sources,
)
from collection.browser.guard.proxy import HOST, EgressProxy, ProxyReport, SourceLists
from collection.browser.guard.redaction import Redactor
from collection.browser.guard.refusals import ROBOTS
from rmsweb_jax.records.schema import Incident


class Guard(contextlib.AbstractContextManager["Guard"]):
    """Restricts one browser to the sites of its task; used with `with`, or `start()` and `close()`.

    Args:
      hosts: fixed addresses of names, as in /etc/hosts: `name` or `name:port` -> `127.0.0.1:PORT`. The
        addresses may be private; the names must be allowed by sources.
      secrets: values by name; they are removed from all text that is written.
      secret_hosts: sources at which a secret may be typed, by name; "" and none are the task's own site.
      watch: the browser's documents are judged in the browser (see `documents`), also where the config does
        not need it.

    Attributes:
      redactor: removes the secrets and card numbers from text, and fills secrets in.

    Raises:
      UserError: a source, a host or a secret is not usable.
      ProxyLostError: from `admit`, `protect`, `incidents` and `report`, once the proxy process is gone.
    """

    def __init__(
        self,
        config: GuardConfig,
        hosts: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        secret_hosts: Mapping[str, Sequence[str]] | None = None,
        watch: bool = False,
    ) -> None:
        self.config = config
        self.redactor = Redactor(secrets or {}, cards=True)
        self._proxy = EgressProxy(config, hosts or {}) if config.proxy else None
        self._watch = watch or config.watches_documents
        self._ports: set[int] = set()
        self._sources: tuple[str, ...] = ()
        self._website = ""
        self._secret_hosts = {name: tuple(hosts) for name, hosts in (secret_hosts or {}).items()}
        for host in filter(None, itertools.chain(*self._secret_hosts.values())):
            HostSource.parse(host)
        self._policy = self._make_policy()

    def __enter__(self) -> Guard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the proxy with the policy of the config only."""
        if self._proxy is not None:
            self._proxy.start(self._lists(), self._ports)

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()

    @property
    def alive(self) -> bool:
        """True while the proxy runs, and always without one."""
        return self._proxy is None or self._proxy.alive

    @property
    def process_id(self) -> int:
        """Process id of the proxy; 0 without one."""
        return 0 if self._proxy is None else self._proxy.process_id

    @property
    def proxy_address(self) -> str:
        """`ADDRESS:PORT` once started; empty without a proxy."""
        return "" if self._proxy is None else f"{HOST}:{self._proxy.port}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for Chromium, including host resolver rules."""
        if self._proxy is None:
            return ()
        return proxy_flags(self.proxy_address)

    @property
    def watches(self) -> bool:
        """True if documents are judged apart from other requests, so that `watch` has to be called."""
        return self._proxy is not None and self._watch

    @property
    def own_ports(self) -> frozenset[int]:
        """Loopback ports that no page may reach: the proxy's, and those given to `protect`."""
        proxy = {self._proxy.port} if self._proxy is not None and self._proxy.port else set()
        return frozenset(self._ports | proxy)

    def protect(self, *ports: int) -> None:
        """Adds ports that no page may reach, such as a driver's or a debugger's."""
        self._ports.update(ports)
        self._update_proxy()

    def admit(self, sites: Iterable[str] = (), website: str = "") -> None:
        """Starts an episode: drops the sites of the previous task and closes connections to them.

        Args:
          sites: sources of the task, in addition to the config's. They lead to the public internet only; a
            task cannot allow private addresses.
          website: the task's website; with `task_site` its registrable domain and its hosts are allowed.

        Raises:
          UserError: a source is malformed.
        """
        self._website = website
        own = site_sources(website) if self.config.task_site and website else ()
        before, self._sources = self._sources, (*sites, *own)
        try:
            self._policy = self._make_policy()
        except BaseException:
            self._sources = before
            raise
        self._update_proxy()

    def watch(self, url: str) -> None:
        """Judges every document of the browser with its DevTools at `url`, before its request leaves."""
        if self._proxy is not None:
            self._proxy.watch(url)

    def expect_start_page(self) -> None:
        """Takes the next document for the start page, and follows it until `start_page_arrived`."""
        if self._proxy is not None and self.watches:
            self._proxy.expect()

    def start_page_arrived(self) -> tuple[Move, ...]:
        """Returns the other sites to which the start page has led; those admitted belong to the task."""
        if self._proxy is None or not self.watches:
            return ()
        moves = self._proxy.arrived()
        admitted = [source for move in moves if move.admitted for source in secure_sources(move.url)]
        if admitted:
            self._sources = tuple(dict.fromkeys((*self._sources, *admitted)))
            self._policy = self._make_policy()
            self._update_proxy()
        return moves

    def serve_empty(self, url: str) -> None:
        """Answers the next request for a document at `url` with an empty page, if it `watches`."""
        if self._proxy is not None:
            self._proxy.serve_empty(url)

    def refused_documents(self) -> list[tuple[str, str]]:
        """Returns address and reason of documents that were refused since the last call, if it `watches`."""
        return self._proxy.refused_documents() if self._proxy is not None and self.watches else []

    def check(self, url: str) -> PolicyVerdict:
        """Judges an address that the browser is to open, or shows."""
        return self._policy.judge(url)

    def fill(self, text: str, url: str) -> str:
        """Returns a text to type into a page, with its secrets.

        Raises:
          PageError: a secret does not belong to the page's site, or a frame has no site.
        """
        target = read_url(url)
        for name in self.redactor.secrets_in(text):
            # Anyone on the way can lead a task of an https site to http, and read what is sent there.
            plain = self._website.lower().startswith("http:")
            own = site_sources(self._website) if plain else secure_sources(self._website)
            hosts = self._secret_hosts.get(name) or ("",)
            sources = tuple(source for host in hosts for source in ((host,) if host else own))
            matching = (HostSource.parse(source) for source in sources)
            if not isinstance(target, RequestTarget) or not any(one.matches(target) for one in matching):
                allowed = ", ".join(sources) or "no site"
                where = target.host if isinstance(target, RequestTarget) else "a frame without a site"
                raise PageError(f"The secret {name} is for {allowed}, so it was not typed at {where}")
        return self.redactor.fill(text)

    def incidents(self) -> tuple[Incident, ...]:
        """Returns refusals since the last call, one per place and reason, and the upstream proxy's problem.

        Documents that robots.txt disallows are of a kind of their own, whether they were refused or opened.

        Refusals of the browser's own background requests (`BACKGROUND_HOSTS`) are left out.
        """
        if self._proxy is None:
            return ()
        report = self._proxy.report()
        found = [Incident(kind="proxy", detail=report.proxy_problem)] if report.proxy_problem else []
        for refusal in report.refusals:
            if refusal.place.partition(":")[0] in BACKGROUND_HOSTS:
                continue
            times = f" ({refusal.count} times)" if refusal.count > 1 else ""
            line = f"{refusal.url}: {refusal.detail} [{refusal.reason}]{times}"
            kind = "robots_refused" if refusal.reason == ROBOTS else "refused"
            found.append(Incident(kind=kind, detail=self.redactor.text(line)))
        if report.unlisted:
            found.append(Incident(kind="refused", detail=f"{report.unlisted} more requests"))
        opened = map(self.redactor.text, report.disallowed)
        found += (Incident(kind="robots_opened", detail=line) for line in opened)
        return tuple(found)

    def report(self) -> ProxyReport | None:
        """Returns the proxy's activity, None without a proxy. `incidents` does not repeat its refusals."""
        return None if self._proxy is None else self._proxy.report()

    def _make_policy(self) -> UrlPolicy:
        lists = self._lists()
        return UrlPolicy(lists.allowed, lists.private, lambda: self.own_ports)

    def _update_proxy(self) -> None:
        if self._proxy is not None and self._proxy.port:
            self._proxy.admit(self._lists(), self._ports)

    def _lists(self) -> SourceLists:
        allowed = (*self.config.allowed, *self._sources)
        match self.config.subresources:
            case "public":
                parts: tuple[str, ...] = ("*",)
            case "same_site":
                hosts = (HostSource.parse(text).host.removeprefix("*.") for text in allowed)
                parts = tuple(source for host in hosts if host != "*" for source in site_sources(host))
            case _:
                parts = ()
        return SourceLists(allowed, self.config.private, parts)
