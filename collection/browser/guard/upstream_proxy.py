"""Upstream proxies: connections to judged addresses that go through a proxy of the user's."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import math
import os
import socket
import ssl

import ada_url
import h11
import socks

from rmsweb_jax.errors import UserError

_PORTS = {"http": 80, "https": 443, "socks5": 1080}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UpstreamProxyError(Exception):
    """The upstream proxy cannot be used; the message names it without credentials."""


class _NotReachedError(Exception):
    """The proxy works and does not reach the server."""


@dataclasses.dataclass(frozen=True)
class UpstreamProxy:
    """A proxy that connects to servers on behalf of ours.

    Attributes:
      scheme: `http` or `https` (CONNECT), or `socks5`.
      user, password: empty for none.
    """

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, credentials_env: str = "") -> UpstreamProxy:
        """Parses `config.guard.upstream`.

        Args:
          credentials_env: environment variable with `USER:PASSWORD`; empty for none.

        Raises:
          UserError: the text is no proxy's address, or the variable is not set; no credentials are quoted.
        """
        if "@" in url:
            raise UserError(
                "guard.upstream has a user name: put USER:PASSWORD into an environment variable, and name it "
                "in guard.upstream_auth_env"
            )
        parsed = ada_url.URL(url) if ada_url.check_url(url) else None
        scheme = parsed.protocol.removesuffix(":") if parsed else ""
        if parsed is None or scheme not in _PORTS or not parsed.hostname:
            raise UserError(f"guard.upstream is {url!r}: write http://, https:// or socks5:// HOST:PORT")
        user, _, password = _credentials(credentials_env).partition(":")
        host = parsed.hostname.removeprefix("[").removesuffix("]")
        return cls(scheme, host, int(parsed.port or _PORTS[scheme]), user, password)

    def __str__(self) -> str:
        return f"the upstream proxy {self.host}:{self.port}"

    async def connect(self, address: str, port: int, seconds: float, limit: int) -> Streams:
        """Connects to an IP address through the proxy.

        Args:
          seconds: time limit.
          limit: of the reader's buffer.

        Raises:
          UpstreamProxyError: the proxy cannot be used.
          ConnectionError: the proxy cannot reach the address.
        """
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            if self.scheme == "socks5":
                return await self._socks(address, port, seconds, limit)
            return await self._tunnel(place, limit)
        except _NotReachedError as error:
            raise ConnectionError(f"{self} does not reach {place} ({error})") from None
        except (OSError, h11.RemoteProtocolError) as error:
            # Not the error's own text, which may quote what was sent.
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise UpstreamProxyError(f"{self} cannot be used: {reason}") from None

    async def _socks(self, address: str, port: int, seconds: float, limit: int) -> Streams:
        def dial() -> socket.socket:
            connection = socks.create_connection(
                (address, port),
                timeout=math.ceil(seconds),
                proxy_type=socks.SOCKS5,
                proxy_addr=self.host,
                proxy_port=self.port,
                proxy_rdns=False,
                proxy_username=self.user or None,
                proxy_password=self.password or None,
            )
            return socket.socket(fileno=connection.detach())

        try:
            connection = await asyncio.to_thread(dial)
        except socks.ProxyError as error:
            # The library wraps its own errors once more.
            cause = error.socket_err or error
            if isinstance(cause, socks.SOCKS5AuthError):
                raise UpstreamProxyError(f"{self} refuses the user name or password") from None
            if isinstance(cause, socks.SOCKS5Error):
                raise _NotReachedError(cause.msg) from None
            raise cause from None
        return await asyncio.open_connection(sock=connection, limit=limit)

    async def _tunnel(self, authority: str, limit: int) -> Streams:
        tls = ssl.create_default_context() if self.scheme == "https" else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=tls, limit=limit)
        try:
            http, headers = h11.Connection(h11.CLIENT), [("Host", authority)]
            if self.user:
                token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
                headers.append(("Proxy-Authorization", f"Basic {token}"))
            writer.write(http.send(h11.Request(method="CONNECT", target=authority, headers=headers)) or b"")
            while not isinstance(event := http.next_event(), h11.Response):
                if event is not h11.NEED_DATA and not isinstance(event, h11.InformationalResponse):
                    raise UpstreamProxyError(f"{self} has closed the connection")
                if event is h11.NEED_DATA:
                    http.receive_data(await reader.read(limit))
            if event.status_code == 407:
                raise UpstreamProxyError(f"{self} refuses the user name or password")
            if not 200 <= event.status_code < 300:
                raise _NotReachedError(f"status {event.status_code}")
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer


def _credentials(name: str) -> str:
    if name and name not in os.environ:
        raise UserError(
            f"guard.upstream_auth_env: the environment variable {name} is not set; export it first"
        )
    return os.environ.get(name, "")
