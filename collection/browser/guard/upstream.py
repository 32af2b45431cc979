"""Upstream proxies: connections to judged addresses that go through a proxy of the user's."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
import ssl

import ada_url
from python_socks import ProxyError, ProxyType
from python_socks.async_.asyncio.v2 import Proxy

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
        if credentials_env and credentials_env not in os.environ:
            raise UserError(
                f"guard.upstream_auth_env: the environment variable {credentials_env} is not set; export it "
                "first"
            )
        user, _, password = os.environ.get(credentials_env, "").partition(":")
        host = parsed.hostname.removeprefix("[").removesuffix("]")
        return cls(scheme, host, int(parsed.port or _PORTS[scheme]), user, password)

    def __str__(self) -> str:
        return f"the upstream proxy {self.host}:{self.port}"

    async def connect(self, address: str, port: int) -> Streams:
        """Connects to an IP address through the proxy.

        Raises:
          UpstreamProxyError: the proxy cannot be used.
          ConnectionError: the proxy cannot reach the address.
        """
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            if self.scheme == "socks5":
                return await self._socks(address, port)
            return await self._tunnel(place)
        except _NotReachedError as error:
            raise ConnectionError(f"{self} does not reach {place} ({error})") from None
        except (OSError, EOFError, ValueError, IndexError, ProxyError, asyncio.LimitOverrunError) as error:
            # Not the error's own text, which may quote what was sent.
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
            raise UpstreamProxyError(f"{self} cannot be used: {reason or type(error).__name__}") from None

    async def _socks(self, address: str, port: int) -> Streams:
        proxy = Proxy(ProxyType.SOCKS5, self.host, self.port, self.user or None, self.password or None)
        try:
            stream = await proxy.connect(address, port)
        except ProxyError as error:
            if error.error_code:
                raise _NotReachedError(str(error)) from None
            if "authentication" in str(error):
                raise self._rejected() from None
            raise
        return stream.reader, stream.writer

    def _rejected(self) -> UpstreamProxyError:
        return UpstreamProxyError(f"{self} refuses the user name or password")

    async def _tunnel(self, place: str) -> Streams:
        # python-socks takes what comes first for the whole answer, so that a header that comes later would be
        # read as the server's.
        tls = ssl.create_default_context() if self.scheme == "https" else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=tls)
        try:
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            login = f"Proxy-Authorization: Basic {token}\r\n" if self.user else ""
            writer.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{login}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split(maxsplit=2)[1])
            if status == 407:
                raise self._rejected()
            if not 200 <= status < 300:
                raise _NotReachedError(f"status {status}")
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer
