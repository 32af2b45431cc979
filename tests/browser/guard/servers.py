"""A server on loopback that sends exact bytes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

from tests.loopback import listening

Answer = Callable[[socket.socket, bytes], None]


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """Serves a port with `answer(connection, head)` for each request until its connection closes."""

    def serve(connection: socket.socket) -> None:
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

    with listening(serve) as port:
        yield port


def page(body: bytes, kind: str = "text/html", status: str = "200 OK", extra: str = "") -> bytes:
    """Returns a complete response with keep-alive."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body
