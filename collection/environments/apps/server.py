"""A server on a loopback port: started, waited for, and ended with all its processes."""

from __future__ import annotations

import dataclasses
import http.client
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from collection.browser.processes import kill_session
from rmsweb_jax.errors import UserError
from rmsweb_jax.processes import die_with_parent

START_SECONDS = 60.0
ANSWER_SECONDS = 30.0
_ATTEMPTS = 3
# The kernel ends the server with us, but not what it has forked: the second process waits for the end of a
# pipe that only we hold open, and then kills the whole group.
_WATCHED = 'exec 3<&0; (cat <&3 >/dev/null; kill -9 0) & exec "$@" </dev/null 3<&-'


@dataclasses.dataclass(frozen=True)
class ServerCommand:
    """How a server is run.

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
    """A running server; to be started by a thread that lives as long as it is needed.

    Attributes:
      address: `127.0.0.1:PORT`.

    Raises:
      UserError: it ended at once, or did not answer within `START_SECONDS`.
    """

    def __init__(self, command: ServerCommand) -> None:
        for attempt in range(_ATTEMPTS):
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            self._process = self._start(command, command.arguments(port))
            if self._wait(command):
                return
            ended = self._process.poll() is not None
            self.close()
            # Another process may have taken the port; everything else would only happen again.
            if not ended or attempt == _ATTEMPTS - 1 or "in use" not in _tail(command.log):
                raise UserError(
                    f"{command.host} {'ended' if ended else 'did not answer'} on {self.address}: "
                    f"{_tail(command.log).strip().rpartition(chr(10))[2][:200]} (log: {command.log})"
                )

    @property
    def pid(self) -> int:
        """The first process; all others are in its session."""
        return self._process.pid

    def close(self) -> None:
        kill_session(self._process.pid)
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()

    def _start(self, command: ServerCommand, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        with command.log.open("wb") as log:
            return subprocess.Popen(
                ["sh", "-c", _WATCHED, "sh", *arguments],
                cwd=command.folder,
                env={**os.environ, **command.environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _wait(self, command: ServerCommand) -> bool:
        """Whether it answered before it ended or the time was over."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                self._process.wait(timeout=0.05)
                return False
            except subprocess.TimeoutExpired:
                pass
            try:
                status, _ = get(self.address, command.host, command.path)
            except (OSError, http.client.HTTPException):
                continue
            return status < 500 and self._process.poll() is None
        return False


def get(address: str, host: str, path: str) -> tuple[int, bytes]:
    """Status and body of a page of a server on loopback, asked for under another name."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
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


def _tail(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""
