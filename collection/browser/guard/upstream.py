"""Connections from the proxy to servers: names are resolved once, and every resolved address is judged.

The module also holds the state and the helpers that HTTP requests (`http_proxy`) and tunnels share.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Iterable, Mapping

import h11

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.policy import (
    Address,
    PolicyVerdict,
    RequestTarget,
    UrlPolicy,
    is_local_name,
    literal_address,
)
from collection.browser.guard.refusals import RequestRefusedError, TrafficLedger, UpstreamUnreachableError
from collection.browser.guard.upstream_proxy import UpstreamProxy
from rmsweb_jax.errors import UserError

_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
CHUNK = 1 << 16
# Chromium itself accepts response headers up to this size.
MAX_HEADER_BYTES = 1 << 18


@dataclasses.dataclass
class Upstream:
    """A connection to a server.

    Attributes:
      address: the judged address of the server; None if `hosts` maps the name.
    """

    target: RequestTarget
    address: Address | None
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Connector:
    """Opens connections to request targets.

    Args:
      hosts: fixed addresses of names, as `name` or `name:port` -> `address:port`. They are trusted and may
        be private, because the user's configuration sets them.
      seconds: time limit for name resolution and connection together.
      proxy: connects to all other addresses; they are resolved and judged here all the same.

    Raises:
      UserError: an entry of `hosts` is malformed.
    """

    def __init__(self, hosts: Mapping[str, str], seconds: float, proxy: UpstreamProxy | None = None) -> None:
        self._hosts = {name.lower(): _endpoint(name, place) for name, place in hosts.items()}
        self._seconds, self._proxy = seconds, proxy

    async def open(self, policy: UrlPolicy, target: RequestTarget) -> Upstream:
        """Opens a connection.

        Raises:
          RequestRefusedError: the policy forbids it; nothing was sent.
          UpstreamUnreachableError: the host cannot be reached.
        """
        check(policy.judge_target(target))
        try:
            async with asyncio.timeout(self._seconds):
                return await self._connect(target, *await self._resolve(policy, target))
        except TimeoutError:
            through = f" through {self._proxy}" if self._proxy else ""
            raise UpstreamUnreachableError(f"{target.host} does not answer{through}") from None

    def judge(self, policy: UrlPolicy, target: RequestTarget, address: Address | None) -> PolicyVerdict:
        """Judges if an open connection may be used for this target under the current policy."""
        if address is not None:
            return policy.judge_address(target, address)
        return policy.judge_target(target)

    async def _resolve(
        self, policy: UrlPolicy, target: RequestTarget
    ) -> tuple[list[Address | None], tuple[str, int]]:
        mapped = self._hosts.get(f"{target.host}:{target.port}") or self._hosts.get(target.host)
        if mapped is not None:
            if policy.is_own_port(mapped[1]):
                raise RequestRefusedError("own_port", f"port {mapped[1]} is the browser's own")
            # None: addresses from the user's configuration are not judged, so they may be private.
            return [None], mapped
        addresses = await _look_up(target)
        for address in addresses:
            # All of them: a hostile name server must not hide a private address among public ones.
            check(policy.judge_address(target, address))
        return [*addresses], ("", target.port)

    async def _connect(
        self, target: RequestTarget, addresses: list[Address | None], mapped: tuple[str, int]
    ) -> Upstream:
        reason = "no address"
        for address in addresses:
            try:
                reader, writer = await self._dial(str(address or mapped[0]), mapped[1], address is not None)
                # Connected to the judged address itself: a second look-up could give another one (DNS
                # rebinding).
                return Upstream(target, address, reader, writer)
            except OSError as error:
                reason = error.strerror or str(error)
        raise UpstreamUnreachableError(f"{target.host} cannot be reached: {reason}")

    async def _dial(
        self, host: str, port: int, judged: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A mapped name leads to a server next to this machine, not one behind the proxy.
        if self._proxy is not None and judged:
            return await self._proxy.connect(host, port, self._seconds, CHUNK)
        return await asyncio.open_connection(host, port, limit=CHUNK)


@dataclasses.dataclass
class ProxyState:
    """State of the proxy that all its connections share. The policies change with every episode.

    Attributes:
      policy: of all requests.
      documents: of what windows show; stricter than `policy` if pages may have parts from other sites.
    """

    config: GuardConfig
    connector: Connector
    policy: UrlPolicy
    documents: UrlPolicy
    ledger: TrafficLedger = dataclasses.field(default_factory=TrafficLedger)

    async def connect(self, target: RequestTarget) -> Upstream:
        """Opens a connection under the current policy, which may change meanwhile; see `Connector`."""
        upstream = await self.connector.open(self.policy, target)
        verdict = self.connector.judge(self.policy, target, upstream.address)
        if not verdict.allowed:
            upstream.writer.transport.abort()
        check(verdict)
        return upstream


def check(verdict: PolicyVerdict) -> None:
    """Raises RequestRefusedError unless the verdict allows the request."""
    if not verdict.allowed:
        raise RequestRefusedError(verdict.reason.value, verdict.detail)


async def _look_up(target: RequestTarget) -> list[Address]:
    literal = literal_address(target.host)
    if literal is not None:
        return [literal]
    # Resolved as browsers do, without a name service.
    if is_local_name(target.host):
        return list(_LOOPBACK)
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UpstreamUnreachableError(f"{target.host} is not found: {error}") from error
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


def _endpoint(name: str, place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    address = literal_address(host)
    if address is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"hosts: {name!r} leads to {place!r}: write an address and a port, as 127.0.0.1:8000")
    return str(address), int(port)


async def read_some(reader: asyncio.StreamReader, idle_seconds: float) -> bytes:
    """Returns the next bytes, empty at the end. Raises RequestRefusedError if none arrive in time."""
    try:
        async with asyncio.timeout(idle_seconds):
            return await reader.read(CHUNK)
    except TimeoutError:
        raise RequestRefusedError("idle", f"nothing came for {idle_seconds:g} seconds") from None


def header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Returns the values of all headers with a lower-case name."""
    return [value.decode("latin-1") for key, value in headers if key == name]


def plain_answer(http: h11.Connection, status: int, text: str, close: bool) -> bytes:
    """Returns the bytes of a short text page for the browser."""
    body = f"{text}\n".encode("utf-8", "replace")
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        *([("Connection", "close")] if close else []),
    ]
    events = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


def refusal_text(error: RequestRefusedError) -> str:
    """Returns the text of a refusal for the browser; `environments.web` recognises it."""
    return f"refused by the collector's guard: {error}"
