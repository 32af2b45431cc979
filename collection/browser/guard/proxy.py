"""The egress proxy: a process through which everything a browser sends has to go.

Default deny. It forwards plain HTTP and opens tunnels (CONNECT) to hosts that a `UrlPolicy` allows, each
request of a kept connection judged anew. It looks names up itself, judges every address they have and
connects to one of those, so a name that resolves to something else a moment later gains nothing.

What it cannot do: TLS is not opened. Of a secure page the host and port are judged, not the path, and the
limits count encrypted bytes; the limits on unpacked size hold for plain HTTP alone.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.dial import Dialer
from collection.browser.guard.ledger import Refusal
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

_ANSWER_S = 20.0


class ProxyLostError(Exception):
    """The proxy's process is gone: its browser reaches nothing any more, and both have to be replaced."""


@dataclasses.dataclass(frozen=True)
class ProxyReport:
    """What the proxy did.

    Attributes:
      refusals: since the last report; at most 200 places and reasons, `untold` counts requests beyond.
      requests, refused: since it started: requests and tunnels asked for, and those not let through.
      received, sent: bytes of bodies and tunnels since it started.
    """

    refusals: tuple[Refusal, ...]
    untold: int
    requests: int
    refused: int
    received: int
    sent: int


class EgressProxy:
    """A proxy's process; it ends with the process (and, like a browser's driver, the thread) that started it.

    Args:
      hosts: see `Dialer`.

    Raises:
      UserError: an entry of `hosts` cannot be read, or (from `start`) the address is not this machine's.
      ProxyLostError: from all methods but `close`, once the process is gone.
    """

    def __init__(self, config: GuardConfig, hosts: Mapping[str, str]) -> None:
        Dialer(hosts, config.connect_seconds)  # Says here, not in another process, what is wrong with them.
        self._start_order = {"config": dataclasses.asdict(config), "hosts": dict(hosts)}
        self._listen = config.listen
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.port = 0

    def start(self, allowed: Iterable[str], private: Iterable[str], own_ports: Collection[int]) -> None:
        """Starts it under a first policy, as in `admit`.

        Returns at once: whoever connects before the process is up waits for it.
        """
        try:
            listener = socket.create_server((self._listen, 0), backlog=128)
        except OSError as error:
            raise UserError(
                f"guard.listen: the proxy cannot wait at {self._listen} ({error.strerror}); "
                "write one of this machine's addresses"
            ) from error
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
        self._send({**self._start_order, **self._policy_order(allowed, private, own_ports)})

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
        """The process's number; 0 when none was started."""
        return 0 if self._process is None else self._process.pid

    def admit(self, allowed: Iterable[str], private: Iterable[str], own_ports: Collection[int]) -> None:
        """Sets what is let through from now on, and ends connections to anything else.

        Args:
          allowed, private: sources that can be read.
          own_ports: of the driver and the debugger; the proxy's own is added.
        """
        self._ask(self._policy_order(allowed, private, own_ports))

    def report(self) -> ProxyReport:
        answer = self._ask({})
        refusals = tuple(Refusal(**entry) for entry in answer.pop("refusals"))
        return ProxyReport(refusals=refusals, **answer)

    def _policy_order(
        self, allowed: Iterable[str], private: Iterable[str], own_ports: Collection[int]
    ) -> dict[str, Any]:
        ports = sorted({*own_ports, self.port})
        return {"allowed": list(allowed), "private": list(private), "own_ports": ports}

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._send(order)
            try:
                line = self._answers.readline()
            except (OSError, ValueError) as error:
                raise ProxyLostError(f"the egress proxy does not answer ({type(error).__name__})") from error
        if not line.endswith(b"\n"):
            raise ProxyLostError("the egress proxy is gone")
        return json.loads(line)

    def _send(self, order: dict[str, Any]) -> None:
        if self._control is None:
            raise ProxyLostError("the egress proxy does not run")
        try:
            self._control.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise ProxyLostError(f"the egress proxy is gone ({type(error).__name__})") from error
