"""The guard of one browser: its egress, its URL policy and its secrets."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

from collection.browser.config import PageError
from collection.browser.guard.chromium_policy import BACKGROUND_HOSTS, proxy_flags
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.documents import DocumentGate, Move
from collection.browser.guard.egress import HOST, Egress, Record
from collection.browser.guard.policy import (
    HostSource,
    PolicyVerdict,
    RequestTarget,
    UrlPolicy,
    read_url,
    secure_sources,
    site_sources,
)
from collection.browser.guard.redaction import Redactor
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
      record: what was refused.

    Raises:
      UserError: a source, a host or a secret is not usable.
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
        self.record = Record()
        self._egress = Egress(config, hosts or {}, self.record)
        self._gate: DocumentGate | None = None
        self._watch = watch or config.watches_documents
        self._ports: set[int] = set()
        self._sources: tuple[str, ...] = ()
        self._website = ""
        self._secret_hosts = {name: tuple(hosts) for name, hosts in (secret_hosts or {}).items()}
        for host in filter(None, itertools.chain(*self._secret_hosts.values())):
            HostSource.parse(host)
        self._apply()

    def __enter__(self) -> Guard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the egress with the policy of the config only."""
        self._egress.start()
        self._change()  # Its port is one of our own.

    def close(self) -> None:
        if self._gate is not None:
            self._gate.close()
        self._egress.close()

    @property
    def alive(self) -> bool:
        """True while connections are served; False once documents cannot be judged any more."""
        return self._egress.alive

    @property
    def proxy_address(self) -> str:
        """`ADDRESS:PORT` once started."""
        return f"{HOST}:{self._egress.port}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for Chromium, including host resolver rules."""
        return proxy_flags(self.proxy_address)

    def protect(self, *ports: int) -> None:
        """Adds loopback ports that no page may reach, such as a driver's or a debugger's."""
        self._ports.update(ports)
        self._change()

    def admit(self, sites: Iterable[str] = (), website: str = "") -> None:
        """Starts an episode: drops the sites of the previous task and ends connections to them.

        Args:
          sites: sources of the task, in addition to the config's. They lead to the public internet only; a
            task cannot allow private addresses.
          website: the task's website; with `task_site` its registrable domain and its hosts are allowed.

        Raises:
          UserError: a source is malformed.
        """
        own = site_sources(website) if self.config.task_site and website else ()
        sources = (*sites, *own)
        UrlPolicy(sources)
        self._website = website
        self._change(sources)

    def watch(self, url: str) -> None:
        """Judges every document of the browser with its DevTools at `url`, before its request leaves.

        It does nothing where a document is judged as any other request.

        Raises:
          OSError: there is no connection to the browser.
        """
        if self._watch:
            self._gate = DocumentGate(
                url, self.config, self._egress, self.record, self.check, self._admit_start_page
            )
            self._change()

    def expect_start_page(self) -> None:
        """Takes the next document for the start page, and follows it until `start_page_arrived`."""
        if self._gate is not None:
            self._egress.call(self._gate.expect)

    def start_page_arrived(self) -> tuple[Move, ...]:
        """Returns the other sites to which the start page has led; those admitted belong to the task."""
        return tuple(self._egress.call(self._gate.arrived)) if self._gate is not None else ()

    def serve_empty(self, url: str) -> None:
        """Answers the next request for a document at `url` with an empty page; needs `watch`."""
        assert self._gate is not None
        self._egress.call(self._gate.serve_empty, url)

    def refused_documents(self) -> list[tuple[str, str]]:
        """Returns address and reason of documents that were refused since the last call."""
        taken = []
        while self._gate is not None and self._gate.refused:
            taken.append(self._gate.refused.popleft())
        return taken

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
        return self.record.take(self.redactor.text, BACKGROUND_HOSTS)

    def _admit_start_page(self, url: str) -> None:
        self._sources = tuple(dict.fromkeys((*self._sources, *secure_sources(url))))
        self._apply()

    def _change(self, sources: tuple[str, ...] | None = None) -> None:
        """Applies the policy with the sources of a task; in the thread of the egress, if that runs."""

        def change() -> None:
            self._sources = self._sources if sources is None else sources
            self._apply()

        if self._egress.port:
            self._egress.call(change)
        else:
            change()

    def _apply(self) -> None:
        allowed, private = (*self.config.allowed, *self._sources), self.config.private
        own = frozenset({*self._ports, self._egress.port} - {0})
        self._policy = UrlPolicy(allowed, private, own)
        # Without the gate a document could pass for a part of a page.
        parts: tuple[str, ...] = ()
        if self._gate is not None and self.config.subresources == "public":
            parts = ("*",)
        elif self._gate is not None and self.config.subresources == "same_site":
            hosts = (HostSource.parse(text).host.removeprefix("*.") for text in allowed)
            parts = tuple(source for host in hosts if host != "*" for source in site_sources(host))
        self._egress.admit(UrlPolicy((*allowed, *parts), private, own))
