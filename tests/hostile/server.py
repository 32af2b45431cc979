"""Two servers on loopback: a site that misbehaves as each page asks, and one that must not be reached."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping

HTML = "text/html; charset=utf-8"
_MAX_HEAD = 1 << 20


class DisconnectedError(Exception):
    """The client has closed the connection."""


@dataclasses.dataclass
class Exchange:
    """One request, and the connection to answer it on.

    Attributes:
      forbidden, direct: the server that must not be reached, by its name and by its address with port.
      stopped: set when the site ends, for answers that never do.
    """

    method: str
    host: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    connection: socket.socket
    forbidden: str
    direct: str
    stopped: threading.Event

    def raw(self, data: bytes) -> None:
        """Sends bytes unchanged. Raises DisconnectedError."""
        try:
            self.connection.sendall(data)
        except OSError as error:
            raise DisconnectedError from error

    def send(
        self,
        body: bytes | str,
        kind: str = HTML,
        status: str = "200 OK",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Sends a well-formed answer; in text, the placeholders `FORBIDDEN` and `DIRECT` are filled in."""
        data = self.fill(body).encode("utf-8", "surrogatepass") if isinstance(body, str) else body
        fields = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"}
        fields |= headers or {}
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
        self.raw(self.fill("\r\n".join(lines)).encode("latin-1") + b"\r\n\r\n" + data)

    def fill(self, text: str) -> str:
        return text.replace("FORBIDDEN", self.forbidden).replace("DIRECT", self.direct)


Serve = Callable[[Exchange], None]


class _Threaded(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores errors: they end one connection only, and pages often cause them on purpose."""


class HostileSite:
    """Serves `behaviours` by the first label of the host name.

    Attributes:
      port: on 127.0.0.1.
      bodies: what pages sent home, by behaviour.
      strays: (behaviour, cookie) where a cookie of another behaviour came along.
    """

    def __init__(self, behaviours: Mapping[str, Serve], forbidden: str, direct: str) -> None:
        self._behaviours, self._forbidden, self._direct = behaviours, forbidden, direct
        self.bodies: dict[str, list[str]] = {}
        self.requests: dict[str, int] = {}
        self.strays: list[tuple[str, str]] = []
        self._stopped = threading.Event()
        site = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(DisconnectedError, OSError):
                    site._answer(self.request)

        self._server = _Threaded(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> HostileSite:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, connection: socket.socket) -> None:
        head, _, rest = _read_head(connection).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        length = int(headers.get("content-length", 0))
        while len(rest) < length:
            rest += _receive(connection)
        path, _, query = target.partition("?")
        host = headers.get("host", "").partition(":")[0]
        name = host.partition(".")[0]
        self.requests[name] = self.requests.get(name, 0) + 1
        cookie = headers.get("cookie", "")
        if "visited=" in cookie and f"visited={name}" not in cookie:
            self.strays.append((name, cookie[:200]))
        if path == "/home":
            self.bodies.setdefault(name, []).append(query + rest.decode("utf-8", "replace"))
        serve = self._behaviours.get(name, _nothing)
        serve(
            Exchange(
                method=method,
                host=host,
                path=path,
                query=query,
                headers=headers,
                body=rest,
                connection=connection,
                forbidden=self._forbidden,
                direct=self._direct,
                stopped=self._stopped,
            )
        )


def _nothing(exchange: Exchange) -> None:
    exchange.send("nothing here", status="404 Not Found")


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise DisconnectedError
    return data


def _read_head(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MAX_HEAD:
        data += _receive(connection)
    return data


class ForbiddenServer:
    """Counts every TCP connection and every UDP datagram that reaches it, on one port of 127.0.0.1.

    It answers every request, so that a page that gets through can report it.

    Attributes:
      contacts: first lines of what came in, at most 200 characters each; empty for a bare connection.
    """

    def __init__(self) -> None:
        self.contacts: list[str] = []
        self._changed = threading.Condition()
        forbidden = self

        class Stream(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                place = forbidden._count("")
                self.request.settimeout(2)
                with contextlib.suppress(OSError):
                    line = self.request.recv(65536).partition(b"\r\n")[0]
                    forbidden.contacts[place] = line.decode("latin-1")[:200]
                    self.request.sendall(
                        b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html\r\n"
                        b"Content-Length: 16\r\nConnection: close\r\n\r\n<h1>reached</h1>"
                    )

        class Datagram(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                forbidden._count("UDP")

        self._stream, self._datagram = _same_port(Stream, Datagram)
        self.port: int = self._stream.server_address[1]

    def __enter__(self) -> ForbiddenServer:
        for server in (self._stream, self._datagram):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._stream, self._datagram):
            server.shutdown()
            server.server_close()

    def _count(self, contact: str) -> int:
        with self._changed:
            self.contacts.append(contact)
            self._changed.notify_all()
            return len(self.contacts) - 1

    def wait_for_more(self, than: int, seconds: float) -> bool:
        """Returns True if there are more contacts than `than`, now or within the time limit."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.contacts) > than, seconds)


def _same_port(stream: type, datagram: type) -> tuple[_Threaded, socketserver.ThreadingUDPServer]:
    while True:
        tcp = _Threaded(("127.0.0.1", 0), stream)
        try:
            return tcp, socketserver.ThreadingUDPServer(("127.0.0.1", tcp.server_address[1]), datagram)
        except OSError:  # Somebody has that port for datagrams.
            tcp.server_close()


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Reserves a port of 127.0.0.1 on which no process listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
