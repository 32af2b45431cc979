"""From an allowed host to a connection: names are resolved once, and what they resolve to is judged."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Mapping

from collection.browser.guard.addresses import Address
from collection.browser.guard.ledger import RefusedError, UnreachableError
from collection.browser.guard.policy import Target, UrlPolicy, Verdict, is_local_name, literal_address
from rmsweb_jax.errors import UserError

_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
CHUNK = 1 << 16


@dataclasses.dataclass
class Upstream:
    """A connection to a server.

    Attributes:
      address: the judged address at the other end; None: where `hosts` says.
    """

    target: Target
    address: Address | None
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Dialer:
    """Connects to targets.

    Args:
      hosts: where names lead without being looked up, as `name` or `name:port` -> `address:port`. Whoever
        writes this answers for the address: it may be private.
      seconds: for everything up to the connection.

    Raises:
      UserError: an entry of `hosts` cannot be read.
    """

    def __init__(self, hosts: Mapping[str, str], seconds: float) -> None:
        self._hosts = {name.lower(): _endpoint(name, place) for name, place in hosts.items()}
        self._seconds = seconds

    async def open(self, policy: UrlPolicy, target: Target) -> Upstream:
        """A new connection.

        Raises:
          RefusedError: the policy is against it; nothing was sent.
          UnreachableError: the host is not there.
        """
        check(policy.judge_target(target))
        try:
            async with asyncio.timeout(self._seconds):
                return await self._connect(target, *await self._places(policy, target))
        except TimeoutError:
            raise UnreachableError(f"{target.host} does not answer") from None

    def judge(self, policy: UrlPolicy, target: Target, address: Address | None) -> Verdict:
        """Whether a connection that there is may be used, for this target, now."""
        if address is not None:
            return policy.judge_address(target, address)
        return policy.judge_target(target)

    async def _places(
        self, policy: UrlPolicy, target: Target
    ) -> tuple[list[Address | None], tuple[str, int]]:
        mapped = self._hosts.get(f"{target.host}:{target.port}") or self._hosts.get(target.host)
        if mapped is not None:
            if policy.is_own_port(mapped[1]):
                raise RefusedError("own_port", f"port {mapped[1]} is the browser's own")
            return [None], mapped
        addresses = await _resolve(target)
        for address in addresses:
            # Every one: which of them answers is not for a hostile name server to choose.
            check(policy.judge_address(target, address))
        return [*addresses], ("", target.port)

    async def _connect(
        self, target: Target, addresses: list[Address | None], mapped: tuple[str, int]
    ) -> Upstream:
        reason = "no address"
        for address in addresses:
            try:
                reader, writer = await asyncio.open_connection(
                    str(address or mapped[0]), mapped[1], limit=CHUNK
                )
                return Upstream(target, address, reader, writer)
            except OSError as error:
                reason = error.strerror or str(error)
        raise UnreachableError(f"{target.host} cannot be reached: {reason}")


def check(verdict: Verdict) -> None:
    """Raises RefusedError unless it is a yes."""
    if not verdict.allowed:
        raise RefusedError(verdict.reason.value, verdict.detail)


async def _resolve(target: Target) -> list[Address]:
    literal = literal_address(target.host)
    if literal is not None:
        return [literal]
    if is_local_name(target.host):
        return list(_LOOPBACK)
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableError(f"{target.host} is not found: {error}") from error
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


def _endpoint(name: str, place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    address = literal_address(host)
    if address is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"hosts: {name!r} leads to {place!r}: write an address and a port, as 127.0.0.1:8000")
    return str(address), int(port)
