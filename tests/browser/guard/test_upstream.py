"""Names are resolved once, by the proxy, and all their addresses are judged."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.policy import RequestTarget, UrlPolicy
from collection.browser.guard.refusals import RequestRefusedError, UpstreamUnreachableError
from collection.browser.guard.tunnel import open_tunnel
from collection.browser.guard.upstream import Connector, ProxyState

NAME = RequestTarget("http", "name.test", 80)


def connect_to(monkeypatch, policy, addresses, target=NAME):
    """Opens a target whose name resolves to these addresses; returns its address, connections and lookups."""
    lookups, connected = [], []

    async def look_up(self, host, port, **_):
        lookups.append(host)
        kinds = {4: socket.AF_INET, 6: socket.AF_INET6}
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(kinds[6 if ":" in text else 4], 1, 6, "", (text, port)) for text in addresses]

    async def connect(host, port, **_):
        connected.append((host, port))
        if host.endswith(".99"):
            raise ConnectionRefusedError(111, "Connection refused")
        return None, None

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", look_up)
    monkeypatch.setattr(asyncio, "open_connection", connect)
    try:
        upstream = asyncio.run(Connector({"mapped.test": "127.0.0.1:8000"}, 5.0).open(policy, target))
        return upstream.address, connected, lookups
    finally:
        monkeypatch.undo()


def test_it_connects_to_the_address_that_was_judged(monkeypatch):
    address, connected, lookups = connect_to(
        monkeypatch, UrlPolicy(["*"]), ["93.184.216.99", "93.184.216.34"]
    )
    assert str(address) == "93.184.216.34"
    assert connected == [("93.184.216.99", 80), ("93.184.216.34", 80)]
    assert lookups == ["name.test"]


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
def test_one_bad_address_is_enough(monkeypatch, bad, reason, first):
    addresses = [bad, "93.184.216.34"] if first else ["93.184.216.34", bad]
    with pytest.raises(RequestRefusedError) as error:
        connect_to(monkeypatch, UrlPolicy(["*"]), addresses)
    assert error.value.reason == reason


def test_unlisted_names_are_not_resolved(monkeypatch):
    looked_up = []
    monkeypatch.setattr(
        asyncio.base_events.BaseEventLoop, "getaddrinfo", lambda *args: looked_up.append(args)
    )
    with pytest.raises(RequestRefusedError, match="not_listed"):
        asyncio.run(Connector({}, 5.0).open(UrlPolicy(["other.test"]), NAME))
    assert looked_up == []


def test_an_unknown_name_is_unreachable(monkeypatch):
    with pytest.raises(UpstreamUnreachableError, match=r"name\.test is not found"):
        connect_to(monkeypatch, UrlPolicy(["*"]), [])


def test_local_names_are_loopback_without_a_lookup(monkeypatch):
    target = RequestTarget("http", "app.localhost", 80)
    with pytest.raises(RequestRefusedError, match="private"):
        connect_to(monkeypatch, UrlPolicy(["*"]), ["93.184.216.34"], target)


def test_where_the_operator_sends_a_name_may_be_private_but_not_our_own(monkeypatch):
    target = RequestTarget("http", "mapped.test", 80)
    address, connected, lookups = connect_to(monkeypatch, UrlPolicy(["mapped.test"]), [], target)
    assert (address, connected, lookups) == (None, [("127.0.0.1", 8000)], [])
    with pytest.raises(RequestRefusedError, match="own_port"):
        connect_to(monkeypatch, UrlPolicy(["mapped.test"], own_ports=lambda: {8000}), [], target)
    with pytest.raises(RequestRefusedError, match="not_listed"):
        connect_to(monkeypatch, UrlPolicy([]), [], target)


@pytest.mark.parametrize("tunnel", [True, False])
def test_a_connection_that_is_opened_while_the_policy_changes_is_not_used(tunnel: bool) -> None:
    target = RequestTarget("http", "app.test", 80)
    allowed = UrlPolicy(private=["app.test:*"], allowed=[])

    async def change_policy(port: int) -> None:
        connector = Connector({"app.test": f"127.0.0.1:{port}"}, 10.0)
        state = ProxyState(GuardConfig(), connector, allowed, allowed)
        opening = open_tunnel(state, "app.test:80") if tunnel else state.connect(target)
        task = asyncio.ensure_future(opening)
        await asyncio.sleep(0)  # It has judged the target, and connects.
        state.policy = UrlPolicy(())
        with pytest.raises(RequestRefusedError, match="not_listed"):
            await task

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(change_policy(server.getsockname()[1]))
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
