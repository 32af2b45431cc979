"""The proxy by itself: forwarding, tunnels, limits, orders, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator

import psutil
import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.proxy import ProxyLostError
from rmsweb_jax.errors import UserError
from tests.guard.raw import ask, connect, receive
from tests.guard.servers import answering, page

HOST = "app.test"
LIMITS = GuardConfig(
    allowed=(HOST, "other.test", "gone.test"),
    max_response_mb=1.0,
    max_expanded_mb=8.0,
    max_expansion=50.0,
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
    """A byte at a time, sooner than idle; ends when the other side does."""
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


@pytest.fixture(scope="module")
def app() -> App:
    return App()


@pytest.fixture(scope="module")
def guard(app: App) -> Iterator[Guard]:
    with answering(app) as port:
        place = f"127.0.0.1:{port}"
        with Guard(LIMITS, {HOST: place, "other.test": place, "gone.test": "127.0.0.1:9"}) as held:
            yield held


def get(guard: Guard, path: str, extra: str = ""):
    return ask(guard, f"http://{HOST}{path}", HOST, extra=extra)


def test_what_is_sent_on_is_what_was_asked_and_no_more(guard, app):
    app.heads.clear()
    extra = (
        "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nConnection: X-Own, keep-alive\r\n"
        "X-Own: 1\r\nX-Kept: 2\r\nUpgrade: h2c\r\nAccept-Encoding: br, zstd, gzip\r\n"
    )
    assert get(guard, "/a?b=%20c", extra).body == b"/a?b=%20c"
    lines = app.heads[0].decode().split("\r\n")
    assert lines == ["GET /a?b=%20c HTTP/1.1", f"Host: {HOST}", "X-Kept: 2", "Accept-Encoding: gzip, deflate"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/gzip", SMALL),
        ("/hint", b"after"),
        ("/until-close", b"all of it"),
        ("/body/0", b""),
    ],
)
def test_answers_come_whole(guard, path, body):
    answer = get(guard, path)
    assert (answer.status, answer.body[10:], answer.complete) == (200, body[10:], True)


def test_a_kept_connection_is_judged_at_each_request(guard, app):
    app.heads.clear()
    with connect(guard) as connection:
        for host, status in ((HOST, 200), ("evil.test", 403), ("other.test", 200), (HOST, 200)):
            connection.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert receive(connection).status == status
    hosts = [head.split(b"Host: ")[1].split()[0].decode() for head in app.heads]
    assert hosts == [HOST, "other.test", HOST]


@pytest.mark.parametrize(
    ("url", "host", "reason"),
    [
        (f"http://{HOST}/", "evil.test", "mismatch"),
        (f"http://{HOST}/", f"{HOST}:81", "mismatch"),
        (f"http://{HOST}/", f"user@{HOST}", "mismatch"),
        ("http://evil.test/", HOST, "not_listed"),
        (f"https://{HOST}/", HOST, "scheme"),
        ("/", HOST, "not_a_url"),
        ("ftp://app.test/", HOST, "scheme"),
    ],
)
def test_refusals_name_their_reason(guard, url, host, reason):
    guard.incidents()
    answer = ask(guard, url, host)
    assert answer.status == 403
    assert answer.body.startswith(f"refused by the collector's guard: {reason}: ".encode())
    (incident,) = guard.incidents()
    assert incident.kind == "refused" and f"[{reason}]" in incident.detail
    assert guard.incidents() == ()


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/body/2000000", 403, "response_size"),
        ("/endless", 200, "response_size"),
        ("/bomb", 200, "expansion"),
        ("/double-bomb", 200, "expansion"),
        ("/ratio-bomb", 200, "expansion"),
        ("/brotli", 403, "expansion"),
    ],
)
def test_limits_cut_a_response_off(guard, path, status, reason):
    guard.incidents()
    answer = get(guard, path)
    assert answer.status == status
    # Begun already, it must not look whole.
    assert answer.complete == (status == 403)
    assert len(answer.body) < 1_100_000
    assert [f"[{reason}]" in incident.detail for incident in guard.incidents()] == [True]


@pytest.mark.parametrize(
    ("limit", "path", "status", "reason"),
    [
        ("idle_seconds", "/silent", 403, "idle"),
        ("total_seconds", "/slow-head", 403, "total_time"),
        ("total_seconds", "/slow-body", 200, "total_time"),
    ],
)
def test_a_server_that_takes_its_time_is_cut_off(app, limit, path, status, reason):
    config = dataclasses.replace(LIMITS, **{limit: 0.2})
    with answering(app) as port, Guard(config, {HOST: f"127.0.0.1:{port}"}) as guard:
        answer = get(guard, path)
        assert (answer.status, answer.complete) == (status, status == 403)
        assert [f"[{reason}]" in incident.detail for incident in guard.incidents()] == [True]
        if limit == "idle_seconds":
            # Opened for what might be needed, which is no incident.
            assert tunnel(guard, "app.test:80", b"") == (200, b"")
            assert guard.incidents() == ()


@pytest.mark.parametrize("path", ["/huge-head", "/nonsense"])
def test_an_answer_that_is_none_is_a_bad_gateway(guard, path):
    assert get(guard, path).status == 502


@pytest.mark.parametrize("path", ["/bad-chunk", "/short"])
def test_an_answer_that_breaks_off_does_so_for_the_browser(guard, path):
    assert not get(guard, path).complete


def test_a_host_that_is_not_there_is_a_bad_gateway(guard):
    answer = ask(guard, "http://gone.test/", "gone.test")
    assert answer.status == 502 and b"gone.test cannot be reached" in answer.body


@pytest.mark.parametrize("size", [0, 400_000, 600_000])
def test_uploads(guard, size):
    body = b"u" * size
    with connect(guard) as connection:
        head = f"POST http://{HOST}/echo HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = receive(connection)
    if size > 500_000:
        assert answer.status == 403 and b"upload_size" in answer.body
    else:
        assert answer.body == body


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET http://app.test/none HTTP/1.1\r\n\r\n",
        b"GET http://app.test/none HTTP/1.1\r\nHost: app.test\r\nHost: evil.test\r\n\r\n",
        b"GET http://app.test/none HTTP/1.1\r\nHost: app.test\r\n"
        b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://app.test/none HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"G" * 300_000,
    ],
)
def test_requests_that_are_none_are_not_sent_on(guard, app, data):
    with connect(guard) as connection:
        # The proxy may hang up before it has read everything.
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        assert receive(connection).status in (0, 400, 501)
    # What another test has asked for may only arrive now.
    assert not any("/none" in str(head) for head in app.heads)


def test_a_request_with_two_lengths_is_sent_on_with_one(guard, app):
    app.heads.clear()
    with connect(guard) as connection:
        connection.sendall(
            b"POST http://app.test/x HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        receive(connection)
    assert b"Content-Length" not in app.heads[0]


def tunnel(guard: Guard, authority: str, data: bytes) -> tuple[int, bytes]:
    """The answer to a CONNECT, and what came back through the tunnel until it ended."""
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


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


HANDSHAKE = b"GET /socket HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


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


def test_another_episode_ends_what_it_does_not_allow(app):
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


def test_refusals_are_told_within_bounds(guard):
    guard.incidents()
    with connect(guard) as connection:
        for number in range(250):
            for _ in range(1 + (number == 0)):
                host = f"n{number}.test"
                connection.sendall(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert receive(connection).status == 403
    incidents = guard.incidents()
    assert len(incidents) == 201
    assert incidents[0].detail.endswith("(2 times)") and incidents[-1].detail == "50 more requests"


def test_secrets_in_refused_addresses_are_hidden(app):
    with Guard(GuardConfig(), secrets={"key": "hunter22"}) as guard:
        ask(guard, "http://evil.test/?hunter22&aHVudGVyMjI=", "evil.test")
        (incident,) = guard.incidents()
        assert "<secret>key</secret>&<secret>key</secret>" in incident.detail
        assert "hunter22" not in incident.detail


def test_its_death_is_noticed(app):
    guard = Guard(GuardConfig())
    with guard:
        assert guard.alive
        os.kill(guard.process_id, signal.SIGKILL)
        psutil.Process(guard.process_id).wait(10)
        assert not guard.alive
        with pytest.raises(ProxyLostError):
            guard.admit(["a.test"])
        with pytest.raises(ProxyLostError):
            guard.incidents()
    assert not guard.alive


def test_it_dies_with_whoever_started_it():
    script = (
        "import os, sys\n"
        "from collection.browser.guard.config import GuardConfig\n"
        "from collection.browser.guard.guard import Guard\n"
        "guard = Guard(GuardConfig())\n"
        "guard.start()\n"
        "print(guard.process_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout is not None
        proxy = psutil.Process(int(process.stdout.readline()))
        process.kill()
    deadline = time.monotonic() + 10
    while proxy.is_running() and proxy.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not proxy.is_running() or proxy.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("place", ["app.test:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:0", ":80"])
def test_hosts_lead_to_addresses(place):
    with pytest.raises(UserError, match="write an address and a port"):
        Guard(GuardConfig(), {"a.test": place})


@pytest.mark.parametrize("name", ["max_response_mb", "max_expansion", "idle_seconds"])
def test_limits_are_positive(name):
    with pytest.raises(UserError, match=f"guard.{name} is 0"):
        GuardConfig(**{name: 0})
