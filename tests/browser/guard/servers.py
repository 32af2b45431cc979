"""A server on loopback that sends exact bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

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
