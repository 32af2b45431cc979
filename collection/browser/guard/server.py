"""The process of the egress proxy: `python -m collection.browser.guard.server LISTENER CONTROL`.

Only `EgressProxy` starts it. Both arguments are inherited sockets. Commands arrive on CONTROL as lines of
JSON and are answered one by one. The process exits when CONTROL is closed, that is, when its parent is gone.
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
from collection.browser.guard.documents import DocumentGate
from collection.browser.guard.http_proxy import ProxyConnection
from collection.browser.guard.policy import UrlPolicy, secure_sources
from collection.browser.guard.upstream import Connector, ProxyState
from collection.browser.guard.upstream_proxy import UpstreamProxy

# A command lists all sources of a task; this is far above any list.
_MAX_COMMAND_BYTES = 1 << 24


class _ProxyServer:
    """The connections of one browser, under one policy."""

    def __init__(self, config: GuardConfig, hosts: dict[str, str], proxy: UpstreamProxy | None) -> None:
        self._policy: dict[str, Any] = {}
        connector, nothing = Connector(hosts, config.connect_seconds, proxy), UrlPolicy(())
        self._state = ProxyState(config, connector, nothing, nothing)
        self._gate = DocumentGate(self._state, self._admit)
        self._gated = False
        self._connections: set[ProxyConnection] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ProxyConnection(self._state, reader, writer)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def execute(self, name: str, **values: Any) -> dict[str, Any]:
        """Carries out a command and returns its answer."""
        match name:
            case "policy":
                self._policy = values
                self._apply_policy()
            case "watch":
                await self._gate.open(values["url"])
                self._gated = True
                self._apply_policy()
            case "expect":
                self._gate.expect()
            case "arrived":
                return {"moves": [dataclasses.asdict(move) for move in self._gate.arrived()]}
            case "empty":
                self._gate.serve_empty(values["url"])
            case "refused":
                return {"documents": self._gate.take_refused()}
            case "report":
                return self._report()
        return {}

    def _admit(self, url: str) -> None:
        self._policy["allowed"] += secure_sources(url)
        self._apply_policy()

    def _apply_policy(self) -> None:
        allowed, private = self._policy["allowed"], self._policy["private"]
        ports = frozenset(self._policy["own_ports"])
        # Without the gate a document could pass for a part of a page.
        parts = self._policy["subresources"] if self._gated else ()
        self._state.documents = UrlPolicy(allowed, private, lambda: ports)
        self._state.policy = UrlPolicy((*allowed, *parts), private, lambda: ports)
        for connection in list(self._connections):
            connection.enforce_policy()

    def _report(self) -> dict[str, Any]:
        ledger = self._state.ledger
        refusals, unlisted = ledger.take()
        problem, ledger.proxy_problem = ledger.proxy_problem, ""
        disallowed, ledger.disallowed = ledger.disallowed, []
        return {
            "proxy_problem": problem,
            "disallowed": disallowed,
            "refusals": [dataclasses.asdict(refusal) for refusal in refusals],
            "unlisted": unlisted,
            "requests": ledger.requests,
            "received": ledger.received,
            "sent": ledger.sent,
            "refused": ledger.refused,
        }


async def _serve(listener: socket.socket, control: socket.socket) -> None:
    commands, answers = await asyncio.open_connection(sock=control, limit=_MAX_COMMAND_BYTES)
    start = json.loads(await commands.readline())
    proxy = UpstreamProxy(**start["proxy"]) if start["proxy"] else None
    server = _ProxyServer(GuardConfig.model_validate_json(json.dumps(start["config"])), start["hosts"], proxy)
    await server.execute(**start["policy"])
    await asyncio.start_server(server.accept, sock=listener, backlog=128)
    while line := await commands.readline():
        answers.write(json.dumps(await server.execute(**json.loads(line))).encode() + b"\n")
        await answers.drain()


def main() -> None:
    listener, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    try:
        asyncio.run(_serve(listener, control))
    except ConnectionError:
        pass
    finally:
        # A normal exit would wait for open connections and for name look-ups in threads.
        os._exit(0)


if __name__ == "__main__":
    main()
