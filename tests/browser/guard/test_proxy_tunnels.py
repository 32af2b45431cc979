"""Tunnels through the proxy: allowed uses, limits, and a change of the policy."""

from __future__ import annotations

import socket

import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from rmsweb_jax.errors import UserError
from tests.browser.guard.app import HOST, get, tunnel
from tests.browser.guard.raw import connect, receive
from tests.browser.guard.servers import answering

HANDSHAKE = b"GET /socket HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("authority", "status"),
    [
        ("app.test:443", 200),
        ("app.test:80", 200),
        ("app.test:22", 403),
        ("app.test:8443", 403),
        ("evil.test:443", 403),
        ("app.test", 403),
        ("app.test:0x1bb", 403),
        ("evil.test\\@app.test:443", 403),
        ("user@app.test:443", 403),
        ("app.test:443/evil", 403),
    ],
)
def test_tunnels_are_for_listed_ports(guard, authority, status):
    assert tunnel(guard, authority, b"\x16\x03\x01\r\n\r\n")[0] == status


def test_a_web_socket_goes_through(guard):
    status, back = tunnel(guard, "app.test:80", HANDSHAKE + b"ping")
    assert status == 200 and back.startswith(b"HTTP/1.1 101") and back.endswith(b"ping")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01hello", "not_listed"),
        (b"GET /socket HTTP/1.1\r\nHost: app.test\r\n\r\n", "not_http"),
        (HANDSHAKE.replace(b"app.test", b"evil.test"), "mismatch"),
        (b"EHLO x\r\n\r\n", "not_http"),
        (HANDSHAKE.replace(b"/socket", b"/flood"), "response_size"),
        (HANDSHAKE + bytes(600_000), "upload_size"),
    ],
)
def test_other_uses_of_a_tunnel_end_it(guard, data, reason):
    guard.incidents()
    assert len(tunnel(guard, "app.test:80", data)[1]) <= 1_100_000
    assert [f"[{reason}]" in incident.detail for incident in guard.incidents()] == [True]


def test_a_new_episode_closes_connections_it_does_not_allow(app):
    with answering(app) as port, Guard(GuardConfig(), {HOST: f"127.0.0.1:{port}"}) as guard:
        assert get(guard, "/").status == 403
        guard.admit([HOST])
        with connect(guard) as kept, connect(guard) as tunnelled:
            kept.sendall(f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert receive(kept).status == 200
            tunnelled.sendall(b"CONNECT app.test:80 HTTP/1.1\r\nHost: app.test:80\r\n\r\n")
            assert receive(tunnelled, "CONNECT").status == 200
            tunnelled.sendall(HANDSHAKE)
            assert tunnelled.recv(1000).startswith(b"HTTP/1.1 101")
            guard.admit(["other.test"])
            assert ended(tunnelled)
            kept.sendall(f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert receive(kept).status == 403
        with pytest.raises(UserError, match="names no hosts"):
            guard.admit(["a b"])
        assert guard.check("http://other.test/").allowed
