"""The egress proxy: a process that all traffic of a browser has to pass.

The default is to deny. The proxy forwards plain HTTP and opens tunnels (CONNECT) to hosts that a `UrlPolicy`
allows, and judges every request of a kept connection on its own. It resolves names itself, judges every
address of a name and connects to one of them, so that DNS rebinding gains nothing.

Limits: the proxy does not decrypt TLS. For a secure page it judges the host and port, not the path, and it
counts encrypted bytes; the limits on unpacked size apply to plain HTTP only.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.documents import Move
from collection.browser.guard.refusals import Refusal
from collection.browser.guard.upstream import Connector
from rmsweb_jax.processes import die_with_parent

# The proxy answers commands at once; a longer wait means that it hangs.
_ANSWER_S = 20.0


class ProxyLostError(Exception):
    """The proxy process is gone: its browser reaches nothing any more, and both have to be replaced."""


@dataclasses.dataclass(frozen=True)
class ProxyReport:
    """Activity of the proxy.

    Attributes:
      refusals: refusals since the last report, at most 200 places and reasons.
      unlisted: number of refused requests beyond those 200.
      requests, refused: number of requests and tunnels since the start, and of those refused.
      received, sent: bytes of bodies and tunnels since the start.
      proxy_problem: the last problem of the upstream proxy since the last report; empty for none.
      disallowed: documents that were opened though robots.txt disallows them, since the last report.
    """

    refusals: tuple[Refusal, ...]
    unlisted: int
    requests: int
    refused: int
    received: int
    sent: int
    proxy_problem: str
    disallowed: Sequence[str]


@dataclasses.dataclass(frozen=True)
class SourceLists:
    """Well-formed sources of a policy.

    Attributes:
      allowed, private: of documents and all else.
      subresources: in addition, of what is not a document of a window; used once the proxy watches documents.
    """

    allowed: tuple[str, ...]
    private: tuple[str, ...]
    subresources: tuple[str, ...] = ()


# The browser is on the same machine.
HOST = "127.0.0.1"


class EgressProxy:
    """A proxy process. It ends with the process and, like a browser's driver, the thread that started it.

    Args:
      hosts: see `Connector`.

    Raises:
      UserError: an entry of `hosts` is malformed.
      ProxyLostError: from all methods except `close`, once the process is gone.
    """

    def __init__(self, config: GuardConfig, hosts: Mapping[str, str]) -> None:
        Connector(hosts, config.connect_seconds)  # Reports malformed entries here, not in the proxy process.
        proxy = config.upstream_proxy()
        self._start_command = {
            "config": dict(config),
            "hosts": dict(hosts),
            "proxy": dataclasses.asdict(proxy) if proxy else None,
        }
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.port = 0

    def start(self, sources: SourceLists, own_ports: Collection[int]) -> None:
        """Starts the process with a first policy, as in `admit`.

        Returns at once: the listening socket exists already, so early connections wait in its backlog.
        """
        listener = socket.create_server((HOST, 0), backlog=128)
        ours, theirs = socket.socketpair()
        with listener, theirs:
            self.port = listener.getsockname()[1]
            passed = (listener.fileno(), theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "collection.browser.guard.server", *map(str, passed)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        ours.settimeout(_ANSWER_S)
        self._control = ours
        self._answers = ours.makefile("rb")
        self._send({**self._start_command, "policy": self._policy_command(sources, own_ports)})

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._control is not None:
            self._answers.close()
            self._control.close()
            self._control = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Process id; 0 if not started."""
        return 0 if self._process is None else self._process.pid

    def admit(self, sources: SourceLists, own_ports: Collection[int]) -> None:
        """Sets the policy, and closes connections that it does not allow.

        Args:
          own_ports: ports of the driver and the debugger; the proxy's own is added.
        """
        self._ask(self._policy_command(sources, own_ports))

    def watch(self, url: str) -> None:
        """Judges the documents of the browser whose DevTools are at a WebSocket URL, and ends with it."""
        self._ask({"name": "watch", "url": url})

    def expect(self) -> None:
        """Takes the next document for a task's start page, and follows its redirects until `arrived`."""
        self._ask({"name": "expect"})

    def arrived(self) -> tuple[Move, ...]:
        """Returns the sites to which the start page has led."""
        return tuple(Move(**move) for move in self._ask({"name": "arrived"})["moves"])

    def serve_empty(self, url: str) -> None:
        """Answers the next request for a document at `url` with an empty page; it does not leave."""
        self._ask({"name": "empty", "url": url})

    def refused_documents(self) -> list[tuple[str, str]]:
        """Returns address and reason of the documents refused since the last call."""
        return [(url, detail) for url, detail in self._ask({"name": "refused"})["documents"]]

    def report(self) -> ProxyReport:
        """Returns the activity so far; each refusal is in one report only."""
        answer = self._ask({"name": "report"})
        refusals = tuple(Refusal(**entry) for entry in answer.pop("refusals"))
        return ProxyReport(refusals=refusals, **answer)

    def _policy_command(self, sources: SourceLists, own_ports: Collection[int]) -> dict[str, Any]:
        ports = sorted({*own_ports, self.port})
        return {"name": "policy", "own_ports": ports, **dataclasses.asdict(sources)}

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._send(command)
            try:
                line = self._answers.readline()
            except (OSError, ValueError) as error:
                raise ProxyLostError(f"the egress proxy does not answer ({type(error).__name__})") from error
        if not line.endswith(b"\n"):
            raise ProxyLostError("the egress proxy is gone")
        return json.loads(line)

    def _send(self, command: dict[str, Any]) -> None:
        if self._control is None:
            raise ProxyLostError("the egress proxy does not run")
        try:
            self._control.sendall(json.dumps(command).encode() + b"\n")
        except OSError as error:
            raise ProxyLostError(f"the egress proxy is gone ({type(error).__name__})") from error
