"""CONNECT: bytes to and from one judged host.

TLS is not opened: a tunnel is judged by the host and port that are asked for (and by whether what goes
through it is TLS at all), its limits count bytes on the wire, and what its responses unpack to is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Callable

import h11

from collection.browser.guard.config import MB, GuardConfig
from collection.browser.guard.dial import CHUNK, Upstream, check
from collection.browser.guard.headers import values
from collection.browser.guard.ledger import RefusedError
from collection.browser.guard.policy import Target, Verdict, read_url
from collection.browser.guard.shared import HEAD, Shared, read_some

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/?#@\\\[\]:]+):([0-9]{1,5})")
_TLS_HANDSHAKE = 0x16


def read_authority(text: str) -> list[Target]:
    """What a tunnel to `host:port` may be for: https, or http for a WebSocket.

    Raises:
      RefusedError: it is no host and port.
    """
    targets = []
    for scheme in ("https", "http"):
        found = read_url(f"{scheme}://{text}/") if _AUTHORITY.fullmatch(text) else None
        if isinstance(found, Target):
            targets.append(found)
    if not targets:
        raise RefusedError("not_a_url", "not a host and port")
    return targets


async def open_tunnel(shared: Shared, authority: str) -> tuple[list[Target], Upstream]:
    """Connects, if it may be for anything.

    Returns:
      What it may be for, and the connection.

    Raises:
      RefusedError, UnreachableError: as from `Dialer.open`.
    """
    targets = read_authority(authority)
    allowed = [target for target in targets if shared.policy.judge_target(target).allowed]
    if not allowed:
        usual = next(
            (target for target in targets if target.port == 80 and target.scheme == "http"), targets[0]
        )
        check(shared.policy.judge_target(usual))
    upstream = await shared.dialer.open(shared.policy, allowed[0])
    good = [
        target for target in allowed if shared.dialer.judge(shared.policy, target, upstream.address).allowed
    ]
    return good, upstream


async def relay(
    shared: Shared,
    allowed: list[Target],
    upstream: Upstream,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    early: bytes,
) -> None:
    """Carries bytes until either side ends; RefusedError when a limit is met.

    Args:
      early: what the client has sent behind its request.
    """
    reader, writer = client
    config, ledger = shared.config, shared.ledger
    first = early
    with contextlib.suppress(RefusedError):
        # Browsers open tunnels that they may need, and this one they did not.
        first = first or await read_some(reader, config.idle_seconds)
    if not first:
        return
    first = await _admitted(first, allowed, reader, config)
    upstream.writer.write(first)
    flow = _Flow(config.idle_seconds, asyncio.get_running_loop().time())

    def down(size: int) -> None:
        ledger.received += size

    def up(size: int) -> None:
        ledger.sent += size

    up(len(first))
    most_up, most_down = config.max_upload_mb * MB - len(first), config.max_tunnel_mb * MB
    ways = [
        asyncio.ensure_future(flow.copy(reader, upstream.writer, most_up, "upload_size", up)),
        asyncio.ensure_future(flow.copy(upstream.reader, writer, most_down, "response_size", down)),
    ]
    try:
        async with asyncio.timeout(config.total_seconds):
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
    except TimeoutError:
        raise RefusedError("total_time", f"a tunnel open for {config.total_seconds:g} seconds") from None
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


@dataclasses.dataclass
class _Flow:
    """Both ways of a tunnel: idle is when neither carries anything."""

    idle_seconds: float
    last: float

    async def copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        most: float,
        limit: str,
        count: Callable[[int], None],
    ) -> None:
        now = asyncio.get_running_loop().time
        while True:
            data = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.idle_seconds):
                    data = await reader.read(CHUNK)
            if data is None:
                if now() - self.last >= self.idle_seconds:
                    return
                continue
            if not data:
                return
            self.last = now()
            count(len(data))
            most -= len(data)
            if most < 0:
                raise RefusedError(limit, "a tunnel that carries too much")
            writer.write(data)
            await writer.drain()


async def _admitted(
    first: bytes, allowed: list[Target], reader: asyncio.StreamReader, config: GuardConfig
) -> bytes:
    """The first bytes, complete enough to tell what they are, if the tunnel may be used for that."""
    scheme = "https" if first[0] == _TLS_HANDSHAKE else "http"
    target = next((target for target in allowed if target.scheme == scheme), None)
    if target is None:
        raise RefusedError("not_listed", f"{allowed[0].host} is not listed for {scheme}")
    return first if scheme == "https" else await _web_socket(first, target, reader, config)


async def _web_socket(
    first: bytes, target: Target, reader: asyncio.StreamReader, config: GuardConfig
) -> bytes:
    """The head of a WebSocket's handshake with that host: plain requests have no need of tunnels."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
    seen, data = b"", first
    while True:
        seen += data
        http.receive_data(data)
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise RefusedError("not_http", f"neither TLS nor a WebSocket: {error}") from None
        if event is not h11.NEED_DATA:
            break
        data = await read_some(reader, config.idle_seconds)
        if not data:
            raise RefusedError("not_http", "a tunnel that ends before a request")
    if (
        not isinstance(event, h11.Request)
        or "websocket" not in ",".join(values(event.headers, b"upgrade")).lower()
    ):
        raise RefusedError("not_http", "a plain request through a tunnel")
    check_host(event, target)
    return seen


def check_host(request: h11.Request, target: Target) -> None:
    """Raises RefusedError unless the Host header names the target."""
    named = [read_url(f"{target.scheme}://{text}/") for text in values(request.headers, b"host")]
    if any(isinstance(found, Verdict) or found != target for found in named):
        raise RefusedError("mismatch", "the request and its Host header name different hosts")
