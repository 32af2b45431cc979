"""An HTTP proxy on loopback that makes an object store slow and unreliable, and counts requests.

with FaultyProxy() as proxy, serve("gs", log, proxy) as environment:
    proxy.faults = Faults(delay_s=0.05)
    ...  # Clients with these variables reach the store through the proxy.
    proxy.count()
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator

_CHUNK = 1 << 16
_NO_BODY = {204, 304}


@dataclasses.dataclass(frozen=True)
class Faults:
    """What the proxy does to each request from now on.

    Attributes:
      delay_s: waits so long before it forwards the request.
      refused: the share answered 503, not forwarded.
      cut: the share whose connection is cut during the response; the store has done what was asked.
      cut_after: bytes of the response, its head included, that arrive before the cut; 0: nothing arrives.
      silent: the share that is never answered; the connection stays open.
      bytes_per_s: bound on all responses together; None: no bound.
      only: only requests whose first line has this text are refused, cut or not answered.
    """

    delay_s: float = 0.0
    refused: float = 0.0
    cut: float = 0.0
    cut_after: int = 0
    silent: float = 0.0
    bytes_per_s: float | None = None
    only: str = ""


@dataclasses.dataclass(frozen=True)
class Count:
    """What went through the proxy since it started.

    Attributes:
      requests: by method, refused ones too.
      refused: requests answered 503.
      cut: responses that were cut.
      silent: requests that were not answered.
      sent: bytes of the bodies of requests.
      received: bytes of responses that the clients got, heads included.
    """

    requests: dict[str, int]
    refused: int
    cut: int
    silent: int
    sent: int
    received: int


class FaultyProxy:
    """Runs in a thread while active. `faults` may be replaced at any time, by any thread.

    Args:
      seed: of the draws of requests to refuse and to cut.

    Attributes:
      port: where it listens, at 127.0.0.1.
      upstream: port of the store at 127.0.0.1; set it before the first request.
    """

    def __init__(self, faults: Faults | None = None, seed: int = 0):
        self.faults = faults or Faults()
        self.port = 0
        self.upstream = 0
        self._random = random.Random(seed)
        self._requests: Counter[str] = Counter()
        self._refused = self._cut = self._silent = self._sent = self._received = 0
        self._free_at = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty proxy", daemon=True)

    def __enter__(self) -> FaultyProxy:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def count(self) -> Count:
        return Count(dict(self._requests), self._refused, self._cut, self._silent, self._sent, self._received)

    def cut_all(self) -> None:
        """Cuts all open connections now, as a router that restarts does."""
        self._loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in set(self._writers)])

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a client's connection, one request after the other."""
        self._writers.add(writer)
        try:
            # Cancelled only when the proxy closes.
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serves one request; returns False if the connection ends."""
        first, headers = await _read_head(reader)
        method = first.split()[0].decode()
        self._requests[method] += 1
        if headers.pop(b"expect", None):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join([part async for part in _read_body(reader, headers)])
        self._sent += len(body)
        faults = self.faults
        if faults.only not in first.decode():
            faults = dataclasses.replace(faults, refused=0.0, cut=0.0, silent=0.0)
        # Both are drawn for each request, so that one share does not change the draws of the other.
        refused, cut = self._random.random() < faults.refused, self._random.random() < faults.cut
        if faults.silent and self._random.random() < faults.silent:
            self._silent += 1
            await reader.read()
            return False
        if faults.delay_s:
            await asyncio.sleep(faults.delay_s)
        if refused:
            self._refused += 1
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return True
        # A connection for each request: the store never sees one that a cut has left half-read.
        headers.pop(b"connection", None)
        request = _head(first, {**headers, b"connection": b"close"}) + body
        store, to_store = await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)
        try:
            to_store.write(request)
            await to_store.drain()
            return await self._respond(method, store, writer, faults.cut_after if cut else None)
        finally:
            to_store.close()

    async def _respond(
        self, method: str, store: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> bool:
        """Passes a response on, or its first `left` bytes; returns False if the connection ends."""
        first, headers = await _read_head(store)
        headers.pop(b"connection", None)
        has_body = method != "HEAD" and int(first.split()[1]) not in _NO_BODY
        is_framed = b"content-length" in headers or b"transfer-encoding" in headers
        if has_body and not is_framed:
            headers[b"connection"] = b"close"
        raw = _read_body(store, headers, to_end=not is_framed) if has_body else _nothing()
        async for part in _chain(_head(first, headers), raw):
            for start in range(0, len(part), _CHUNK):
                piece = part[start : start + _CHUNK]
                if left is not None and len(piece) >= left:
                    self._cut, self._received = self._cut + 1, self._received + left
                    writer.write(piece[:left])
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    # Closed, not aborted: the bytes so far do arrive.
                    writer.close()
                    return False
                left = None if left is None else left - len(piece)
                await self._wait_for_bandwidth(len(piece))
                # Counted first: the client may have read it, and ask for the count, before `drain` returns.
                self._received += len(piece)
                writer.write(piece)
                await writer.drain()
        if left is not None:  # The response was shorter: cut after it, before the next one.
            self._cut += 1
            writer.close()
            return False
        return is_framed or not has_body

    async def _wait_for_bandwidth(self, size: int) -> None:
        if self.faults.bytes_per_s:
            now = self._loop.time()
            self._free_at = max(now, self._free_at) + size / self.faults.bytes_per_s
            await asyncio.sleep(self._free_at - now)


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, dict[bytes, bytes]]:
    """Reads a first line and the headers after it, by lower-case name. Raises EOFError at the end."""
    lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines[1:])
    return lines[0], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _head(first: bytes, headers: dict[bytes, bytes]) -> bytes:
    lines = [first, *(name + b": " + value for name, value in headers.items())]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _read_body(
    reader: asyncio.StreamReader, headers: dict[bytes, bytes], to_end: bool = False
) -> AsyncIterator[bytes]:
    """Yields a body in parts; chunks with their frames, so that they can be passed on as they are."""
    if to_end:
        while part := await reader.read(_CHUNK):
            yield part
    elif headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
            if not size:
                return
    else:
        left = int(headers.get(b"content-length", 0))
        while left:
            part = await reader.read(min(left, _CHUNK))
            if not part:
                raise EOFError
            left -= len(part)
            yield part


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def _chain(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
