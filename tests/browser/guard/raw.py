"""A proxy client without a browser, byte by byte."""

from __future__ import annotations

import dataclasses
import socket

import h11

from collection.browser.guard.guard import Guard


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response; not `complete` if it was aborted."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True


def connect(guard: Guard) -> socket.socket:
    host, port = guard.proxy_address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket, method: str = "GET") -> Answer:
    """Reads the next response."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("Host", "any")]))
    if method != "CONNECT":
        http.send(h11.EndOfMessage())
    head, body, complete = None, b"", True
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            try:
                data = connection.recv(65536)
                http.receive_data(data)
                event = http.next_event() if not data else None
            except (ConnectionError, h11.RemoteProtocolError):
                event = h11.ConnectionClosed()
        if isinstance(event, h11.Response):
            head = event
            if method == "CONNECT" and head.status_code == 200:
                break
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            break
        elif isinstance(event, h11.ConnectionClosed):
            complete = False
            break
    if head is None:
        return Answer(0, {}, body, complete=False)
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Answer(head.status_code, headers, body, complete)


def ask(guard: Guard, url: str, host: str, method: str = "GET", extra: str = "") -> Answer:
    with connect(guard) as connection:
        connection.sendall(f"{method} {url} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n".encode())
        return receive(connection, method)
