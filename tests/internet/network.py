"""Serves many sites over TLS on addresses of their own in 127.0.0.0/8, from one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping

HTML = "text/html; charset=utf-8"
_MAX_HEAD = 1 << 16


@dataclasses.dataclass(frozen=True)
class Request:
    """One request; `text` is all of it that a page can choose: target, headers and body."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]
    cookies: Mapping[str, str]
    text: str


@dataclasses.dataclass(frozen=True)
class Response:
    """One answer.

    Attributes:
      delay_s: time before the first byte.
      cut: if not None, the connection breaks after that many bytes of the body; -1 sends nothing at all.
      hangs: never answers, until the browser gives up.
    """

    body: bytes | str = b""
    kind: str = HTML
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    delay_s: float = 0.0
    cut: int | None = None
    hangs: bool = False

    def encoded(self) -> tuple[bytes, bytes]:
        """Returns head and body."""
        body = self.body.encode() if isinstance(self.body, str) else self.body
        fields = {"Content-Type": self.kind, "Content-Length": str(len(body))} | dict(self.headers)
        lines = [f"HTTP/1.1 {self.status} Answer", *(f"{name}: {value}" for name, value in fields.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode(), body


def redirect(url: str, cookie: str = "") -> Response:
    return Response(status=303, headers={"Location": url} | ({"Set-Cookie": cookie} if cookie else {}))


Answer = Callable[[Request], Response]


class Network:
    """A server of many names; used with `with`.

    Args:
      addresses: name -> address below 127.0.0.0/8.
      answer: called in the server's thread, one call at a time.

    Attributes:
      port: the same on all addresses.
    """

    def __init__(self, addresses: Mapping[str, str], answer: Answer, context: ssl.SSLContext):
        self.addresses, self._answer, self._context = dict(addresses), answer, context
        self._loop = asyncio.new_event_loop()
        self._sockets = _listen(dict.fromkeys(self.addresses.values()))
        self.port: int = self._sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="internet", daemon=True)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names as `config.guard.hosts` takes them."""
        return tuple(f"{name}={address}:{self.port}" for name, address in self.addresses.items())

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # A browser that goes away during the handshake is no error here.
        self._loop.set_exception_handler(lambda *_: None)
        servers = [
            self._loop.run_until_complete(asyncio.start_server(self._serve, sock=one, ssl=self._context))
            for one in self._sockets
        ]
        self._loop.run_forever()
        for server in servers:
            server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            while True:
                request = await _read(reader)
                response = self._answer(request)
                await asyncio.sleep(response.delay_s)
                if response.hangs:
                    await reader.read(1)
                    break
                head, body = response.encoded()
                if response.cut is None:
                    writer.write(head + (b"" if request.method == "HEAD" else body))
                    await writer.drain()
                    continue
                if response.cut >= 0:
                    writer.write(head + body[: response.cut])
                    await writer.drain()
                break
        transport = writer.transport
        transport.abort()


def _listen(addresses: Iterable[str]) -> list[socket.socket]:
    """Binds one port on all addresses."""
    while True:
        sockets: list[socket.socket] = []
        port = 0
        try:
            for address in addresses:
                one = socket.socket()
                sockets.append(one)
                one.bind((address, port))
                port = one.getsockname()[1]
        except OSError:  # Somebody has that port on a later address.
            for one in sockets:
                one.close()
            continue
        for one in sockets:
            one.listen(128)
            one.setblocking(False)
        return sockets


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode("utf-8", "replace")
    path, _, query = target.partition("?")
    return Request(
        method=method,
        host=headers.get("host", "").partition(":")[0],
        path=path,
        query=_pairs(query),
        form=_pairs(body),
        cookies=dict(_cookies(headers.get("cookie", ""))),
        text=urllib.parse.unquote_plus(f"{head}\n{body}"),
    )


def _pairs(text: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(text, keep_blank_values=True))


def _cookies(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split(";")):
        name, _, value = part.strip().partition("=")
        yield name, value
