"""A model endpoint on loopback with a fixed sequence of answers."""

from __future__ import annotations

import dataclasses
import email.utils
import http.server
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer; `body` is sent as JSON unless it is bytes.

    Attributes:
      headers: a `Retry-After` of "+40" is sent as the date 40 to 41 s ahead.
      reset: the connection is reset in place of an answer.
      silent: nothing is ever sent.
      short: so many bytes of the body are held back, and the connection closed.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reset: bool = False
    silent: bool = False
    short: int = 0

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclasses.dataclass(frozen=True)
class Call:
    path: str
    headers: Mapping[str, str]
    body: Any


class ModelServer:
    """Sends `answers` in order, the last one for ever, and stores the calls.

    Args:
      port: 0 takes a free one.

    Attributes:
      always: given in their place as long as it is not None.
    """

    def __init__(self, answers: Sequence[Answer], port: int = 0):
        self.calls: list[Call] = []
        self.always: Answer | None = None
        self.answers, self._over = list(answers), threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        answer = self.always or self.answers[min(len(self.calls), len(self.answers) - 1)]
        self.calls.append(Call(handler.path, dict(handler.headers), json.loads(body)))
        self._give(handler, answer)

    def _give(self, handler: http.server.BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.close_connection = True
        if answer.silent:
            self._over.wait()
        elif answer.reset:
            # Closing without lingering sends RST, not FIN.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
        else:
            self._send(handler, answer)

    def _send(self, handler: http.server.BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.send_response(answer.status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.data))}
        for name, value in (headers | dict(answer.headers)).items():
            handler.send_header(name, _date(int(value)) if value.startswith("+") else value)
        handler.end_headers()
        handler.wfile.write(answer.data[: len(answer.data) - answer.short])


def _date(seconds: int) -> str:
    """Returns an HTTP date, which has no fractions of seconds."""
    return email.utils.formatdate(int(time.time()) + seconds + 1, usegmt=True)
