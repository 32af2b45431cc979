"""One connection of a browser to its proxy: requests, judged one by one, and tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import ada_url
import h11

from collection.browser.guard.config import MB
from collection.browser.guard.dial import Upstream, check
from collection.browser.guard.expansion import Expansion
from collection.browser.guard.headers import request_headers, response_headers, values
from collection.browser.guard.ledger import RefusedError, UnreachableError
from collection.browser.guard.policy import Target, read_url
from collection.browser.guard.shared import HEAD, Shared, plain_answer, read_some, refusal_text
from collection.browser.guard.tunnel import check_host, open_tunnel, relay

_DRAIN = MB
_REPEATABLE = {b"GET", b"HEAD", b"OPTIONS"}


@dataclasses.dataclass
class _Server:
    """A connection to a server, kept for the next request to the same place."""

    upstream: Upstream
    http: h11.Connection = dataclasses.field(
        default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD)
    )
    used: bool = False

    def close(self) -> None:
        self.upstream.writer.transport.abort()


class _StaleError(Exception):
    """A kept connection had ended before it was used again."""


class Connection:
    """Serves a browser's connection until either side ends it."""

    def __init__(self, shared: Shared, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._shared, self._reader, self._writer = shared, reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)
        self._server: _Server | None = None
        self._purposes: list[Target] = []

    async def serve(self) -> None:
        try:
            while await self._turn():
                self._http.start_next_cycle()
        except (ConnectionError, TimeoutError, h11.ProtocolError):
            self._writer.transport.abort()
        finally:
            self._drop_server()
            self._writer.close()

    def judge_again(self) -> None:
        """Ends what a new policy does not allow any more."""
        if self._server is None:
            return
        address, judge = self._server.upstream.address, self._shared.dialer.judge
        if not any(judge(self._shared.policy, target, address).allowed for target in self._purposes):
            self._drop_server()
            if self._http.our_state is not h11.IDLE:
                self._writer.transport.abort()

    async def _turn(self) -> bool:
        """One request; whether another may follow."""
        try:
            request = await self._event()
        except h11.RemoteProtocolError as error:
            self._shared.ledger.requests += 1
            refusal = RefusedError("not_http", str(error))
            self._shared.ledger.refuse("", "", refusal)
            self._writer.write(plain_answer(self._http, 400, refusal_text(refusal), close=True))
            await self._writer.drain()
            return False
        if not isinstance(request, h11.Request):
            return False
        self._shared.ledger.requests += 1
        url = request.target.decode("ascii")
        try:
            if request.method == b"CONNECT":
                await self._tunnel(url)
                return False
            await self._exchange(url, request)
        except RefusedError as error:
            tunnel = request.method == b"CONNECT" or not ada_url.check_url(url)
            place = url if tunnel else ada_url.URL(url).host
            self._shared.ledger.refuse(place, url, error)
            await self._answer(403, refusal_text(error))
        except UnreachableError as error:
            await self._answer(502, str(error))
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                going_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(going_on) or b"")
            self._http.receive_data(await self._reader.read(HEAD))
        return event

    async def _answer(self, status: int, text: str) -> None:
        """Tells the browser; or, when a response has begun already, breaks it off where it is."""
        self._drop_server()
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._writer.transport.abort()
            return
        # A browser that is still sending would not read.
        left, ended = _DRAIN, self._http.their_state is not h11.SEND_BODY
        while left > 0 and not ended:
            event = await self._event()
            left -= len(event.data) if isinstance(event, h11.Data) else 0
            ended = isinstance(event, h11.EndOfMessage)
        self._writer.write(plain_answer(self._http, status, text, close=not ended))
        await self._writer.drain()

    async def _tunnel(self, authority: str) -> None:
        await self._event()  # The request's end: a CONNECT has no body.
        self._purposes, upstream = await open_tunnel(self._shared, authority)
        self._server = _Server(upstream)
        established = h11.Response(status_code=200, headers=[], reason=b"Connection established")
        self._writer.write(self._http.send(established) or b"")
        early, _ = self._http.trailing_data
        await relay(self._shared, self._purposes, upstream, (self._reader, self._writer), early)

    async def _exchange(self, url: str, request: h11.Request) -> None:
        """A plain request, from its head to the end of its response."""
        check(self._shared.policy.judge(url))
        parsed, target = ada_url.URL(url), read_url(url)
        if parsed.protocol != "http:" or not isinstance(target, Target):
            raise RefusedError("scheme", "only plain http is forwarded; https goes through a tunnel")
        check_host(request, target)
        head = h11.Request(
            method=request.method,
            target=(parsed.pathname + parsed.search).encode(),
            headers=request_headers(request, parsed.host),
        )
        seconds = self._shared.config.total_seconds
        try:
            async with asyncio.timeout(seconds):
                try:
                    await self._pass_on(head, await self._server_for(target))
                except _StaleError:
                    self._drop_server()
                    await self._pass_on(head, await self._server_for(target))
        except TimeoutError:
            raise RefusedError("total_time", f"not over after {seconds:g} seconds") from None

    async def _server_for(self, target: Target) -> _Server:
        server, shared = self._server, self._shared
        if server is not None and server.upstream.target == target and not server.upstream.reader.at_eof():
            # As judged when it was opened, unless the policy has changed.
            check(shared.dialer.judge(shared.policy, target, server.upstream.address))
            server.used = True
            return server
        self._drop_server()
        self._server = _Server(await shared.dialer.open(shared.policy, target))
        self._purposes = [target]
        return self._server

    def _drop_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _pass_on(self, head: h11.Request, server: _Server) -> None:
        writer = server.upstream.writer
        with contextlib.suppress(ConnectionError):
            # A server may answer and close before it has read everything.
            writer.write(server.http.send(head) or b"")
            await self._send_body(server)
        # Whoever leaves the page does not want the rest.
        watch = asyncio.ensure_future(self._reader.read(HEAD))
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

    async def _send_body(self, server: _Server) -> None:
        left = self._shared.config.max_upload_mb * MB
        while self._http.their_state is h11.SEND_BODY or server.http.our_state is h11.SEND_BODY:
            event = await self._event()
            if isinstance(event, h11.Data):
                left -= len(event.data)
                self._shared.ledger.sent += len(event.data)
                if left < 0:
                    raise RefusedError("upload_size", f"more than {self._shared.config.max_upload_mb:g} MB")
            elif not isinstance(event, h11.EndOfMessage):
                raise ConnectionResetError
            server.upstream.writer.write(server.http.send(event) or b"")
            await server.upstream.writer.drain()

    async def _receive(self, head: h11.Request, server: _Server) -> None:
        try:
            response = await self._head_of_response(head, server)
            most = self._shared.config.max_response_mb * MB
            lengths = [text for text in values(response.headers, b"content-length") if text.isdecimal()]
            if head.method != b"HEAD" and lengths and int(lengths[0]) > most:
                raise RefusedError("response_size", f"{int(lengths[0]) / MB:.1f} MB")
            expansion = Expansion(values(response.headers, b"content-encoding"), self._shared.config)
            headers = response_headers(response)
            self._write(
                h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)
            )
            while True:
                event = await self._server_event(server)
                if isinstance(event, h11.Data):
                    most -= len(event.data)
                    self._shared.ledger.received += len(event.data)
                    if most < 0:
                        raise RefusedError(
                            "response_size", f"more than {self._shared.config.max_response_mb:g} MB"
                        )
                    expansion.feed(event.data)
                    self._write(event)
                    await self._writer.drain()
                elif isinstance(event, h11.EndOfMessage):
                    self._write(h11.EndOfMessage())
                    break
                else:
                    raise ConnectionResetError
        except h11.RemoteProtocolError as error:
            raise UnreachableError(f"the server's answer cannot be read: {error}") from None
        await self._writer.drain()
        if server.http.our_state is h11.DONE and server.http.their_state is h11.DONE:
            server.http.start_next_cycle()
        else:
            self._drop_server()

    async def _head_of_response(self, head: h11.Request, server: _Server) -> h11.Response:
        stale = server.used and head.method in _REPEATABLE
        try:
            while True:
                event = await self._server_event(server)
                if isinstance(event, h11.Response):
                    return event
                if not isinstance(event, h11.InformationalResponse):
                    raise UnreachableError("the server has closed without an answer")
                stale = False
        except (ConnectionError, h11.RemoteProtocolError, UnreachableError) as error:
            if stale and not server.http.trailing_data[0]:
                raise _StaleError from error
            if isinstance(error, ConnectionError):
                raise UnreachableError("the server has closed without an answer") from None
            raise

    async def _server_event(self, server: _Server) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := server.http.next_event()) is h11.NEED_DATA:
            data = await read_some(server.upstream.reader, self._shared.config.idle_seconds)
            server.http.receive_data(data)
        return event

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
