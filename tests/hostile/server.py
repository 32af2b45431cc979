"""Two servers on loopback: a site that misbehaves as each page asks, and one that must not be reached."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping

from tests.loopback import listening

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

    host: str
    path: str
    query: str
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
        self._stopped, self._open = threading.Event(), contextlib.ExitStack()

    def __enter__(self) -> HostileSite:
        self.port = self._open.enter_context(listening(self._answer))
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._open.close()

    def _answer(self, connection: socket.socket) -> None:
        head, _, rest = _read_head(connection).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        _, target, _ = first.split(" ", 2)
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
        places = (connection, self._forbidden, self._direct, self._stopped)
        serve = self._behaviours.get(name, lambda exchange: exchange.send("", status="404 Not Found"))
        serve(Exchange(host, path, query, *places))


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
        self._changed, self._open = threading.Condition(), contextlib.ExitStack()

    def __enter__(self) -> ForbiddenServer:
        forbidden = self

        class Datagram(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                forbidden._count("UDP")

        while True:
            self.port = self._open.enter_context(listening(self._stream))
            try:
                datagrams = socketserver.ThreadingUDPServer(("127.0.0.1", self.port), Datagram)
            except OSError:  # Another program has that port for datagrams.
                self._open.close()
                continue
            self._open.enter_context(datagrams)
            self._open.callback(datagrams.shutdown)
            threading.Thread(target=datagrams.serve_forever, args=(0.05,), daemon=True).start()
            return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _stream(self, connection: socket.socket) -> None:
        place = self._count("")
        connection.settimeout(2)
        line = connection.recv(65536).partition(b"\r\n")[0]
        self.contacts[place] = line.decode("latin-1")[:200]
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html\r\n"
            b"Content-Length: 16\r\nConnection: close\r\n\r\n<h1>reached</h1>"
        )

    def _count(self, contact: str) -> int:
        with self._changed:
            self.contacts.append(contact)
            self._changed.notify_all()
            return len(self.contacts) - 1

    def wait_for_more(self, than: int, seconds: float) -> bool:
        """Returns True if there are more contacts than `than`, now or within the time limit."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.contacts) > than, seconds)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Reserves a port of 127.0.0.1 on which no process listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
