"""Servers on loopback: one that must not be reached, and ones that send exact bytes."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Iterator


class Forbidden:
    """Counts contacts on its port, by TCP (IPv4 and IPv6) or UDP, and closes them."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        first = socket.create_server(("127.0.0.1", 0))
        self.port = first.getsockname()[1]
        self._sockets = {first: "tcp"}
        with contextlib.suppress(OSError):
            self._sockets[socket.create_server(("::1", self.port), family=socket.AF_INET6)] = "tcp6"
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", self.port))
        self._sockets[datagrams] = "udp"
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one in (*self._sockets, self._woken):
                selector.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        return
                    assert isinstance(key.fileobj, socket.socket)
                    kind = self._sockets[key.fileobj]
                    if kind == "udp":
                        key.fileobj.recv(2048)
                    else:
                        key.fileobj.accept()[0].close()
                    self.arrived.append(kind)

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        for one in (*self._sockets, self._woken):
            one.close()


Answer = Callable[[socket.socket, bytes], None]


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """Serves a port with `answer(connection, head)` for each request until its connection closes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(30)
            while True:
                head = b""
                # What follows the head is for `answer`.
                while not head.endswith(b"\r\n\r\n"):
                    byte = connection.recv(1)
                    if not byte:
                        return
                    head += byte
                answer(connection, head.removesuffix(b"\r\n\r\n"))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def page(body: bytes, kind: str = "text/html", status: str = "200 OK", extra: str = "") -> bytes:
    """Returns a complete response with keep-alive."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body
