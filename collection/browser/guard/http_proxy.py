"""The HTTP side of the egress proxy: one browser connection, its requests, and the size of its responses.

Every request is judged on its own, also on a kept connection. Compressed responses are unpacked in pieces to
count their size, and passed on compressed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import zlib
from collections.abc import Iterator

import ada_url
import h11

from collection.browser.guard.config import MB, GuardConfig
from collection.browser.guard.policy import RequestTarget, read_url
from collection.browser.guard.refusals import RequestRefusedError, UpstreamUnreachableError
from collection.browser.guard.tunnel import check_host, open_tunnel, relay
from collection.browser.guard.upstream import (
    MAX_HEADER_BYTES,
    ProxyState,
    Upstream,
    check,
    header_values,
    plain_answer,
    read_some,
    refusal_text,
)
from collection.browser.guard.upstream_proxy import UpstreamProxyError

# A refusal is sent after up to this many bytes of the request body: a browser reads nothing while it sends.
_DRAIN_BYTES = MB
# Methods that may be sent again when a kept connection turns out to be closed (RFC 9110, 9.2.2).
_REPEATABLE = {b"GET", b"HEAD", b"OPTIONS"}
# Headers for the next hop only (RFC 9110, 7.6.1).
_HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"upgrade",
}
# Request headers that the proxy writes itself.
_REWRITTEN = {b"accept-encoding", b"expect", b"host"}
# Encodings that zlib can unpack. Browsers ask for br and zstd on secure connections only, so limiting plain
# HTTP to these costs nothing.
_COUNTED = {"gzip", "x-gzip", "deflate"}
_UNCOUNTED = {"br", "zstd", "dcb", "dcz", "compress", "x-compress"}
_ACCEPT_ENCODING = b"gzip, deflate"
_PIECE = 1 << 16
# Small bodies may expand by any ratio: repetitive pages compress well and do no harm.
_SMALL = 4 * MB
# Each layer multiplies the work; real servers use one.
_MAX_LAYERS = 3
Headers = list[tuple[bytes, bytes]]


@dataclasses.dataclass
class _ServerConnection:
    """A connection to a server, kept for the next request to the same target."""

    upstream: Upstream
    http: h11.Connection = dataclasses.field(
        default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_BYTES)
    )
    used: bool = False

    def close(self) -> None:
        self.upstream.writer.transport.abort()


class _StaleError(Exception):
    """A kept connection was closed by the server before it was used again."""


class ProxyConnection:
    """Serves one connection of the browser until either side closes it."""

    def __init__(self, state: ProxyState, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._state, self._reader, self._writer = state, reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BYTES)
        self._server: _ServerConnection | None = None
        self._targets: list[RequestTarget] = []

    async def serve(self) -> None:
        try:
            while await self._serve_request():
                self._http.start_next_cycle()
        except (ConnectionError, TimeoutError, h11.ProtocolError):
            self._writer.transport.abort()
        finally:
            self._drop_server()
            self._writer.close()

    def enforce_policy(self) -> None:
        """Closes the server connection if the current policy does not allow it any more."""
        if self._server is None:
            return
        address, judge = self._server.upstream.address, self._state.connector.judge
        if not any(judge(self._state.policy, target, address).allowed for target in self._targets):
            self._drop_server()
            if self._http.our_state is not h11.IDLE:
                self._writer.transport.abort()

    async def _serve_request(self) -> bool:
        """Serves one request; returns True if another may follow."""
        try:
            request = await self._event()
        except h11.RemoteProtocolError as error:
            self._state.ledger.requests += 1
            refusal = RequestRefusedError("not_http", str(error))
            self._state.ledger.refuse("", "", refusal)
            self._writer.write(plain_answer(self._http, 400, refusal_text(refusal), close=True))
            await self._writer.drain()
            return False
        if not isinstance(request, h11.Request):
            return False
        self._state.ledger.requests += 1
        url = request.target.decode("ascii")
        try:
            if request.method == b"CONNECT":
                await self._tunnel(url)
                return False
            await self._exchange(url, request)
        except RequestRefusedError as error:
            tunnel = request.method == b"CONNECT" or not ada_url.check_url(url)
            place = url if tunnel else ada_url.URL(url).host
            self._state.ledger.refuse(place, url, error)
            await self._answer(403, refusal_text(error))
        except UpstreamProxyError as error:
            self._state.ledger.proxy_problem = str(error)
            await self._answer(502, str(error))
        except UpstreamUnreachableError as error:
            await self._answer(502, str(error))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                going_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(going_on) or b"")
            self._http.receive_data(await self._reader.read(MAX_HEADER_BYTES))
        return event

    async def _answer(self, status: int, text: str) -> None:
        """Sends a short page; aborts the connection instead if a response has already started."""
        self._drop_server()
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._writer.transport.abort()
            return
        # A browser that is still sending would not read the answer.
        left, ended = _DRAIN_BYTES, self._http.their_state is not h11.SEND_BODY
        while left > 0 and not ended:
            event = await self._event()
            left -= len(event.data) if isinstance(event, h11.Data) else 0
            ended = isinstance(event, h11.EndOfMessage)
        self._writer.write(plain_answer(self._http, status, text, close=not ended))
        await self._writer.drain()

    async def _tunnel(self, authority: str) -> None:
        await self._event()  # Reads the end of the request; a CONNECT has no body.
        self._targets, upstream = await open_tunnel(self._state, authority)
        self._server = _ServerConnection(upstream)
        established = h11.Response(status_code=200, headers=[], reason=b"Connection established")
        self._writer.write(self._http.send(established) or b"")
        early, _ = self._http.trailing_data
        await relay(self._state, self._targets, upstream, (self._reader, self._writer), early)

    async def _exchange(self, url: str, request: h11.Request) -> None:
        """Forwards a plain request, from its headers to the end of its response."""
        check(self._state.policy.judge(url))
        parsed, target = ada_url.URL(url), read_url(url)
        if parsed.protocol != "http:" or not isinstance(target, RequestTarget):
            raise RequestRefusedError("scheme", "only plain http is forwarded; https goes through a tunnel")
        check_host(request, target)
        head = h11.Request(
            method=request.method,
            target=(parsed.pathname + parsed.search).encode(),
            headers=request_headers(request, parsed.host),
        )
        seconds = self._state.config.total_seconds
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._forward(head, await self._server_for(target))
                except _StaleError:
                    self._drop_server()
                    await self._forward(head, await self._server_for(target))
        except TimeoutError:
            raise RequestRefusedError("total_time", f"not over after {seconds:g} seconds") from None

    async def _server_for(self, target: RequestTarget) -> _ServerConnection:
        server, state = self._server, self._state
        if server is not None and server.upstream.target == target and not server.upstream.reader.at_eof():
            # The policy may have changed since the connection was opened.
            check(state.connector.judge(state.policy, target, server.upstream.address))
            server.used = True
            return server
        self._drop_server()
        self._server = _ServerConnection(await state.connect(target))
        self._targets = [target]
        return self._server

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _forward(self, head: h11.Request, server: _ServerConnection) -> None:
        writer = server.upstream.writer
        with contextlib.suppress(ConnectionError):
            # A server may answer and close before it has read everything.
            writer.write(server.http.send(head) or b"")
            await self._send_body(server)
        # A browser that leaves the page closes its connection, and the rest of the response is not needed.
        watch = asyncio.ensure_future(self._reader.read(MAX_HEADER_BYTES))
        answer = asyncio.ensure_future(self._receive(head, server))
        try:
            await asyncio.wait((watch, answer), return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                data = watch.result()
                if not data:
                    raise ConnectionResetError
                self._http.receive_data(data)
            await answer
        finally:
            watch.cancel()
            answer.cancel()
            await asyncio.gather(watch, answer, return_exceptions=True)

    async def _send_body(self, server: _ServerConnection) -> None:
        left = self._state.config.max_upload_mb * MB
        while self._http.their_state is h11.SEND_BODY or server.http.our_state is h11.SEND_BODY:
            event = await self._event()
            if isinstance(event, h11.Data):
                left -= len(event.data)
                self._state.ledger.sent += len(event.data)
                if left < 0:
                    raise RequestRefusedError(
                        "upload_size", f"more than {self._state.config.max_upload_mb:g} MB"
                    )
            elif not isinstance(event, h11.EndOfMessage):
                raise ConnectionResetError
            server.upstream.writer.write(server.http.send(event) or b"")
            await server.upstream.writer.drain()

    async def _receive(self, head: h11.Request, server: _ServerConnection) -> None:
        try:
            response = await self._response_head(head, server)
            left = self._state.config.max_response_mb * MB
            lengths = [
                text for text in header_values(response.headers, b"content-length") if text.isdecimal()
            ]
            # Refused before the browser gets a byte. A HEAD response announces a body that never comes.
            if head.method != b"HEAD" and lengths and int(lengths[0]) > left:
                raise RequestRefusedError("response_size", f"{int(lengths[0]) / MB:.1f} MB")
            decompression = DecompressionLimit(
                header_values(response.headers, b"content-encoding"), self._state.config
            )
            headers = response_headers(response)
            self._write(
                h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)
            )
            while True:
                event = await self._server_event(server)
                if isinstance(event, h11.Data):
                    left -= len(event.data)
                    self._state.ledger.received += len(event.data)
                    if left < 0:
                        raise RequestRefusedError(
                            "response_size", f"more than {self._state.config.max_response_mb:g} MB"
                        )
                    decompression.feed(event.data)
                    self._write(event)
                    await self._writer.drain()
                elif isinstance(event, h11.EndOfMessage):
                    self._write(h11.EndOfMessage())
                    break
                else:
                    raise ConnectionResetError
        except h11.RemoteProtocolError as error:
            raise UpstreamUnreachableError(f"the server's answer cannot be read: {error}") from None
        await self._writer.drain()
        if server.http.our_state is h11.DONE and server.http.their_state is h11.DONE:
            server.http.start_next_cycle()
        else:
            self._drop_server()

    async def _response_head(self, head: h11.Request, server: _ServerConnection) -> h11.Response:
        # A server may close a kept connection at any time; only then is a second try justified.
        stale = server.used and head.method in _REPEATABLE
        try:
            while True:
                event = await self._server_event(server)
                if isinstance(event, h11.Response):
                    return event
                if not isinstance(event, h11.InformationalResponse):
                    raise UpstreamUnreachableError("the server has closed without an answer")
                # The server has started to answer, so the connection was alive.
                stale = False
        except (ConnectionError, h11.RemoteProtocolError, UpstreamUnreachableError) as error:
            if stale and not server.http.trailing_data[0]:
                raise _StaleError from error
            if isinstance(error, ConnectionError):
                raise UpstreamUnreachableError("the server has closed without an answer") from None
            raise

    async def _server_event(
        self, server: _ServerConnection
    ) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := server.http.next_event()) is h11.NEED_DATA:
            data = await read_some(server.upstream.reader, self._state.config.idle_seconds)
            server.http.receive_data(data)
        return event

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")


def request_headers(request: h11.Request, host: str) -> Headers:
    """Returns the headers for the server: the judged host, one framing header, and countable encodings."""
    headers = _end_to_end(request, _REWRITTEN)
    # With both framing headers, two servers could see two different requests (request smuggling).
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [(b"Host", host.encode()), *headers, (b"Accept-Encoding", _ACCEPT_ENCODING)]


def response_headers(response: h11.Response) -> Headers:
    """Returns the headers for the browser."""
    return _end_to_end(response, set())


def _end_to_end(message: h11.Request | h11.Response, rewritten: set[bytes]) -> Headers:
    named = {
        token.strip().lower().encode("latin-1")
        for line in header_values(message.headers, b"connection")
        for token in line.split(",")
    }
    # A Connection header must not remove the message's framing.
    dropped = (_HOP_BY_HOP | rewritten | named) - {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in message.headers.raw_items() if name.lower() not in dropped]


class DecompressionLimit:
    """Counts the unpacked size of a response body as it passes through.

    Args:
      encodings: values of the Content-Encoding headers, in order.

    Raises:
      RequestRefusedError: the size cannot be counted (constructor), or exceeds a limit (`feed`).
    """

    def __init__(self, encodings: list[str], config: GuardConfig) -> None:
        names = [name.strip().lower() for line in encodings for name in line.split(",")]
        if uncounted := sorted(_UNCOUNTED.intersection(names)):
            raise RequestRefusedError("decompression", f"a body in {uncounted[0]}, which was not requested")
        layers = [name for name in names if name in _COUNTED]
        if len(layers) > _MAX_LAYERS:
            raise RequestRefusedError("decompression", f"a body compressed {len(layers)} times")
        self._layers = [_Decoder(name) for name in reversed(layers)]
        self._max_size, self._max_ratio = config.max_decompressed_mb * MB, config.max_decompression_ratio
        self._compressed = self._expanded = 0

    def feed(self, data: bytes) -> None:
        """Counts the next bytes of the body; to be called before they are passed on."""
        if not self._layers:
            return
        self._compressed += len(data)
        for size in self._sizes(data, 0):
            self._expanded += size
            if self._expanded > self._max_size:
                raise RequestRefusedError("decompression", f"unpacks to more than {self._max_size / MB:g} MB")
            if self._expanded > max(_SMALL, self._max_ratio * self._compressed):
                raise RequestRefusedError(
                    "decompression", f"unpacks to more than {self._max_ratio:g} times its size"
                )

    def _sizes(self, data: bytes, layer: int) -> Iterator[int]:
        if layer == len(self._layers):
            yield len(data)
            return
        for piece in self._layers[layer].pieces(data):
            yield from self._sizes(piece, layer + 1)


class _Decoder:
    """One layer of compression. Data that it cannot decode counts as it is, as browsers do not unpack it."""

    def __init__(self, name: str) -> None:
        self._deflate = name == "deflate"
        self._zlib: zlib._Decompress | None = None
        self._plain = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._zlib is None and data:
            # Servers use "deflate" for zlib's format and for raw deflate; the first byte distinguishes them.
            raw = self._deflate and data[0] & 0x0F != 8
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS | 32)
        while data and not self._plain:
            assert self._zlib is not None
            try:
                yield self._zlib.decompress(data, _PIECE)
            except zlib.error:
                self._plain = True
                break
            data = self._zlib.unconsumed_tail
            if self._zlib.eof:
                self._plain, data = True, self._zlib.unused_data
        if data:
            yield data
