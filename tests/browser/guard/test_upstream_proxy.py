"""Upstream proxies: connections go through them with credentials, and one that is dead is one line."""

import base64
import contextlib
import socket
import threading
import time

import pytest

from collection.browser.config import BrowserConfig
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.session import Browser
from collection.environments.base import SiteUnreachableError
from collection.environments.web import WebEnvironment
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Task
from tests.browser.guard.raw import GRANTED, REFUSED, UNREACHABLE, get
from tests.browser.guard.servers import answering, page
from tests.loopback import listening, tls_context

USER, PASSWORD = "agent-7", "tulip-4411-gate"


@pytest.fixture(scope="module")
def server():
    def answer(connection, head):
        connection.sendall(page(b"lamps"))
        connection.close()

    with answering(answer) as port:
        yield f"127.0.0.1:{port}"


def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def relay(client, address):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as there:
        back = threading.Thread(target=pump, args=(there, client), daemon=True)
        back.start()
        pump(client, there)
        back.join()


def http_proxy(seen, client):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    seen.append(head.decode())
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    if token not in seen[-1]:
        client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        return
    address = seen[-1].split()[1]
    if address.endswith(":9"):
        client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        return
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    time.sleep(0.05)  # The rest of the answer comes apart.
    client.sendall(b"Via: me\r\n\r\n")
    relay(client, address)


def socks_proxy(seen, client):
    read = client.makefile("rb").read
    read(read(2)[1])
    client.sendall(b"\5\2")
    read(1)
    user, password = read(read(1)[0]), read(read(1)[0])
    if (user, password) != (USER.encode(), PASSWORD.encode()):
        client.sendall(b"\1\1")
        return
    client.sendall(b"\1\0")
    command = read(10)
    address = f"{socket.inet_ntoa(command[4:8])}:{int.from_bytes(command[8:])}"
    seen.append(f"CONNECT {address}")
    refused = address.endswith(":9")
    client.sendall(b"\5" + (b"\5" if refused else b"\0") + b"\0\1" + bytes(6))
    if not refused:
        relay(client, address)


@contextlib.contextmanager
def running(serve, tls=None):
    seen: list[str] = []

    def handle(client):
        with tls.wrap_socket(client, server_side=True) if tls else client as connection:
            serve(seen, connection)

    with listening(handle) as port:
        yield f"127.0.0.1:{port}", seen


@pytest.fixture(params=["http", "https", "socks5"])
def proxy(request, tmp_path, monkeypatch):
    monkeypatch.setenv("UPSTREAM", f"{USER}:{PASSWORD}")
    tls = None
    if request.param == "https":
        tls = tls_context(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    with running(socks_proxy if request.param == "socks5" else http_proxy, tls) as (address, seen):
        yield f"{request.param}://{address}", seen


def settings(server, *proxies):
    sources = (f"http://{server}", "http://127.0.0.1:9")
    return GuardConfig(private=sources, upstream=proxies, upstream_auth_env="UPSTREAM")


def test_connections_go_through_it(server, proxy, monkeypatch):
    url, seen = proxy
    config, port = settings(server, url), int(server.rpartition(":")[2])
    with Guard(config, {"mapped.test": server}) as guard:
        assert get(guard, "127.0.0.1", port=port) == (GRANTED, page(b"lamps"), True)
        assert [line.splitlines()[0].split()[1] for line in seen] == [server]
        # It works and does not reach the server, which is not its own problem.
        assert get(guard, "127.0.0.1", port=9)[0] == UNREACHABLE
        assert "does not reach 127.0.0.1:9" in guard.record.take_problems()["127.0.0.1:9"]
        # What is refused does not get there.
        count = len(seen)
        assert get(guard, "10.0.0.1")[0] == REFUSED
        assert len(seen) == count
        assert [one.kind for one in guard.incidents()] == ["refused"]
    monkeypatch.setenv("UPSTREAM", f"{USER}:wrong-{PASSWORD}")
    with Guard(config) as guard:
        assert get(guard, "127.0.0.1", port=port)[0] == UNREACHABLE
        (problem,) = guard.incidents()
        assert problem.kind == "proxy" and "refuses the user name or password" in problem.detail
        assert PASSWORD not in problem.detail + repr(guard.config)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_one_that_is_dead_is_one_recorded_outcome(scheme, tmp_path, monkeypatch):
    monkeypatch.setenv("UPSTREAM", f"{USER}:{PASSWORD}")
    sources = ("http://127.0.0.1:8", "https://127.0.0.1:8")
    config = settings("", f"{scheme}://127.0.0.1:9").model_copy(update={"private": sources})
    with Guard(config) as guard, Browser(BrowserConfig(quiet_ms=20), guard) as browser:
        environment = WebEnvironment(browser, ImageStore(tmp_path), tmp_path / "files")
        for website in sources:
            with pytest.raises(SiteUnreachableError) as error:
                environment.reset(Task(task_id="a", website=website, objective="Look."))
            assert f"{website}: the upstream proxy 127.0.0.1:9 cannot be used: " in str(error.value)
            assert "\n" not in str(error.value) and error.value.incidents[0].kind == "proxy"


@pytest.mark.parametrize(
    "url", ["ftp://host:21", "host:3128", "http://", "socks5://host:port", f"http://{USER}:{PASSWORD}@host:1"]
)
def test_what_is_no_proxy_is_one_line(url):
    with pytest.raises(UserError, match=r"guard\.upstream") as error:
        GuardConfig(upstream=(url,))
    assert PASSWORD not in str(error.value)
