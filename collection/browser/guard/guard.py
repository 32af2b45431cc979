"""What one browser is held by: its proxy, the check of addresses, and the secrets it must not tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import ada_url
import tldextract

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.flags import BACKGROUND_HOSTS, proxy_flags
from collection.browser.guard.policy import Target, UrlPolicy, Verdict, read_url
from collection.browser.guard.proxy import EgressProxy, ProxyReport
from collection.browser.guard.redact import Redactor
from rmsweb_jax.records.schema import Incident

# With hosts such as github.io, under which everybody's sites are their own: only the packaged list is read.
_DOMAINS = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


class Guard(contextlib.AbstractContextManager["Guard"]):
    """Holds one browser to what its task may reach; used with `with`, or `start()` and `close()`.

    Args:
      hosts: where names lead without being looked up, as in /etc/hosts: `name` or `name:port` ->
        `127.0.0.1:PORT`. The addresses may be private; the names are allowed by sources like any other.
      secrets: values by name, which are hidden from all that is written.

    Attributes:
      redactor: hides the secrets and card numbers in text, and fills the secrets in.

    Raises:
      UserError: a source, a host or a secret cannot be used.
      ProxyLostError: from `admit`, `protect`, `incidents` and `report`, once the proxy's process is gone.
    """

    def __init__(
        self,
        config: GuardConfig,
        hosts: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.redactor = Redactor(secrets or {}, cards=True)
        self._proxy = EgressProxy(config, hosts or {}) if config.proxy else None
        self._ports: set[int] = set()
        self._sources: tuple[str, ...] = ()
        self._policy = self._make_policy()

    def __enter__(self) -> Guard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the proxy. Only what the config allows is let through."""
        if self._proxy is not None:
            self._proxy.start((*self.config.allowed, *self._sources), self.config.private, self._ports)

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.close()

    @property
    def alive(self) -> bool:
        """Whether the proxy runs; always so without one."""
        return self._proxy is None or self._proxy.alive

    @property
    def process_id(self) -> int:
        """The proxy's process; 0 without one."""
        return 0 if self._proxy is None else self._proxy.process_id

    @property
    def proxy_address(self) -> str:
        """`ADDRESS:PORT` once started; empty without a proxy."""
        return "" if self._proxy is None else f"{self.config.listen}:{self._proxy.port}"

    @property
    def flags(self) -> tuple[str, ...]:
        """What Chromium is to be started with, host resolver rules among it."""
        return proxy_flags(self.proxy_address) if self._proxy is not None else ()

    @property
    def own_ports(self) -> frozenset[int]:
        """Loopback ports that no page may talk to: the proxy's, and those given to `protect`."""
        proxy = {self._proxy.port} if self._proxy is not None and self._proxy.port else set()
        return frozenset(self._ports | proxy)

    def protect(self, *ports: int) -> None:
        """Adds ports of the machinery, such as a driver's or a debugger's."""
        self._ports.update(ports)
        self._tell()

    def admit(self, sites: Iterable[str] = (), website: str = "") -> None:
        """Begins an episode: what the one before was allowed is forgotten, its connections are ended.

        Args:
          sites: sources that the task names beside the config's. They are of the public internet: private
            ones are only the config's to name.
          website: the task's; where the config says `task_site`, its registrable domain and all below.

        Raises:
          UserError: a source cannot be read.
        """
        own = site_sources(website) if self.config.task_site and website else ()
        before, self._sources = self._sources, (*sites, *own)
        try:
            self._policy = self._make_policy()
        except BaseException:
            self._sources = before
            raise
        self._tell()

    def check(self, url: str) -> Verdict:
        """Whether the browser may open this address."""
        return self._policy.judge(url)

    def sweep(self, urls: Iterable[str]) -> list[tuple[str, Verdict]]:
        """The same of every window's address, in order."""
        return [(url, self.check(url)) for url in urls]

    def incidents(self) -> tuple[Incident, ...]:
        """What the proxy has refused since the last time, a line for each place and reason.

        What the browser asks for by itself (`BACKGROUND_HOSTS`) is refused as well, and left out here.
        """
        if self._proxy is None:
            return ()
        report = self._proxy.report()
        lines = []
        for refusal in report.refusals:
            if refusal.place.partition(":")[0] in BACKGROUND_HOSTS:
                continue
            times = f" ({refusal.count} times)" if refusal.count > 1 else ""
            lines.append(f"{refusal.url}: {refusal.detail} [{refusal.reason}]{times}")
        if report.untold:
            lines.append(f"{report.untold} more requests")
        return tuple(Incident(kind="refused", detail=self.redactor.text(line)) for line in lines)

    def report(self) -> ProxyReport | None:
        """What the proxy did; refusals told here are not among `incidents` any more. None without a proxy."""
        return None if self._proxy is None else self._proxy.report()

    def _make_policy(self) -> UrlPolicy:
        allowed = (*self.config.allowed, *self._sources)
        return UrlPolicy(allowed, self.config.private, lambda: self.own_ports)

    def _tell(self) -> None:
        if self._proxy is not None and self._proxy.port:
            self._proxy.admit((*self.config.allowed, *self._sources), self.config.private, self._ports)


def site_sources(website: str) -> tuple[str, ...]:
    """Sources for a website's registrable domain and all below it; none for what is no address of a host."""
    target = read_url(website if "://" in website else f"https://{website}")
    if not isinstance(target, Target):
        return ()
    port = ada_url.URL(f"{target.scheme}://{target.host}:{target.port}").port
    end = f":{port}" if port else ""
    domain = _DOMAINS(target.host).top_domain_under_public_suffix
    # An address, a local name or a public suffix has no neighbours of the same owner.
    return (domain + end, f"*.{domain}{end}") if domain else (target.host + end,)
