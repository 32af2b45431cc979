"""Settings of the guard."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import Settings, internal

if TYPE_CHECKING:
    from collection.browser.guard.upstream import UpstreamProxy

MB = 1_000_000


class GuardConfig(Settings):
    """The addresses that a browser may reach, and limits on its traffic. Empty lists allow nothing.

    Attributes:
      allowed: sources (see `policy.HostSource`) on the public internet, in addition to those of each task.
      private: sources that may lead to private and loopback addresses.
      task_site: also allow the registrable domain of the task's website, and all hosts below it.
      subresources: what pages may load that is not the document of a window: scripts, images, frames, data.
        `none`: only from the sources above; `same_site`: also from the registrable domains of these sources;
        `public`: from all of the public internet.
      redirects: what happens when a task's start page leads to a site that is not allowed. `refuse`: it is
        not opened; `start`: over https that site is allowed for this task.
      robots: what a site's robots.txt means for documents of windows. `ignore`: it is not fetched; `record`:
        documents that it disallows are opened and recorded; `obey`: they are refused.
      hosts: `NAME=127.0.0.1:PORT`, as in /etc/hosts: fixed addresses of names, for sites on this machine.
        The names must also be allowed by a source.
      upstream: proxies (`http://`, `https://` or `socks5://` HOST:PORT) through which connections to sites
        go; each browser takes one of them at random. Names are resolved here, so that their addresses are
        judged; those in `hosts` are reached directly.
      upstream_auth_env: environment variable with USER:PASSWORD for these proxies.
      max_upload_mb: size of all data sent over a connection, which may carry many requests.
      max_download_mb: size of all data received over a connection.
      connect_seconds: time limit for name resolution and connection.
      idle_seconds: time limit of a connection without a byte in either direction.
      total_seconds: time limit of a connection since the browser last sent something over it.
    """

    allowed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    task_site: bool = False
    subresources: Literal["none", "same_site", "public"] = "none"
    redirects: Literal["refuse", "start"] = "refuse"
    robots: Literal["ignore", "record", "obey"] = "ignore"
    hosts: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    upstream_auth_env: str = ""
    max_upload_mb: float = internal(64.0, gt=0)
    max_download_mb: float = internal(512.0, gt=0)
    connect_seconds: float = internal(10.0, gt=0)
    idle_seconds: float = internal(60.0, gt=0)
    total_seconds: float = internal(300.0, gt=0)

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        if self.upstream:
            # Machines that only train lack its packages.
            from collection.browser.guard.upstream import UpstreamProxy

            for url in self.upstream:
                UpstreamProxy.parse(url)
        for entry in self.hosts:
            if not all(entry.partition("=")):
                raise UserError(f"config.guard.hosts: {entry!r} has to be NAME=127.0.0.1:PORT")
        return self

    @property
    def watches_documents(self) -> bool:
        """True if a document is judged in another way than what a page loads."""
        return self.subresources != "none" or self.redirects != "refuse" or self.robots != "ignore"

    def upstream_proxy(self) -> UpstreamProxy | None:
        """Returns one of the upstream proxies, or None. Raises UserError without its credentials."""
        if not self.upstream:
            return None
        from collection.browser.guard.upstream import UpstreamProxy

        return UpstreamProxy.parse(random.choice(self.upstream), self.upstream_auth_env)

    @property
    def host_addresses(self) -> dict[str, str]:
        """`hosts` as a mapping from name to address."""
        return {name: address for name, _, address in (entry.partition("=") for entry in self.hosts)}
