"""The egress of one browser: a SOCKS5 server that connects where the policy allows, and nowhere else.

Chromium sends names, not addresses, to a SOCKS5 proxy. http, https and WebSockets are alike a stream to one
host and port, and no kept connection leads to another host. So a connection is judged once, where it is
opened, and nothing of HTTP is read. The default is to deny. Names are resolved here, all their addresses are
judged, and one of them is connected to, so that DNS rebinding gains nothing.

Limits: TLS is not decrypted. Of a page, host and port are judged here, not the path (see `documents`), and
bytes are counted on the wire.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import ipaddress
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from collection.browser.config import BrowserLostError
from collection.browser.guard.config import MB, GuardConfig
from collection.browser.guard.policy import (
    Address,
    PolicyVerdict,
    RequestTarget,
    UrlPolicy,
    is_local_name,
    literal_address,
    read_url,
)
from collection.browser.guard.upstream import Streams, UpstreamProxyError
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Incident, IncidentKind

T = TypeVar("T")

# The browser is on the same machine.
HOST = "127.0.0.1"
_BACKLOG = 512
_LOOKUPS = 16  # Names that are waited for at a time.
_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
_HOST = re.compile(r"\[[0-9a-fA-F:.]+\]|[^\s/?#@\\\[\]:]+")
_CHUNK = 1 << 16
# A command to the browser's DevTools is sent in the thread, and a browser that has stopped may not take it.
_CALL_S = 30.0
_CLOCK_S = 0.01
_TLS_HANDSHAKE = 0x16
# Of RFC 1928.
_VERSION, _NO_LOGIN, _CONNECT = 5, 0, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE = 0, 2, 4
# A page can ask for any number of hosts with names of any length.
_MAX_PLACES = 200
_MAX_CHARS, _MAX_URL_CHARS = 300, 2000


class RefusedError(Exception):
    """The guard refuses a connection.

    Attributes:
      reason: a `policy.Reason`, `not_http` (a connection that begins with neither TLS nor HTTP),
        `upload_size`, `response_size` or `total_time`.
      detail: one line.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Record:
    """Refusals and other events since they were last taken; all threads may use it.

    A connection and the window that wanted it are at one place, so they are one incident.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[tuple[IncidentKind, str, str], tuple[str, int]] = {}
        self._problems: dict[str, str] = {}
        self._unlisted = 0

    def add(self, kind: IncidentKind, url: str, detail: str, reason: str = "", place: str = "") -> None:
        """Adds an event, or counts it with others of its kind, place and reason.

        Args:
          url: an address, or the host and port of a connection.
          place: of the event; by default the host and port of the address.
        """
        place = (place or place_of(url))[:_MAX_CHARS]
        line = f"{url[:_MAX_URL_CHARS]}: {detail}" if url else detail
        with self._lock:
            first, count = self._lines.get((kind, place, reason), (line, 0))
            if count or len(self._lines) < _MAX_PLACES:
                self._lines[kind, place, reason] = first, count + 1
            else:
                self._unlisted += 1

    def fail(self, place: str, text: str) -> None:
        """Notes why a connection to a host and port did not come about or was ended."""
        with self._lock:
            if place in self._problems or len(self._problems) < _MAX_PLACES:
                self._problems[place] = text

    def take_problems(self) -> dict[str, str]:
        """Returns the last text of `fail` of each place, since the last call."""
        with self._lock:
            taken, self._problems = self._problems, {}
        return taken

    def take(self, redact: Callable[[str], str], unreported: frozenset[str]) -> tuple[Incident, ...]:
        """Returns the events since the last call, in order.

        Args:
          redact: removes secrets from a line.
          unreported: hosts that are left out.
        """
        with self._lock:
            lines, self._lines = self._lines, {}
            unlisted, self._unlisted = self._unlisted, 0
        found = []
        for (kind, place, reason), (line, count) in lines.items():
            if place.rpartition(":")[0] not in unreported:
                code = f" [{reason}]" if reason else ""
                times = f" ({count} times)" if count > 1 else ""
                found.append(Incident(kind=kind, detail=redact(line)[: 2 * _MAX_CHARS] + code + times))
        if unlisted:
            found.append(Incident(kind="refused", detail=f"{unlisted} more requests"))
        return tuple(found)


def place_of(url: str) -> str:
    """Returns the host and port of an address, as in the record; an address without a host unchanged."""
    target = read_url(url)
    return f"{target.host}:{target.port}" if isinstance(target, RequestTarget) else url


class _UnreachableError(Exception):
    """An allowed host cannot be reached; the message says why."""


@dataclasses.dataclass(eq=False)
class _Link:
    """A connection to a server.

    Attributes:
      targets: what it may be for: https, http, or one of them.
      address: the judged address of the server; None if `hosts` maps the name.
    """

    targets: list[RequestTarget]
    address: Address | None
    streams: Streams


class Egress:
    """The proxy of one browser, in a thread of this process; it ends with the process.

    Args:
      hosts: fixed addresses of names, `name` or `name:port` -> `ADDRESS:PORT`. They are trusted and may be
        private, because the user's configuration sets them.
      record: takes what is refused or not reached.

    Attributes:
      policy: changes with every episode; only `admit` sets it.
      port: on `HOST`; 0 if not started.
      alive: False before the start, and once connections have been ended for good.

    Raises:
      UserError: an entry of `hosts` is malformed.
    """

    def __init__(self, config: GuardConfig, hosts: Mapping[str, str], record: Record) -> None:
        self._config, self._record = config, record
        self._hosts = {name.lower(): _endpoint(name, place) for name, place in hosts.items()}
        self._proxy = config.upstream_proxy()
        self._links: dict[asyncio.Task[None], _Link | None] = {}
        self.policy = UrlPolicy(())
        self.port, self.alive = 0, False

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(_LOOKUPS, "egress"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._serve, HOST, 0, limit=_CHUNK, backlog=_BACKLOG)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port, self.alive = self._server.sockets[0].getsockname()[1], True

    def close(self) -> None:
        if self.port:
            self.port = 0
            ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            ended.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
            self._thread.join(_CALL_S)
            if not self._thread.is_alive():
                self._loop.close()

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Calls a function in the thread and returns its result; all state of the thread changes there.

        Raises:
          BrowserLostError: the thread waits for the browser.
        """

        async def run() -> T:
            return function(*args)

        try:
            return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_S)
        except TimeoutError as error:
            raise BrowserLostError("the browser takes no commands") from error

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Calls a function in the thread and does not wait; nothing happens once it has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def judge(self, url: str) -> PolicyVerdict:
        """Judges an address by its text, as its connection would be."""
        return self.policy.judge(url)

    def admit(self, policy: UrlPolicy) -> None:
        """Sets the policy, and ends the connections that it does not allow; to be called in the thread."""
        self.policy = policy
        for task, link in self._links.items():
            if link is not None:
                # A connection that nothing was sent over yet may be for less than before.
                link.targets = self._allowed(link.targets, link.address)
                if not link.targets:
                    task.cancel()

    def end(self) -> None:
        """Ends all connections for good; to be called in the thread."""
        self.alive = False
        self._server.close()
        for task in self._links:
            task.cancel()

    async def _end(self) -> None:
        self.end()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _allowed(self, targets: list[RequestTarget], address: Address | None) -> list[RequestTarget]:
        return [one for one in targets if self._judge(one, address).allowed]

    def _judge(self, target: RequestTarget, address: Address | None) -> PolicyVerdict:
        if address is None:
            return self.policy.judge_target(target)
        return self.policy.judge_address(target, address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = None
        place, link = "", None
        try:
            if not self.alive:
                raise EOFError  # It was accepted just before the end.
            async with asyncio.timeout(self._config.connect_seconds):
                place = await _read_request(reader, writer)
                targets = _targets_of(place)
                place = f"{targets[0].host}:{targets[0].port}"
                self._links[task] = link = await self._open(targets)
            # The policy may have changed meanwhile.
            link.targets = self._usable(link.targets, link.address)
            writer.write(_reply(_GRANTED))
            await self._relay(link, (reader, writer))
            writer.close()
        except RefusedError as error:
            if place:
                self._record.add("refused", place, error.detail, error.reason, place)
                self._record.fail(place, f"{error.detail} [{error.reason}]")
            await _give_up(writer, None if link else _NOT_ALLOWED)
        except UpstreamProxyError as error:
            self._record.add("proxy", "", str(error))
            self._record.fail(place, str(error))
            await _give_up(writer, _UNREACHABLE)
        except _UnreachableError as error:
            self._record.fail(place, str(error))
            await _give_up(writer, _UNREACHABLE)
        except TimeoutError:
            through = f" through {self._proxy}" if self._proxy else ""
            if place:
                self._record.fail(place, f"{place.rpartition(':')[0]} does not answer{through}")
            await _give_up(writer, _UNREACHABLE)
        except (OSError, EOFError, asyncio.CancelledError):
            await _give_up(writer, None)
        finally:
            del self._links[task]
            if link is not None:
                link.streams[1].transport.abort()

    def _usable(self, targets: list[RequestTarget], address: Address | None) -> list[RequestTarget]:
        """Returns the targets that the policy allows. Raises RefusedError if there is none."""
        allowed = self._allowed(targets, address)
        if not allowed:
            # The reason is that of the more likely target.
            likely = next((one for one in targets if one.port == 80 and one.scheme == "http"), targets[0])
            verdict = self._judge(likely, address)
            raise RefusedError(verdict.reason.value, verdict.detail)
        return allowed

    async def _open(self, targets: list[RequestTarget]) -> _Link:
        """Resolves a name once, judges every address of it, and connects to one of them.

        Raises:
          RefusedError, _UnreachableError, UpstreamProxyError: nothing was sent.
        """
        targets = self._usable(targets, None)
        host, port = targets[0].host, targets[0].port
        mapped = self._hosts.get(f"{host}:{port}") or self._hosts.get(host)
        if mapped is not None:
            if self.policy.is_own_port(mapped[1]):
                raise RefusedError("own_port", f"port {mapped[1]} is the browser's own")
            places: list[tuple[Address | None, str, int]] = [(None, *mapped)]
        else:
            addresses = await self._look_up(host, port)
            for address in addresses:
                # All of them: a hostile name server must not hide a private address among public ones.
                targets = self._usable(targets, address)
            places = [(address, str(address), port) for address in addresses]
        reason = "no address"
        for address, place, number in places:
            try:
                # A mapped name leads to a server next to this machine, not one behind the proxy.
                proxy = self._proxy if address is not None else None
                dial = proxy.connect if proxy else functools.partial(asyncio.open_connection, limit=_CHUNK)
                # An address that does not answer leaves time for the others.
                async with asyncio.timeout(self._config.connect_seconds / len(places)):
                    return _Link(targets, address, await dial(place, number))
            except OSError as error:
                reason = error.strerror or str(error) or "no answer"
        raise _UnreachableError(f"{host} cannot be reached: {reason}")

    async def _look_up(self, host: str, port: int) -> list[Address]:
        literal = literal_address(host)
        if literal is not None:
            return [literal]
        # Resolved as browsers do, without a name service.
        if is_local_name(host):
            return list(_LOOPBACK)
        try:
            rows = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _UnreachableError(f"{host} is not found: {error}") from error
        return list(dict.fromkeys(ipaddress.ip_address(row[4][0]) for row in rows))

    async def _relay(self, link: _Link, client: Streams) -> None:
        """Copies bytes both ways until either side closes, or neither sends any more.

        Raises:
          RefusedError: a limit is exceeded, or the first bytes are not allowed.
        """
        config, now = self._config, self._loop.time
        end = now() + config.total_seconds
        try:
            async with asyncio.timeout(config.idle_seconds) as limit:

                async def copy(
                    source: asyncio.StreamReader, sink: asyncio.StreamWriter, most: float, name: str
                ):
                    nonlocal end
                    while data := await source.read(_CHUNK):
                        if source is client[0]:
                            end = now() + config.total_seconds
                        limit.reschedule(min(now() + config.idle_seconds, end))
                        most -= len(data)
                        if most < 0:
                            raise RefusedError(name, "a connection that carries too much")
                        sink.write(data)
                        await sink.drain()

                first = await client[0].read(_CHUNK)
                if not first:
                    return  # Browsers open spare connections in advance.
                link.targets = _targets_after(first, link.targets)
                link.streams[1].write(first)
                up = copy(client[0], link.streams[1], config.max_upload_mb * MB - len(first), "upload_size")
                down = copy(link.streams[0], client[1], config.max_download_mb * MB, "response_size")
                ways = [asyncio.ensure_future(way) for way in (up, down)]
                try:
                    done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    for way in done:
                        way.result()
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except TimeoutError:
            if now() + _CLOCK_S < end:
                raise ConnectionAbortedError from None
            detail = f"an answer that takes more than {config.total_seconds:g} seconds"
            raise RefusedError("total_time", detail) from None


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """Reads a request of a client without a login; returns `HOST:PORT` as the client writes it.

    Raises:
      EOFError: that is no SOCKS5, or not a request for a connection.
    """
    version, count = await reader.readexactly(2)
    if version != _VERSION or _NO_LOGIN not in await reader.readexactly(count):
        raise EOFError
    writer.write(bytes((_VERSION, _NO_LOGIN)))
    version, command, _, kind = await reader.readexactly(4)
    if version != _VERSION or command != _CONNECT:
        raise EOFError
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("utf-8", "replace")
    else:
        host = str(ipaddress.ip_address(await reader.readexactly(16 if kind == _IPV6 else 4)))
    (port,) = struct.unpack(">H", await reader.readexactly(2))
    return f"{host}:{port}"


def _targets_of(place: str) -> list[RequestTarget]:
    """Returns what a connection to `HOST:PORT` may be for: https and http. Raises RefusedError for none."""
    host, _, port = place.rpartition(":")
    if ":" in host and literal_address(host) is not None:
        host = f"[{host.strip('[]')}]"
    found = [read_url(f"{scheme}://{host}:{port}/") for scheme in ("https", "http")]
    targets = [one for one in found if isinstance(one, RequestTarget)]
    if not _HOST.fullmatch(host) or not targets:
        raise RefusedError("not_a_url", "not a host and port")
    return targets


def _targets_after(first: bytes, targets: list[RequestTarget]) -> list[RequestTarget]:
    """Returns the target whose scheme a connection begins with. Raises RefusedError if there is none."""
    scheme = "https" if first[0] == _TLS_HANDSHAKE else "http"
    if scheme == "http" and not first[:1].isalpha():
        raise RefusedError("not_http", "neither TLS nor HTTP")
    chosen = [one for one in targets if one.scheme == scheme]
    if not chosen:
        raise RefusedError("not_listed", f"{targets[0].host} is not listed for {scheme}")
    return chosen


async def _give_up(writer: asyncio.StreamWriter, answer: int | None) -> None:
    """Ends a connection of the browser: with an answer to its request, or so that nothing seems complete."""
    if answer is None:
        with contextlib.suppress(OSError):
            # Lingering for no time makes closing a reset.
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return
    with contextlib.suppress(OSError):
        writer.write(_reply(answer))
        await writer.drain()
    writer.close()


def _reply(status: int) -> bytes:
    return bytes((_VERSION, status, 0, _IPV4, 0, 0, 0, 0, 0, 0))


def _endpoint(name: str, place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    address = literal_address(host)
    if address is None or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"hosts: {name!r} leads to {place!r}: write an address and a port, as 127.0.0.1:8000")
    return str(address), int(port)
