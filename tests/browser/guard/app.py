"""A server with a path for each behaviour, and clients that reach it through a proxy."""

from __future__ import annotations

import gzip
import socket
import zlib

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from tests.browser.guard.raw import ask, connect, receive
from tests.browser.guard.servers import page

HOST = "app.test"
LIMITS = GuardConfig(
    allowed=(HOST, "other.test", "gone.test"),
    max_response_mb=1.0,
    max_decompressed_mb=8.0,
    max_decompression_ratio=50.0,
    max_upload_mb=0.5,
    max_tunnel_mb=1.0,
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# Fixed times, or two test workers collect tests of different names.
BOMB = gzip.compress(bytes(20_000_000), mtime=0)
SMALL = gzip.compress(b"small", mtime=0)


def endless(connection: socket.socket) -> None:
    connection.sendall(CHUNKED)
    while True:
        connection.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")


def slowly(connection: socket.socket, text: bytes, forever: bool) -> None:
    """Sends a byte at a time, faster than the idle limit, until the other side closes."""
    connection.settimeout(0.05)
    while forever:
        for byte in text:
            connection.sendall(bytes([byte]))
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                pass


class App:
    """A server with a path for each behaviour."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        self.heads.append(head)
        if len(head.split()) < 3:
            connection.close()  # TLS, or what is left of a body.
            return
        path = head.split()[1].decode()
        if path.startswith("/body/"):
            connection.sendall(page(b"x" * int(path.removeprefix("/body/"))))
        elif path == "/endless":
            endless(connection)
        elif path == "/bomb":
            connection.sendall(page(BOMB, extra="Content-Encoding: gzip\r\n"))
        elif path == "/double-bomb":
            connection.sendall(page(gzip.compress(BOMB, mtime=0), extra="Content-Encoding: gzip, gzip\r\n"))
        elif path == "/ratio-bomb":
            bomb = zlib.compress(bytes(6_000_000))
            connection.sendall(page(bomb, extra="Content-Encoding: deflate\r\n"))
        elif path == "/brotli":
            connection.sendall(page(b"\x8b\x02", extra="Content-Encoding: br\r\n"))
        elif path == "/gzip":
            connection.sendall(page(SMALL, extra="Content-Encoding: gzip\r\n"))
        elif path == "/silent":
            connection.recv(1)
        elif path == "/slow-head":
            slowly(connection, b"HTTP/1.1 200 OK\r\nX: y\r\n", forever=True)
        elif path == "/slow-body":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            slowly(connection, b"x", forever=True)
        elif path == "/huge-head":
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 400_000 + b"\r\n\r\n")
        elif path == "/bad-chunk":
            connection.sendall(CHUNKED + b"nonsense\r\n")
        elif path == "/nonsense":
            connection.sendall(b"\x00\xff\r\n\r\n")
        elif path == "/short":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
            connection.close()
        elif path == "/hint":
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + page(b"after"))
        elif path == "/until-close":
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nall of it")
            connection.close()
        elif path == "/echo":
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            body = b""
            while len(body) < length:
                data = connection.recv(65536)
                if not data:
                    return
                body += data
            connection.sendall(page(body))
        elif path == "/socket":
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
            while data := connection.recv(65536):
                connection.sendall(data)
                if data == b"ping":
                    connection.close()
                    return
        elif path == "/flood":
            endless(connection)
        else:
            connection.sendall(page(path.encode()))


def get(guard: Guard, path: str, extra: str = ""):
    return ask(guard, f"http://{HOST}{path}", HOST, extra=extra)


def tunnel(guard: Guard, authority: str, data: bytes) -> tuple[int, bytes]:
    """Returns the answer to a CONNECT, and the bytes from the tunnel until it closed."""
    with connect(guard) as connection:
        connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        answer = receive(connection, "CONNECT")
        if answer.status != 200:
            return answer.status, answer.body
        back = b""
        try:
            connection.sendall(data)
            while received := connection.recv(1 << 20):
                back += received
        except ConnectionError:
            pass
        return 200, back
