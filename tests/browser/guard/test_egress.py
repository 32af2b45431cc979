"""The egress alone: what it lets through, its refusals and limits, and its record."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from collection.browser.config import BrowserLostError
from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from rmsweb_jax.errors import UserError
from tests.browser.guard.raw import GRANTED, REFUSED, UNREACHABLE, connect, get, send
from tests.browser.guard.servers import answering, page

HOST = "app.test"
LIMITS = GuardConfig(allowed=(HOST, "other.test", "gone.test"), max_upload_mb=0.5, max_download_mb=1.0)
SOCKET = b"GET /socket HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class App:
    """A server with a path for each behaviour."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        self.heads.append(head)
        if len(head.split()) < 3:
            connection.close()  # TLS.
            return
        path = head.split()[1].decode()
        if path.startswith("/body/"):
            connection.sendall(page(b"x" * int(path.removeprefix("/body/"))))
        elif path == "/endless":
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while True:
                connection.sendall(bytes(0x8000))
        elif path == "/silent":
            connection.recv(1)
        elif path == "/slow":
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                while True:  # Faster than the limit of an idle connection.
                    connection.sendall(b"x")
                    with contextlib.suppress(TimeoutError):
                        if not connection.recv(1):
                            return
        elif path == "/reset":
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhalf")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            return
        elif path == "/socket":
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
            while data := connection.recv(65536):
                connection.sendall(data)
                if data == b"ping":
                    break
        else:
            connection.sendall(page(path.encode()))
        connection.close()


@pytest.fixture(scope="module")
def app():
    return App()


@pytest.fixture(scope="module")
def guard(app):
    with answering(app) as port:
        place = f"127.0.0.1:{port}"
        with Guard(LIMITS, {HOST: place, "other.test": place, "gone.test": "127.0.0.1:9"}) as held:
            yield held


def reasons(guard):
    return [one.detail.partition("[")[2].partition("]")[0] for one in guard.incidents()]


def test_bytes_go_both_ways_unchanged(guard, app):
    app.heads.clear()
    request = b"GET /a?b=%20c HTTP/1.1\r\nHost: elsewhere\r\nX: 1"
    assert send(guard, HOST, 80, request + b"\r\n\r\n") == (GRANTED, page(b"/a?b=%20c"), True)
    assert app.heads == [request]
    status, back, orderly = send(guard, HOST, 80, SOCKET + b"ping")
    assert (status, orderly) == (GRANTED, True)
    assert back.startswith(b"HTTP/1.1 101") and back.endswith(b"ping")


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("evil.test", 443, "not_listed"),
        (HOST, 22, "not_listed"),
        (HOST, 8443, "not_listed"),
        ("evil.test\\@app.test", 443, "not_a_url"),
        ("user@app.test", 443, "not_a_url"),
        ("app.test/evil", 443, "not_a_url"),
        ("app.test:80", 80, "not_a_url"),
        ("[app.test]", 80, "not_a_url"),
        ("a b", 80, "not_a_url"),
        ("\xff\xfe", 80, "not_listed"),
        ("", 80, "not_a_url"),
    ],
)
def test_refusals_name_their_reason(guard, app, host, port, reason):
    app.heads.clear()
    guard.incidents()
    assert get(guard, host, port=port)[0] == REFUSED
    (incident,) = guard.incidents()
    assert incident.kind == "refused" and incident.detail.endswith(f"[{reason}]")
    assert app.heads == [] and guard.incidents() == ()


@pytest.mark.parametrize("spelling", ["APP.test", "ap%70.test", "app.test.", "\uff41pp.test"])
def test_names_are_read_as_browsers_do(guard, spelling):
    assert get(guard, spelling)[:2] == (GRANTED, page(b"/"))


@pytest.mark.parametrize(
    ("host", "port", "data", "reason"),
    [
        (HOST, 80, b"\x16\x03\x01hello", "not_listed"),
        (HOST, 443, b"GET / HTTP/1.1\r\n\r\n", "not_listed"),
        (HOST, 80, b"\x00\x03\x00\x08!\x12\xa4B" + bytes(12), "not_http"),  # As TURN begins.
        (HOST, 80, b"\r\n\r\n", "not_http"),
    ],
)
def test_other_uses_of_a_connection_end_it(guard, app, host, port, data, reason):
    app.heads.clear()
    guard.incidents()
    assert send(guard, host, port, data) == (GRANTED, b"", False)
    assert reasons(guard) == [reason] and app.heads == []


@pytest.mark.parametrize(
    "data",
    [
        b"\4\1\0\x50\x7f\0\0\1\0",
        b"\5\1\2",
        b"\5\1\0\5\2\0\1\0\0\0\0\0\0",
        b"\5\1\0\5\3\0\1\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_no_other_protocol_or_command_is_understood(guard, data):
    """SOCKS4, a login, listening, datagrams, and HTTP."""
    guard.incidents()
    address, port = guard.proxy_address.split(":")
    with socket.create_connection((address, int(port)), timeout=60) as connection:
        connection.sendall(data)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) in (b"", b"\5\0")
            assert connection.recv(100) == b""
    assert guard.incidents() == ()


def test_limits_cut_off_what_is_too_much(guard):
    guard.incidents()
    status, back, orderly = get(guard, HOST, "/endless")
    # Without a length, only an error shows that it is not whole.
    assert (status, orderly) == (GRANTED, False) and len(back) <= 1_000_000
    assert reasons(guard) == ["response_size"]
    assert not send(guard, HOST, 80, SOCKET + bytes(600_000))[2]
    assert reasons(guard) == ["upload_size"]


def test_time_limits(app):
    with answering(app) as port:
        hosts = {HOST: f"127.0.0.1:{port}"}
        with Guard(LIMITS.model_copy(update={"total_seconds": 0.2}), hosts) as guard:
            assert get(guard, HOST, "/slow")[::2] == (GRANTED, False)
            assert reasons(guard) == ["total_time"]
        with Guard(LIMITS.model_copy(update={"idle_seconds": 0.2}), hosts) as guard:
            assert get(guard, HOST, "/silent") == (GRANTED, b"", False)
            assert send(guard, HOST, 80, b"") == (GRANTED, b"", False)
            assert guard.incidents() == ()


def ended(connection):
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


def test_a_new_episode_ends_connections_it_does_not_allow(app):
    with answering(app) as port, Guard(GuardConfig(), {HOST: f"127.0.0.1:{port}"}) as guard:
        assert get(guard, HOST)[0] == REFUSED
        guard.admit([HOST])
        with connect(guard, HOST, 80) as (status, kept):
            assert status == GRANTED
            kept.sendall(SOCKET)
            assert kept.recv(1000).startswith(b"HTTP/1.1 101")
            guard.admit([HOST, "other.test"])
            kept.sendall(b"more")
            assert kept.recv(1000) == b"more"
            guard.admit([f"https://{HOST}"])  # For another scheme, which it might have been.
            assert ended(kept)
        assert get(guard, HOST)[0] == REFUSED
        with pytest.raises(UserError, match="names no hosts"):
            guard.admit(["a b"])
        assert guard.check(f"https://{HOST}/").allowed


def test_a_new_episode_takes_a_scheme_from_a_connection_that_has_not_begun(app):
    with answering(app) as port, Guard(GuardConfig(), {HOST: f"127.0.0.1:{port}"}) as guard:
        guard.admit([f"{HOST}:8000"])
        with connect(guard, HOST, 8000) as (status, spare):
            assert status == GRANTED
            guard.admit([f"http://{HOST}:8000"])
            app.heads.clear()
            spare.sendall(b"\x16\3\1\r\n\r\n")
            assert ended(spare) and reasons(guard) == ["not_listed"] and app.heads == []


def test_two_hundred_connections_at_once(guard):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(guard, HOST, 80)) for _ in range(200)]
        assert {status for status, _ in held} == {GRANTED}
        for _, connection in held:
            connection.sendall(b"GET /one HTTP/1.1\r\nHost: app.test\r\n\r\n")
        for _, connection in held:
            assert connection.recv(1000) == page(b"/one")


def test_the_record_is_bounded_and_counts(guard):
    guard.incidents()
    for number in (0, *range(250)):
        assert get(guard, f"n{number}.test")[0] == REFUSED
    incidents = guard.incidents()
    assert len(incidents) == 201
    assert incidents[0].detail.endswith("(2 times)") and incidents[-1].detail == "50 more requests"


def test_a_window_and_its_connection_are_one_refusal(guard):
    guard.incidents()
    guard.record.add("refused", "http://evil.test/a?b", "evil.test is not listed", "not_listed")
    get(guard, "evil.test")
    get(guard, "evil.test", port=81)
    assert [one.detail.partition(" ")[0] for one in guard.incidents()] == [
        "http://evil.test/a?b:",
        "evil.test:81:",
    ]


def test_secrets_in_refused_addresses_are_hidden():
    with Guard(GuardConfig(), secrets={"key": "hunter22"}) as guard:
        guard.record.add("refused", "http://evil.test/?hunter22&aHVudGVyMjI=", "no", "not_listed")
        get(guard, "hunter22.evil.test")
        first, second = guard.incidents()
        assert "<secret>key</secret>&<secret>key</secret>" in first.detail
        assert "hunter22" not in first.detail + second.detail


@pytest.mark.parametrize("place", ["app.test:80", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:0", ":80"])
def test_hosts_lead_to_addresses(place):
    with pytest.raises(UserError, match="write an address and a port"):
        Guard(GuardConfig(), {"a.test": place})


class Names:
    """A name server: the addresses of `name.test`, and the names that were looked up."""

    def __init__(self, monkeypatch):
        self.addresses, self.asked = [], []
        self.answered = threading.Event()
        self.answered.set()
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host, port, family=0, type=0, proto=0, flags=0):
        literal = host.replace(".", "").isdecimal() or ":" in host
        if not literal:
            self.asked.append(host)
            assert self.answered.wait(600)
        addresses = [host] if literal else self.addresses
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, port)) for one in addresses
        ]


@pytest.fixture
def names(monkeypatch):
    return Names(monkeypatch)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("10.0.0.1", "private"),
        ("127.0.0.1", "private"),
        ("::1", "private"),
        ("::ffff:192.168.1.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_bad_address_is_enough(names, bad, reason, first):
    names.addresses = [bad, "93.184.216.34"] if first else ["93.184.216.34", bad]
    with Guard(GuardConfig(allowed=("name.test",))) as guard:
        assert get(guard, "name.test")[0] == REFUSED
        assert reasons(guard) == [reason] and names.asked == ["name.test"]


def test_a_name_is_resolved_once_and_its_next_address_is_tried(names, app):
    names.addresses = ["127.0.0.2", "127.0.0.1"]  # Nothing listens at the first.
    with answering(app) as port, Guard(GuardConfig(private=(f"http://name.test:{port}",))) as guard:
        assert get(guard, "name.test", port=port)[:2] == (GRANTED, page(b"/"))
        assert names.asked == ["name.test"]


def test_an_address_that_does_not_answer_leaves_time_for_the_next(names, app):
    names.addresses = ["127.0.0.2", "127.0.0.1"]
    with answering(app) as port, contextlib.ExitStack() as stack:
        # Connections wait at the first: its queue has no more room.
        dead = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(dead.getsockname())
        config = GuardConfig(private=(f"http://name.test:{port}",), connect_seconds=20.0)
        guard = stack.enter_context(Guard(config))
        assert get(guard, "name.test", port=port)[:2] == (GRANTED, page(b"/"))


def test_a_thread_that_waits_for_the_browser_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("collection.browser.guard.egress._CALL_S", 0.2)
    held = threading.Event()
    with Guard(LIMITS) as guard:
        assert guard._egress is not None
        guard._egress.post(held.wait)  # As a command that the browser does not take.
        with pytest.raises(BrowserLostError, match="takes no commands"):
            guard.admit([HOST])
        guard.close()
        held.set()
        guard._egress._thread.join()


def test_names_that_are_not_listed_or_local_are_not_looked_up(names):
    with Guard(GuardConfig(allowed=("other.test", "app.localhost"))) as guard:
        assert get(guard, "name.test")[0] == get(guard, "app.localhost")[0] == REFUSED
        assert reasons(guard) == ["not_listed", "private"] and names.asked == []
        assert get(guard, "other.test")[0] == UNREACHABLE
        assert "other.test is not found" in guard.record.take_problems()["other.test:80"]


def test_a_connection_that_is_opened_while_the_policy_changes_is_not_used(names, app):
    names.addresses = ["127.0.0.1"]
    app.heads.clear()
    with answering(app) as port, Guard(GuardConfig(private=("*:*",), allowed=("*:*",))) as guard:
        names.answered.clear()
        found = []
        asking = threading.Thread(target=lambda: found.append(get(guard, "name.test", port=port)))
        asking.start()
        while not names.asked:
            asking.join(0.01)
        guard.config = GuardConfig()
        guard.admit()
        names.answered.set()
        asking.join()
        assert found == [(REFUSED, b"", True)] and app.heads == []


def test_where_the_operator_sends_a_name_may_be_private_but_not_our_own(guard):
    with Guard(GuardConfig(allowed=("mapped.test",)), {"mapped.test": guard.proxy_address}) as other:
        assert get(other, "mapped.test")[0] == GRANTED
        other.protect(int(guard.proxy_address.rpartition(":")[2]))
        assert get(other, "mapped.test")[0] == REFUSED
        assert reasons(other) == ["own_port"]
