"""How one browser is held."""

from __future__ import annotations

import dataclasses
import ipaddress

from rmsweb_jax.errors import UserError

MB = 1_000_000


@dataclasses.dataclass(frozen=True)
class GuardConfig:
    """What a browser may reach, and how much of it. Empty lists allow nothing.

    Attributes:
      allowed: sources (see `policy.Source`) on the public internet, beside those of each task.
      private: sources that may lead to private and loopback addresses.
      task_site: the registrable domain of a task's website and all hosts below it are allowed as well.
      hosts: `NAME=127.0.0.1:PORT`, as in /etc/hosts: where names lead without being looked up, for sites on
        this machine; the names are allowed by sources like any other.
      proxy: send everything through an egress proxy; without one only addresses are judged, before a page is
        opened and after each step, and a page's own requests go where they will.
      listen: this machine's IPv4 address at which the proxy waits: for a grid's browsers on other machines,
        one that they reach. Whoever else reaches it can open what the browser may.
      max_response_mb: of a response's body, as it comes over the wire.
      max_expanded_mb: of a compressed response once it is unpacked.
      max_expansion: how many times its size a response may unpack to (small ones may always).
      max_upload_mb: of a request's body, or of all that goes up a tunnel.
      max_tunnel_mb: of all that comes down a tunnel, which may carry many responses.
      connect_seconds: to find a host's address and reach it.
      idle_seconds: without a byte.
      total_seconds: for one response, or one tunnel.
    """

    allowed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    task_site: bool = False
    hosts: tuple[str, ...] = ()
    proxy: bool = True
    listen: str = "127.0.0.1"
    max_response_mb: float = 64.0
    max_expanded_mb: float = 256.0
    max_expansion: float = 200.0
    max_upload_mb: float = 16.0
    max_tunnel_mb: float = 512.0
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    total_seconds: float = 300.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.startswith(("max_", "connect_", "idle_", "total_")) and not value > 0:
                raise UserError(f"guard.{field.name} is {value}: it must be above 0")
        if not _is_address(self.listen):
            raise UserError(f"guard.listen is {self.listen!r}: write one of this machine's IPv4 addresses")
        for entry in self.hosts:
            if not all(entry.partition("=")):
                raise UserError(f"guard.hosts: {entry!r} has to be NAME=127.0.0.1:PORT")

    @property
    def host_addresses(self) -> dict[str, str]:
        """`hosts` as name -> address."""
        return {name: address for name, _, address in (entry.partition("=") for entry in self.hosts)}


def _is_address(text: str) -> bool:
    """Whether browsers can be sent there: "any address" (0.0.0.0) is none."""
    try:
        return not ipaddress.IPv4Address(text).is_unspecified
    except ValueError:
        return False
