"""CONNECT tunnels: bytes to and from one judged host.

The proxy does not decrypt TLS. A tunnel is judged by its host and port and by its first bytes, which must be
TLS or a WebSocket handshake. Its limits count bytes on the wire; the unpacked size of responses is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Callable

import h11

from collection.browser.guard.config import MB, GuardConfig
from collection.browser.guard.policy import PolicyVerdict, RequestTarget, read_url
from collection.browser.guard.refusals import RequestRefusedError
from collection.browser.guard.upstream import (
    CHUNK,
    MAX_HEADER_BYTES,
    ProxyState,
    Upstream,
    check,
    header_values,
    read_some,
)

_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/?#@\\\[\]:]+):([0-9]{1,5})")
_TLS_HANDSHAKE = 0x16


def read_authority(text: str) -> list[RequestTarget]:
    """Returns the possible targets of a tunnel to `host:port`: https, or http for a WebSocket.

    Raises:
      RequestRefusedError: the text is not a host and port.
    """
    targets = []
    for scheme in ("https", "http"):
        found = read_url(f"{scheme}://{text}/") if _AUTHORITY.fullmatch(text) else None
        if isinstance(found, RequestTarget):
            targets.append(found)
    if not targets:
        raise RequestRefusedError("not_a_url", "not a host and port")
    return targets


async def open_tunnel(state: ProxyState, authority: str) -> tuple[list[RequestTarget], Upstream]:
    """Opens a connection if the policy allows any target of the tunnel.

    Returns:
      The allowed targets, and the connection.

    Raises:
      RequestRefusedError, UpstreamUnreachableError: as from `ProxyState.connect`.
    """
    targets = read_authority(authority)
    allowed = [target for target in targets if state.policy.judge_target(target).allowed]
    if not allowed:
        # Raises for the more likely of the two targets, so that the reason fits.
        likely = next(
            (target for target in targets if target.port == 80 and target.scheme == "http"), targets[0]
        )
        check(state.policy.judge_target(likely))
    upstream = await state.connect(allowed[0])
    usable = [
        target for target in allowed if state.connector.judge(state.policy, target, upstream.address).allowed
    ]
    return usable, upstream


async def relay(
    state: ProxyState,
    allowed: list[RequestTarget],
    upstream: Upstream,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    early: bytes,
) -> None:
    """Copies bytes both ways until either side closes.

    Args:
      early: bytes that the client sent directly after its request.

    Raises:
      RequestRefusedError: a limit is exceeded, or the first bytes are not allowed.
    """
    reader, writer = client
    config, ledger = state.config, state.ledger
    first = early
    with contextlib.suppress(RequestRefusedError):
        # Browsers open spare tunnels in advance; one that stays silent is closed without a refusal.
        first = first or await read_some(reader, config.idle_seconds)
    if not first:
        return
    first = await _check_first_bytes(first, allowed, reader, config)
    upstream.writer.write(first)
    flow = _Flow(config.idle_seconds, asyncio.get_running_loop().time())

    def down(size: int) -> None:
        ledger.received += size

    def up(size: int) -> None:
        ledger.sent += size

    up(len(first))
    max_up, max_down = config.max_upload_mb * MB - len(first), config.max_tunnel_mb * MB
    directions = [
        asyncio.ensure_future(flow.copy(reader, upstream.writer, max_up, "upload_size", up)),
        asyncio.ensure_future(flow.copy(upstream.reader, writer, max_down, "response_size", down)),
    ]
    try:
        async with asyncio.timeout(config.total_seconds):
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in done:
            direction.result()
    except TimeoutError:
        raise RequestRefusedError(
            "total_time", f"a tunnel open for {config.total_seconds:g} seconds"
        ) from None
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


@dataclasses.dataclass
class _Flow:
    """Both directions of a tunnel; it is idle only if neither carries data."""

    idle_seconds: float
    last: float

    async def copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        max_bytes: float,
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
            max_bytes -= len(data)
            if max_bytes < 0:
                raise RequestRefusedError(limit, "a tunnel that carries too much")
            writer.write(data)
            await writer.drain()


async def _check_first_bytes(
    first: bytes, allowed: list[RequestTarget], reader: asyncio.StreamReader, config: GuardConfig
) -> bytes:
    """Returns the first bytes, up to a complete WebSocket handshake; refuses what is not allowed."""
    scheme = "https" if first[0] == _TLS_HANDSHAKE else "http"
    target = next((target for target in allowed if target.scheme == scheme), None)
    if target is None:
        raise RequestRefusedError("not_listed", f"{allowed[0].host} is not listed for {scheme}")
    return first if scheme == "https" else await _web_socket(first, target, reader, config)


async def _web_socket(
    first: bytes, target: RequestTarget, reader: asyncio.StreamReader, config: GuardConfig
) -> bytes:
    """Reads the WebSocket handshake. Plain requests are refused: in a tunnel they would not be judged."""
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
    seen, data = b"", first
    while True:
        seen += data
        http.receive_data(data)
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestRefusedError("not_http", f"neither TLS nor a WebSocket: {error}") from None
        if event is not h11.NEED_DATA:
            break
        data = await read_some(reader, config.idle_seconds)
        if not data:
            raise RequestRefusedError("not_http", "a tunnel that ends before a request")
    if (
        not isinstance(event, h11.Request)
        or "websocket" not in ",".join(header_values(event.headers, b"upgrade")).lower()
    ):
        raise RequestRefusedError("not_http", "a plain request through a tunnel")
    check_host(event, target)
    return seen


def check_host(request: h11.Request, target: RequestTarget) -> None:
    """Raises RequestRefusedError unless the Host header names the target."""
    named = [read_url(f"{target.scheme}://{text}/") for text in header_values(request.headers, b"host")]
    if any(isinstance(found, PolicyVerdict) or found != target for found in named):
        raise RequestRefusedError("mismatch", "the request and its Host header name different hosts")
