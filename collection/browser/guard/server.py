"""The proxy's process: `python -m collection.browser.guard.server LISTENER CONTROL`, by `EgressProxy` alone.

Both arguments are inherited sockets. Orders come through CONTROL as lines of JSON and are answered one by
one; its end is the end of whoever gave them, and of this process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import sys
from typing import Any

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.connection import Connection
from collection.browser.guard.dial import Dialer
from collection.browser.guard.policy import UrlPolicy
from collection.browser.guard.shared import Shared

_LONGEST_ORDER = 1 << 24


class _Server:
    """All connections under one policy."""

    def __init__(self, config: GuardConfig, hosts: dict[str, str]) -> None:
        self._own_ports: frozenset[int] = frozenset()
        self._shared = Shared(config, Dialer(hosts, config.connect_seconds), UrlPolicy(()))
        self._connections: set[Connection] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._shared, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "allowed" in order:
            self._own_ports = frozenset(order["own_ports"])
            self._shared.policy = UrlPolicy(order["allowed"], order["private"], lambda: self._own_ports)
            for connection in list(self._connections):
                connection.judge_again()
            return {}
        ledger = self._shared.ledger
        refusals, untold = ledger.take()
        return {
            "refusals": [dataclasses.asdict(refusal) for refusal in refusals],
            "untold": untold,
            "requests": ledger.requests,
            "received": ledger.received,
            "sent": ledger.sent,
            "refused": ledger.refused,
        }


async def _serve(listener: socket.socket, control: socket.socket) -> None:
    orders, answers = await asyncio.open_connection(sock=control, limit=_LONGEST_ORDER)
    start = json.loads(await orders.readline())
    server = _Server(GuardConfig(**start["config"]), start["hosts"])
    server.obey(start)
    await asyncio.start_server(server.accept, sock=listener, backlog=128)
    while line := await orders.readline():
        answers.write(json.dumps(server.obey(json.loads(line))).encode() + b"\n")
        await answers.drain()


def main() -> None:
    listener, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    try:
        asyncio.run(_serve(listener, control))
    except ConnectionError:
        pass
    finally:
        # Without waiting for connections, or for look-ups in threads.
        os._exit(0)


if __name__ == "__main__":
    main()
