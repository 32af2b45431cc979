"""A server on a loopback port: started, waited for, and ended with all its processes."""

from __future__ import annotations

import dataclasses
import http.client
import pathlib
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence

from collection.browser.chromium import kill_session
from rmsweb_jax.processes import ChildProcess, StallClock

_STALL_SECONDS = 300.0
_ANSWER_SECONDS = 30.0
_ATTEMPTS = 3
# The kernel ends the server with us, but not what it has forked: the second process waits for the end of a
# pipe that only we hold open, and then kills the whole group.
_WATCHED = 'exec 3<&0; (cat <&3 >/dev/null; kill -9 0) & exec "$@" </dev/null 3<&-'


@dataclasses.dataclass(frozen=True)
class ServerCommand:
    """Command line and settings of a server.

    Attributes:
      arguments: the command for a port.
      host: the name it is asked by.
      path: what it is asked for until it answers.
      log: what it prints goes there.
    """

    arguments: Callable[[int], Sequence[str]]
    host: str
    path: str
    log: pathlib.Path
    folder: pathlib.Path
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class ServerProcess:
    """A running server; start it in a thread that lives as long as it is needed.

    Attributes:
      address: `127.0.0.1:PORT`.

    Raises:
      UserError: it ended at once, or got stuck before it answered.
    """

    def __init__(self, command: ServerCommand) -> None:
        for attempt in range(_ATTEMPTS):
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            self._child = ChildProcess(
                f"{command.host} on {self.address}",
                ["sh", "-c", _WATCHED, "sh", *command.arguments(port)],
                command.log,
                env=command.environment,
                cwd=command.folder,
                stdin=subprocess.PIPE,
            )
            if self._wait(command):
                return
            ended, failure = self._child.poll() is not None, self._child.failure()
            self.close()
            # Another process may have taken the port; any other failure would only repeat itself.
            if not ended or attempt == _ATTEMPTS - 1 or "in use" not in str(failure):
                raise failure

    @property
    def pid(self) -> int:
        """The first process; all others are in its session."""
        return self._child.pid

    def close(self) -> None:
        kill_session(self._child.pid)
        self._child.kill()

    def _wait(self, command: ServerCommand) -> bool:
        """True if it answered before it ended or got stuck."""
        stall = StallClock()
        while self._child.wait(0.05) is None and stall.seconds(self._child.activity()) < _STALL_SECONDS:
            try:
                status, _ = get(self.address, command.host, command.path)
            except (OSError, http.client.HTTPException):
                continue
            return status < 500 and self._child.poll() is None
        return False


def get(address: str, host: str, path: str) -> tuple[int, bytes]:
    """Returns status and body of a page of a loopback server, requested under another host name."""
    connection = http.client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
