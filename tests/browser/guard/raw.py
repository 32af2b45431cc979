"""A client of the egress without a browser, byte by byte."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from collection.browser.guard.guard import Guard

GRANTED, REFUSED, UNREACHABLE = 0, 2, 4


@contextlib.contextmanager
def connect(guard: Guard, host: str, port: int) -> Iterator[tuple[int, socket.socket]]:
    """Asks for a connection to a host; yields the answer's status, and the connection."""
    address, own = guard.proxy_address.split(":")
    with socket.create_connection((address, int(own)), timeout=60) as connection:
        name = host.encode()
        request = b"\5\1\0" + b"\5\1\0\3" + bytes([len(name)]) + name + port.to_bytes(2)
        connection.sendall(request)
        answer = _read(connection, 2 + 10)
        assert answer[:3] == b"\5\0\5"
        yield answer[3], connection


def send(guard: Guard, host: str, port: int, data: bytes) -> tuple[int, bytes, bool]:
    """Sends bytes to a host.

    Returns:
      The status of the connection, what came back until it closed, and whether it closed orderly.
    """
    with connect(guard, host, port) as (status, connection):
        if status != GRANTED:
            return status, b"", True
        back = b""
        try:
            connection.sendall(data)
            while received := connection.recv(1 << 20):
                back += received
        except ConnectionError:
            return status, back, False
        return status, back, True


def get(guard: Guard, host: str, path: str = "/", port: int = 80) -> tuple[int, bytes, bool]:
    """Requests a page of a server that closes the connection after its answer."""
    return send(guard, host, port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data
