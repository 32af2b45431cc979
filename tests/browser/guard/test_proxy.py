"""The proxy alone: forwarding, refusals and their reports, and its exit."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.proxy import ProxyLostError
from rmsweb_jax.errors import UserError
from tests.browser.guard.app import HOST, SMALL, get
from tests.browser.guard.raw import ask, connect, receive


def test_requests_are_forwarded_without_hop_by_hop_headers(guard, app):
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
    # Requests of another test may arrive only now.
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


def test_the_list_of_refusals_is_bounded(guard):
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


def test_the_proxy_exits_with_its_parent():
    script = (
        "import os, sys\n"
        "from collection.browser.guard.config import GuardConfig\n"
        "from collection.browser.guard.guard import Guard\n"
        "guard = Guard(GuardConfig())\n"
        "guard.start()\n"
        "print(guard.process_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        proxy = psutil.Process(int(process.stdout.readline()))
        process.kill()
    deadline = time.monotonic() + 600
    while proxy.is_running() and proxy.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not proxy.is_running() or proxy.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("place", ["app.test:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:0", ":80"])
def test_hosts_lead_to_addresses(place):
    with pytest.raises(UserError, match="write an address and a port"):
        Guard(GuardConfig(), {"a.test": place})
